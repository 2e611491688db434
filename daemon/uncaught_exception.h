// Exceptions that are not caught: the C++ library and others throw them where the machine gives no memory or no thread.
// These are no mistakes of the program that a core dump would explain: they end it with one sentence on standard error
// and exit status 1, as a refused start does. Any thread.
#pragma once

#include <exception>

namespace tier {

// Says it, and returns the exit status. Allocates nothing.
int RefuseException(const std::exception& failure);

// From here on the same happens where such an exception leaves any thread, of ours or of a library. Other exceptions,
// and std::terminate without one, abort as ever.
void EndOnUncaughtShortage();

}  // namespace tier

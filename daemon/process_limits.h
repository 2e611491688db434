// What the kernel lets this process have: files that are open at a time, and memory that may be locked.
#pragma once

#include <cstddef>
#include <string>

namespace tier {

size_t OpenFileLimit();
// To which a start raises it.
size_t OpenFileLimitMax();
// "8 MiB of memory", "any amount of memory", "any amount of memory (CAP_IPC_LOCK lifts the limit of 8 MiB)". The memory
// mode says whether that was enough: in a user namespace the capability lifts nothing.
std::string LockableText();

}  // namespace tier

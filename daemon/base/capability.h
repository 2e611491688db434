// Whether the kernel gives this thread a right of root's (capabilities(7)). Any thread.
#pragma once

namespace tier::base {

// `capability` is one of linux/capability.h, such as CAP_KILL. False too where the kernel does not say.
bool HasCapability(int capability);

}  // namespace tier::base

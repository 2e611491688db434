// FaultEscape: more ends of a guarded call (fault_guard.h), for calls of a library in C that follows pointers which it
// reads from a file: damaged, they lead anywhere, or it notices and would abort the process.
//
// What such a library has read or written by then is of no use any more; memory that it allocated is lost. Where it was
// led into the heap before the call ended, or the fault came inside the allocator, this does not help: the process may
// hang or end later. Who uses it says why that is accepted.
#pragma once

namespace tier::base {

// While it exists, a fault at any address ends the innermost guarded call of this thread.
class AnyFaultEnds {
 public:
  AnyFaultEnds();
  ~AnyFaultEnds();
  AnyFaultEnds(const AnyFaultEnds&) = delete;
  AnyFaultEnds& operator=(const AnyFaultEnds&) = delete;
};

// Ends the innermost guarded call of this thread, as a fault does. Returns if there is none.
void EndGuardedCall();

}  // namespace tier::base

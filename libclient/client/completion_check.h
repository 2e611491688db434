// Whether a completion read from shared memory can be a daemon's answer. Pure: no threads, no I/O.
#pragma once

#include <cstdint>

#include "proto/message.h"

namespace tier::client {

// Null when the header fits a message of which `ready` ring entries have arrived; else the fault in words.
const char* WrongInHeader(const proto::CompletionHeader& header, uint32_t ready);
// Null when it can answer a request of this op; else the fault in words. REQUIRES: WrongInHeader returned null.
const char* WrongForOp(const proto::CompletionHeader& header, proto::Op op);

}  // namespace tier::client

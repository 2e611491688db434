// Whether a completion read from shared memory can be what a daemon answers. Pure: no threads, no I/O.
#pragma once

#include <cstdint>

#include "proto/message.h"

namespace tier::client {

// Null when the header fits a message of which `ready` ring entries have arrived; else what is wrong with it.
const char* WrongInHeader(const proto::CompletionHeader& header, uint32_t ready);
// Null when it can answer a request of this op; else what is wrong. REQUIRES: nothing wrong in the header.
const char* WrongForOp(const proto::CompletionHeader& header, proto::Op op);

}  // namespace tier::client

// Checks of libtier's own invariants. In tests and debug builds a broken invariant aborts the process, so that the
// fault is found. In release builds the client ends and its program continues: every later call returns DISCONNECTED
// with the sentence.
//
// Values read from shared memory are never checked this way: a daemon wrote them, so a fault is a Result.
//   if (!TIER_INVARIANT(channel, used >= bytes, std::to_string(used) + " bytes used")) return;
#pragma once

#include <string>

namespace tier::client {

// Whether a broken invariant aborts. Initially: in builds without NDEBUG. Tests turn it on in every build.
bool AbortsOnBrokenInvariant();
void SetAbortOnBrokenInvariant(bool abort);

// Returns the sentence for the program's log. Where a broken invariant aborts, prints it and does not return.
std::string BrokenInvariant(const char* file, int line, const char* condition, const std::string& values);

}  // namespace tier::client

// True when the condition holds. Else ends `channel` (or aborts) and is false: the caller leaves what it was about to
// do.
#define TIER_INVARIANT(channel, condition, values) \
  ((condition) || ((channel).EndBroken(::tier::client::BrokenInvariant(__FILE__, __LINE__, #condition, values)), false))

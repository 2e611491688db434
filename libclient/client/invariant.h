// What becomes of a broken invariant of libtier's own. In tests and debug builds the process aborts, so that the
// mistake is found. In release builds the client ends and the program that it serves goes on: every later call answers
// DISCONNECTED with the sentence.
//
// What is read from shared memory is never checked this way: a daemon wrote it, so it is a Result.
//   if (!TIER_INVARIANT(channel, used >= bytes, std::to_string(used) + " bytes used")) return;
#pragma once

#include <string>

namespace tier::client {

// Whether a broken invariant aborts. From the start: in builds without NDEBUG. Tests turn it on in every build.
bool AbortsOnBrokenInvariant();
void SetAbortOnBrokenInvariant(bool abort);

// The sentence for the program's log. Prints it and does not return where a broken invariant aborts.
std::string BrokenInvariant(const char* file, int line, const char* condition, const std::string& values);

}  // namespace tier::client

// True when the condition holds. Else ends `channel` (or aborts) and is false: the caller leaves what it was about to
// do.
#define TIER_INVARIANT(channel, condition, values) \
  ((condition) || ((channel).EndBroken(::tier::client::BrokenInvariant(__FILE__, __LINE__, #condition, values)), false))

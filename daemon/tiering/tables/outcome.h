// How far a request has come, as the unit that worked on it reports. Only requests/waiting ends a waiting request.
#pragma once

#include <cstdint>
#include <utility>

#include "daemon/tiering/tables/reply_buffer.h"

namespace tier::tiering {

enum class Progress : uint8_t {
  kWaits,     // For an event, or for the next turn.
  kReady,     // This step is done; the next one may begin.
  kFinished,  // To be answered OK with `value`.
  kAnswered,  // Answered already.
  kRefused,   // To be answered with `refusal`.
};

struct Outcome {
  Progress progress = Progress::kWaits;
  uint64_t value = 0;
  uint64_t item = 0;  // The request's item that the refusal is about.
  Refusal refusal;
};

inline Outcome Waits() { return {}; }
inline Outcome Ready() { return {.progress = Progress::kReady, .refusal = {}}; }
inline Outcome AnsweredAlready() { return {.progress = Progress::kAnswered, .refusal = {}}; }
inline Outcome Finished(uint64_t value) { return {.progress = Progress::kFinished, .value = value, .refusal = {}}; }
inline Outcome Refused(Refusal refusal, uint64_t item) {
  return {.progress = Progress::kRefused, .item = item, .refusal = std::move(refusal)};
}

}  // namespace tier::tiering

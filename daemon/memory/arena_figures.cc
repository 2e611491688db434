// What is told of the arena. See arena.h.
#include "daemon/memory/arena.h"

namespace tier::memory {

ArenaSnapshot Arena::snapshot() const {
  return {.owned_bytes = owned_bytes_,
          .stock_bytes = stock_bytes_,
          .making_bytes = making_bytes_,
          .closing_bytes = closing_bytes_,
          .huge_page_bytes = HugePageBytes(),
          .prefault_target_bytes = prefault_target_bytes_,
          .prefault_done_bytes = prefault_done_bytes_,
          .refusals_at_maximum = refusals_at_maximum_,
          .refusals_by_host = refusals_by_host_,
          .create_failures = create_failures_,
          .given_back_bytes = given_back_bytes_,
          .retired_windows = retired_.count(),
          .made = maker_.counters() + closer_.counters(),
          .host = host_};
}

}  // namespace tier::memory

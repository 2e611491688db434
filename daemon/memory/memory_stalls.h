// MemoryStalls: what a pressure file (PSI) says: how long tasks waited for memory. Any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace tier::memory {

struct MemoryStalls {
  double some_avg10 = 0;  // % of the last 10 s in which some task waited for memory.
  double full_avg10 = 0;  // … in which all of them did.
  std::optional<uint64_t> some_total_us;
  std::optional<uint64_t> full_total_us;
  bool known = false;  // False: the kernel has no PSI.
  friend bool operator==(const MemoryStalls&, const MemoryStalls&) = default;
};

// Of "some avg10=0.12 avg60=… total=5\nfull avg10=…". `known` is false where an average is missing.
MemoryStalls ParseStalls(std::string_view text);

}  // namespace tier::memory

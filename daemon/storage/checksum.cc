// ISA-L's crc32_iscsi folds with carry-less multiplication: 50 GB/s and more from cache, memory speed beyond it. It
// neither inverts the initial value nor the result, and counts in int.
#include "daemon/storage/checksum.h"

#include <algorithm>

#include <isa-l/crc.h>

namespace tier::storage {

uint32_t Crc32c(std::span<const std::byte> bytes, uint32_t before) {
  constexpr size_t kStepMax = size_t{1} << 30;
  // The parameter is not const in ISA-L 2.30, but only read.
  auto* at = const_cast<unsigned char*>(reinterpret_cast<const unsigned char*>(bytes.data()));
  uint32_t crc = ~before;
  for (size_t left = bytes.size(); left != 0;) {
    const size_t step = std::min(left, kStepMax);
    crc = crc32_iscsi(at, static_cast<int>(step), crc);
    at += step;
    left -= step;
  }
  return ~crc;
}

}  // namespace tier::storage

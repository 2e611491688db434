// CRC32C (Castagnoli, RFC 3720 §12.1), as it stands in superblocks and in the records of pieces. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tier::storage {

// The standard checksum: initial value and result inverted; of "123456789" it is 0xe3069283.
// `before`: the checksum of the bytes that come before these.
uint32_t Crc32c(std::span<const std::byte> bytes, uint32_t before = 0);

}  // namespace tier::storage

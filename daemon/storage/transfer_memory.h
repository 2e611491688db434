// Where the bytes of a transfer lie, on the device and in RAM: either may be several runs.
#pragma once

#include <cstddef>
#include <cstdint>

#include "daemon/storage/transfer.h"

namespace tier::storage {

struct TransferPart {   // What one command moves.
  uint64_t offset = 0;  // Bytes from the start of the data area.
  uint32_t length = 0;
  WindowIndex window{};
  std::byte* memory = nullptr;
};

// From byte `at` of the content on, up to the end of its run on the device, and in RAM.
TransferPart PartAt(const Transfer& transfer, uint32_t at);
// That its extent holds it, and lies in a data area of so many bytes.
void CheckExtent(const Transfer& transfer, uint64_t capacity_bytes);
// Makes every page in RAM differ from what it holds. False: it cannot be touched.
bool Scrub(const Transfer& transfer);

}  // namespace tier::storage

// MisplacedFiles: which files of devices, and whether that of the index, the next start would not find, because their
// paths lead elsewhere by now. A manifest that is committed all the same would be gone with this daemon, and its job
// would believe in it. Thread-compatible.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "daemon/storage/device_numbers.h"
#include "proto/result.h"

namespace tier::storage {

class MisplacedFiles {
 public:
  // `of_device`: why that device of this run is misplaced; empty: it is not. Null: none is. `index`: the same of the
  // index.
  MisplacedFiles(const std::function<std::string(uint16_t)>& of_device, size_t devices, std::string index);

  // In words; empty: there is none.
  std::string Text() const;
  // IO_ERROR: the index is misplaced, or a device that this list of extents names. CORRUPT: it is no such list. Empty:
  // it names none.
  Status Check(std::span<const std::byte> extents, const DeviceNumbers& numbers) const;

 private:
  std::vector<std::string> devices_;
  std::string index_;
};

}  // namespace tier::storage

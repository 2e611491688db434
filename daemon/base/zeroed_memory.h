// ZeroedMemory: pages of zeros from the system, which go back there when it ends, or some at a time before. However
// much it is, making it is quick: a page is there when it is first touched. To give back many touched pages takes long:
// TrimFront does a part of that.
//
// The kernel merges neighbouring mappings into one. To unmap the middle of a mapping divides it, which the kernel
// refuses (ENOMEM) where the process has vm.max_map_count of them. Then the pages go back, and their addresses stay
// taken: until more is given back, or until the process ends.
//
// Any thread, one at a time.
#pragma once

#include <cstddef>
#include <utility>

namespace tier::base {

class ZeroedMemory {
 public:
  ZeroedMemory() = default;
  explicit ZeroedMemory(size_t bytes);  // Ends the process if the system has no memory.
  ZeroedMemory(ZeroedMemory&& other) noexcept
      : first_(std::exchange(other.first_, nullptr)),
        trimmed_(std::exchange(other.trimmed_, 0)),
        size_(std::exchange(other.size_, 0)) {}
  ZeroedMemory& operator=(ZeroedMemory&& other) noexcept {
    std::swap(first_, other.first_);
    std::swap(trimmed_, other.trimmed_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~ZeroedMemory();

  std::byte* data() const { return size_ == 0 ? nullptr : first_ + trimmed_; }
  size_t size() const { return size_; }
  // Gives back the first `bytes`, a multiple of 4 KiB and at most size(): data() is behind them then.
  void TrimFront(size_t bytes);

 private:
  // The next `bytes`. False: they, and what was trimmed, are still mapped.
  bool GiveBack(size_t bytes);

  std::byte* first_ = nullptr;
  size_t trimmed_ = 0;  // Bytes at first_ that were given back and are still mapped.
  size_t size_ = 0;     // Behind these.
};

}  // namespace tier::base

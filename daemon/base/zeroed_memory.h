// ZeroedMemory: pages of zeros from the system, which go back there when it ends, or some at a time before. However
// much it is, making it is quick: a page is there when it is first touched. To give back many touched pages takes long:
// TrimFront does a part of that.
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
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  ZeroedMemory& operator=(ZeroedMemory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~ZeroedMemory();

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  // Gives back the first `bytes`, a multiple of 4 KiB and at most size(): data() is behind them then.
  void TrimFront(size_t bytes);

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace tier::base

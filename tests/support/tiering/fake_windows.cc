// See fake_windows.h.
#include "tests/support/tiering/fake_windows.h"

#include <cstdlib>
#include <cstring>

#include <fmt/format.h>

#include "daemon/base/check.h"

namespace tier::memory::testing {

void FakeWindowSource::Free::operator()(std::byte* memory) const { std::free(memory); }

FakeWindowSource::~FakeWindowSource() = default;

Result<WindowIndex> FakeWindowSource::StartCreate(OwnerId owner) {
  if (arena_bytes() + options_.window_size > options_.arena_max_bytes || windows_.size() == options_.windows_max) {
    return Fail(Code::kNoMemory, fmt::format("the arena has {} of {} bytes", arena_bytes(), options_.arena_max_bytes));
  }
  uint32_t index = 0;
  while (windows_.contains(index)) ++index;
  windows_[index] = {.owner = owner, .memory = nullptr, .due_turn = turn_ + options_.delay_turns};
  return WindowIndex{index};
}

void FakeWindowSource::Retire(WindowIndex window) {
  const auto found = windows_.find(Value(window));
  TIER_CHECK(found != windows_.end() && found->second.ready, "window {} retired", Value(window));
  // Whoever still touches it is wrong: the memory goes back to the allocator, where sanitizers see it.
  windows_.erase(found);
}

void FakeWindowSource::Poll(std::vector<WindowEvent>* events) {
  const uint64_t now = turn_++;
  for (auto at = windows_.begin(); at != windows_.end();) {
    auto& [index, window] = *at;
    if (window.ready || window.due_turn > now) {
      ++at;
      continue;
    }
    WindowEvent event{.window = WindowIndex{index}, .owner = window.owner, .message = {}};
    if (failures_ != 0) {
      --failures_;
      event.code = Code::kNoMemory;
      event.message = "scripted: no memory for this window";
      events->push_back(event);
      at = windows_.erase(at);
      continue;
    }
    window.memory.reset(static_cast<std::byte*>(std::aligned_alloc(kBlockSize, options_.window_size)));
    std::memset(window.memory.get(), 0, options_.window_size);
    window.ready = true;
    ++made_;
    event.address = window.memory.get();
    event.page_size = options_.page_size;
    events->push_back(event);
    ++at;
  }
}

}  // namespace tier::memory::testing

// See fake_windows.h.
#include "tests/support/tiering/fake_windows.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <optional>

#include <fmt/format.h>

#include "daemon/base/check.h"

namespace tier::memory::testing {

void FakeWindowSource::Free::operator()(std::byte* memory) const { std::free(memory); }

namespace {

FakeWindowOptions Completed(FakeWindowOptions options) {
  if (options.slot_window_size == 0) options.slot_window_size = options.window_size;
  if (options.arena_limit_bytes == 0) options.arena_limit_bytes = options.arena_max_bytes;
  TIER_CHECK(options.slot_window_size <= options.window_size, "slot windows of {}", options.slot_window_size);
  return options;
}

}  // namespace

// A test may raise the arena's maximum later: the address space is twice what all indices together can have.
FakeWindowSource::FakeWindowSource(FakeWindowOptions options)
    : options_(Completed(options)), places_(2 * options.window_size * options.windows_max, options.window_size) {
  if (options_.without_memory) addresses_.emplace(places_.space_bytes());
  ReadHost();
}

void FakeWindowSource::ReadHost() {
  const uint64_t most = options_.arena_max_bytes;
  room_read_ |= credit_.TakeReading(most - std::min(most, arena_bytes()));
}

FakeWindowSource::Addresses::Addresses(uint64_t bytes) : bytes_(bytes) {
  void* const base = ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  TIER_CHECK(base != MAP_FAILED, "no address space of {} bytes", bytes);
  base_ = static_cast<std::byte*>(base);
}

FakeWindowSource::Addresses::~Addresses() { ::munmap(base_, bytes_); }

FakeWindowSource::~FakeWindowSource() = default;

WindowWishes FakeWindowSource::wishes(const WindowHolder& job) const {
  if (sizes_) return WindowsWished(*sizes_, {static_cast<uint32_t>(windows_.size()), arena_bytes()}, job);
  return {.next = std::max({std::bit_floor(job.kind_bytes / kWindowsHeld), smallest_wished_, uint64_t{1}}),
          .merged = merged_wished_};
}

Result<StartedWindow> FakeWindowSource::StartCreate(OwnerId owner, WindowKind kind, uint64_t size, int node) {
  TIER_CHECK(std::has_single_bit(size) && size >= window_sizes(kind).least && size <= window_sizes(kind).most,
             "a window of {}", size);
  if (halved_ != 0 && size > window_sizes(kind).least) {
    --halved_;
    size /= 2;
  }
  if (!HasIndex()) room_lacked_ = true;
  if (arena_bytes() + size > options_.arena_max_bytes || !HasIndex()) {
    return Fail(Code::kNoMemory, fmt::format("the arena has {} of {} bytes", arena_bytes(), options_.arena_max_bytes));
  }
  if (kind == WindowKind::kBlock && huge_pages_closing_) {
    room_lacked_ = true;
    return Fail(Code::kNoMemory, "scripted: huge pages are on their way back");
  }
  if (kind == WindowKind::kSlot && refuses_slot_windows_) return Fail(Code::kNoMemory, "scripted: no slot windows");
  if (options_.by_readings && credit_.bytes() < size) {
    credit_.NoteLacked(size);
    reading_ = true;
    return Fail(Code::kNoMemory, "the last reading of the host covers no more");
  }
  credit_.Use(size);
  uint32_t index = lowest_unused_;
  while (windows_.contains(index)) ++index;
  lowest_unused_ = index;
  const std::optional<uint64_t> place = places_.TryTake(size);
  TIER_CHECK(place, "no place for {} bytes", size);
  const uint32_t page_size = kind == WindowKind::kBlock ? options_.page_size : static_cast<uint32_t>(kPageSize);
  windows_[index] = {.owner = owner,
                     .shape = {.index = WindowIndex{index},
                               .kind = kind,
                               .page_size = page_size,
                               .node = node,
                               .size = size,
                               .place = *place},
                     .memory = nullptr,
                     .file = {},
                     .mapping = {},
                     .due_turn = turn_ + options_.delay_turns,
                     .kept = {.owner = owner, .sessions = {}, .asked = {}, .number = ++last_number_, .bytes = size}};
  return StartedWindow{.index = WindowIndex{index}, .size = size};
}

uint64_t FakeWindowSource::CountOf(WindowKind kind) const {
  uint64_t count = 0;
  for (const auto& [index, window] : windows_) count += window.shape.kind == kind ? 1 : 0;
  return count;
}

void FakeWindowSource::Retire(WindowIndex window) {
  const auto found = windows_.find(Value(window));
  TIER_CHECK(found != windows_.end() && found->second.ready, "window {} retired", Value(window));
  places_.Free(found->second.shape.place, found->second.shape.size);
  if (!found->second.kept.sessions.empty()) retired_.push_back(found->second.kept);
  // Nothing may touch it any more: the memory goes back to the allocator, where sanitizers see it.
  windows_.erase(found);
  --ready_;
  lowest_unused_ = std::min(lowest_unused_, Value(window));
}

void FakeWindowSource::StrikeUnreturned(WindowIndex window, uint64_t number, uint64_t session) {
  const auto strike = [&](KeptWindow& kept) {
    if (kept.number == number) std::erase(kept.sessions, session);
  };
  if (const auto found = windows_.find(Value(window)); found != windows_.end()) strike(found->second.kept);
  std::ranges::for_each(retired_, strike);
}

// A memory file is zero where nobody has written.
void FakeWindowSource::GiveMemory(Window* window) {
  const uint64_t size = window->shape.size;
  if (options_.memory_files) {
    window->file = std::make_shared<const proto::FileDescriptor>(proto::CreateMemoryFile("fake-window", size).value());
    window->mapping = proto::Mapping::Map(window->file->get(), 0, size, proto::Access::kReadWrite).value();
    window->address = window->mapping.data();
    return;
  }
  window->memory.reset(static_cast<std::byte*>(std::aligned_alloc(kBlockSize, size)));
  window->address = window->memory.get();
  std::memset(window->address, 0, size);
}

std::shared_ptr<const proto::FileDescriptor> FakeWindowSource::Descriptor(WindowIndex window) const {
  const auto found = windows_.find(Value(window));
  return found == windows_.end() ? nullptr : found->second.file;
}

bool FakeWindowSource::under_way() const {
  return std::any_of(windows_.begin(), windows_.end(), [](const auto& entry) { return !entry.second.ready; });
}

void FakeWindowSource::Poll(std::vector<WindowEvent>* events) {
  const uint64_t now = turn_++;
  if (std::exchange(reading_, false)) ReadHost();
  if (ready_ == windows_.size()) return;
  for (auto at = windows_.begin(); at != windows_.end();) {
    auto& [index, window] = *at;
    if (window.ready || window.due_turn > now) {
      ++at;
      continue;
    }
    WindowEvent event{.window = {.index = WindowIndex{index}, .kind = window.shape.kind, .size = window.shape.size},
                      .owner = window.owner,
                      .message = {}};
    if (failures_ != 0) {
      --failures_;
      event.code = Code::kNoMemory;
      event.message = "scripted: no memory for this window";
      events->push_back(event);
      places_.Free(window.shape.place, window.shape.size);
      lowest_unused_ = std::min(lowest_unused_, index);
      at = windows_.erase(at);
      continue;
    }
    if (addresses_) {
      window.address = addresses_->At(window.shape.place);
    } else {
      GiveMemory(&window);
    }
    window.ready = true;
    ++ready_;
    ++made_;
    event.window = window.shape;
    event.address = window.address;
    events->push_back(event);
    ++at;
  }
}

}  // namespace tier::memory::testing

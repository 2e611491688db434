// The table of windows and the rules of growth.
#include "daemon/memory/arena.h"

#include <sys/resource.h>

#include <algorithm>
#include <bit>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "daemon/base/check.h"
#include "daemon/base/format_bytes.h"

namespace tier::memory {
namespace {

using base::FormatBytes;

constexpr uint64_t kOtherDescriptors = 4096;  // Sockets, devices, rings of clients beside the windows.

// Best effort: where the hard limit is lower too, the failure of a window says what to raise.
void RaiseDescriptorLimit(uint64_t wanted) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) return;
  limit.rlim_cur = std::min<rlim_t>(wanted, limit.rlim_max);
  (void)::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

Arena::Arena(ArenaOptions options, base::Workers* workers, base::Workers* closers)
    : options_(std::move(options)),
      entries_(options_.sizes.windows_max),
      places_(2 * options_.sizes.max_bytes, options_.sizes.window_size_max),
      nodes_(options_.numa_node, ReadMemoryNodes(options_.host_root)),
      max_now_bytes_(options_.sizes.max_bytes),
      small_credit_(std::max(kReadingCoversBytes, options_.sizes.window_size_max)),
      clock_(options_.clock != nullptr ? *options_.clock : steady_clock_),
      sampler_(options_.host_root, closers != nullptr ? closers : workers, options_.on_event),
      retired_(closers != nullptr ? closers : workers),
      maker_(workers, options_.on_event),
      closer_(closers != nullptr ? closers : workers, options_.on_event),
      stock_maker_(closers != nullptr && closers->threads() > workers->threads() ? closer_ : maker_) {
  const ArenaSizes& sizes = options_.sizes;
  TIER_CHECK(sizes.window_size_min >= kWindowSizeMin && sizes.window_size_min <= sizes.window_size_max &&
                 sizes.max_bytes % sizes.window_size_max == 0,
             "windows of {} to {} in {}", sizes.window_size_min, sizes.window_size_max, sizes.max_bytes);
  TIER_CHECK(sizes.windows_max <= kWindowsMax && sizes.windows_max >= sizes.windows_aimed &&
                 sizes.windows_aimed >= sizes.max_bytes / sizes.window_size_max,
             "windows {} and {}, maximum {} of {}", sizes.windows_max, sizes.windows_aimed, sizes.max_bytes,
             sizes.window_size_max);
  unused_.AddMembers(0, sizes.windows_max);
  RaiseDescriptorLimit(sizes.windows_max + kOtherDescriptors);
  base::InstallFaultGuard();
}

Arena::~Arena() = default;

std::shared_ptr<const proto::FileDescriptor> Arena::Descriptor(WindowIndex window) const {
  TIER_CHECK(Value(window) < entries_.size(), "window {} of {}", Value(window), entries_.size());
  const Entry& entry = entries_[Value(window)];
  TIER_CHECK(entry.state == State::kReady, "window {} state {}", Value(window), static_cast<int>(entry.state));
  return entry.window.descriptor();
}

bool Arena::block_windows_take_slots() const {
  if (!stock_.empty()) return entries_[Value(stock_.back())].window.page_size() == kPageSize;
  return HugeCredit(WindowKind::kBlock) < options_.sizes.window_size_min && !block_windows_come();
}

WindowWishes Arena::wishes(const WindowHolder& job) const {
  return WindowsWished(options_.sizes, {owned_count_, owned_bytes_}, job);
}

Result<StartedWindow> Arena::StartCreate(OwnerId owner, WindowKind kind, uint64_t size_bytes, int node) {
  const ArenaSizes& sizes = options_.sizes;
  TIER_CHECK(
      std::has_single_bit(size_bytes) && size_bytes >= sizes.window_size_min && size_bytes <= sizes.window_size_max,
      "a window of {}", size_bytes);
  stock_maker_.PauseBetweenWindows();  // For the job that comes.
  if (kind == WindowKind::kBlock && size_bytes == stock_size() && !stock_.empty()) return HandOutStock(owner, node);
  const auto started =
      StartMake(State::kMaking, {.owner = owner, .kind = kind, .size = size_bytes, .node = nodes_.For(node)});
  if (!started) return started;
  ++owned_count_;
  owned_bytes_ += started->size;
  TIER_CHECK(owned_bytes_ + stock_bytes_ <= sizes.max_bytes, "owned {} stock {} maximum {}", owned_bytes_, stock_bytes_,
             sizes.max_bytes);
  return started;
}

Result<Arena::Growth> Arena::AllowGrowth(WindowKind kind, uint64_t size) {
  const auto full = [&] { return owned_bytes_ + stock_bytes_ + size > bound_bytes(); };
  // What is closed for a window must be of use to it.
  const bool of_use =
      kind == WindowKind::kBlock ? size < stock_size() : SmallCredit(kind) >= size || block_windows_take_slots();
  if (!stock_.empty() && full() && of_use) TradeStock();
  if (full()) {
    ++refusals_at_maximum_;
    if (stock_bytes_ > stock_.size() * stock_size()) room_lacked_ = true;  // More of it comes.
    return Fail(Code::kNoMemory,
                fmt::format("the arena is at its maximum: {} in windows and {} more asked for, of {}{}; raise "
                            "arena.maximum or free tensors",
                            FormatBytes(owned_bytes_ + stock_bytes_), FormatBytes(size), FormatBytes(bound_bytes()),
                            bound_bytes() == options_.sizes.max_bytes
                                ? ""
                                : fmt::format(" that {} of the daemon's own memory leave", FormatBytes(own_bytes()))));
  }
  if (failing_) {
    room_lacked_ = true;
    return Fail(Code::kNoMemory, last_failure_);
  }
  const bool always_huge = kind == WindowKind::kBlock && options_.huge_pages == HugePagePolicy::kAlways;
  if (!host_read_) RefreshHost();
  if ((always_huge ? HugeCredit(kind) : SmallCredit(kind)) < size) {
    StartRefresh();
    small_credit_.Extend();
  }
  return AllowFromHost(kind, size);
}

Result<Arena::Growth> Arena::AllowFromHost(WindowKind kind, uint64_t size) {
  const bool huge = HugeCredit(kind) >= size;
  const bool small = SmallCredit(kind) >= size;
  if (huge) return small ? Growth::kHugeElseSmall : Growth::kHuge;
  if (HugePagesComeFor(kind, size)) {
    room_lacked_ = true;
    return Fail(Code::kNoMemory, fmt::format("{} of windows in huge pages are still being closed; try again",
                                             FormatBytes(huge_pages_.closing_bytes())));
  }
  if (small) return Growth::kSmall;
  if (kind == WindowKind::kBlock && block_windows_come()) room_lacked_ = true;  // Of a smaller window.
  if (TakesSmall(kind)) small_credit_.NoteLacked(size);
  ++refusals_by_host_;
  return HostRefusal(kind, size);
}

// Does all but count the bytes as owned or stock.
Result<StartedWindow> Arena::StartMake(State state, Making wanted) {
  uint64_t& size = wanted.size;
  const Result<Growth> growth = AllowGrowth(wanted.kind, size);
  if (!growth) return std::unexpected(growth.error());
  const uint32_t number = unused_.FindAtOrAfter(0);
  if (number == base::FreeBlockMap::kNone) {
    if (state == State::kMaking && !stock_.empty() && closing_bytes_ == 0) TradeStock();
    ++refusals_at_maximum_;
    room_lacked_ = true;
    return Fail(Code::kNoMemory,
                fmt::format("all {} window indices are in use, {} of windows are still being closed; try again",
                            windows_max(), FormatBytes(closing_bytes_)));
  }
  std::optional<uint64_t> place = places_.TryTake(size);
  while (!place && size > options_.sizes.window_size_min) place = places_.TryTake(size /= 2);
  TIER_CHECK(place, "no place for {} bytes beside {} of {}", size, places_.taken_bytes(), places_.space_bytes());
  unused_.MarkUsed(number, 1);
  const WindowIndex index{number};
  Entry& entry = At(index);
  TIER_CHECK(entry.state == State::kUnused, "window {} state {}", number, static_cast<int>(entry.state));
  entry.state = state;
  entry.kind = wanted.kind;
  entry.owner = wanted.owner;
  entry.size = size;
  entry.place = *place;
  making_bytes_ += size;
  entry.making_small = *growth == Growth::kSmall;
  if (entry.making_small) {
    small_credit_.Use(size);
    changing_owner_.NoteMade(size);
  } else {
    huge_pages_.StartMaking(size);
  }

  WindowOrder order;
  order.window = {.index = index,
                  .size = size,
                  .pages = *growth == Growth::kSmall ? PageKind::kSmall : PageKind::kHuge,
                  .node = wanted.node};
  order.may_fall_back = *growth == Growth::kHugeElseSmall;
  order.made_ahead = state == State::kMakingStock;
  order.collapse = options_.collapse == CollapsePolicy::kAuto;
  (order.made_ahead ? stock_maker_ : maker_).StartMake(order);
  return StartedWindow{.index = index, .size = size};
}

Status Arena::StartPrefault(uint64_t bytes) {
  const uint64_t windows = (bytes - std::min(bytes, owned_bytes_)) / stock_size();  // Jobs may have come before.
  for (uint64_t i = 0; i < windows; ++i) {
    const auto started = StartMake(State::kMakingStock, {.size = stock_size(), .node = nodes_.ForStock()});
    if (!started) return std::unexpected(started.error());
    stock_bytes_ += started->size;
    prefault_target_bytes_ += started->size;
  }
  return {};
}

// One from this node, where there is one.
StartedWindow Arena::HandOutStock(OwnerId owner, int node) {
  const auto near = std::find_if(stock_.rbegin(), stock_.rend(),
                                 [&](WindowIndex window) { return entries_[Value(window)].node == node; });
  if (near != stock_.rend()) std::swap(*near, stock_.back());
  const WindowIndex index = stock_.back();
  stock_.pop_back();
  Entry& entry = At(index);
  TIER_CHECK(entry.state == State::kStock, "window {} state {}", Value(index), static_cast<int>(entry.state));
  entry.owner = owner;
  entry.state = State::kMaking;  // Until its event is polled.
  stock_bytes_ -= entry.size;
  ++owned_count_;
  owned_bytes_ += entry.size;
  handed_out_.push_back(index);
  if (options_.on_event) options_.on_event();
  return {.index = index, .size = entry.size};
}

// Its small pages are as good as free: a reading counts what is being closed as well.
void Arena::TradeStock() {
  const bool huge = At(stock_.back()).window.page_size() != kPageSize;
  CloseStock();
  if (!huge) small_credit_.Return(stock_size());
}

// The one that would be handed out next.
void Arena::CloseStock() {
  TIER_CHECK(!stock_.empty() && stock_bytes_ >= stock_size(), "{} bytes of stock in {} windows", stock_bytes_,
             stock_.size());
  const WindowIndex index = stock_.back();
  stock_.pop_back();
  NoteGivenBack(index);
  const uint64_t size = At(index).size;
  stock_bytes_ -= size;
  prefault_target_bytes_ -= size;
  prefault_done_bytes_ -= size;
  StartClose(index);
}

// As much as is missing should come back, stock first.
void Arena::CloseStockBeyond(uint64_t bytes) {
  max_now_bytes_ = std::min(max_now_bytes_, bytes);
  const auto gains = [&] { return !stock_.empty() && At(stock_.back()).window.page_size() == kPageSize; };
  while (gains() && owned_bytes_ + stock_bytes_ > bytes) CloseStock();
}

void Arena::Retire(WindowIndex window) {
  const Entry& entry = Ready(window);
  TIER_CHECK(entry.window && owned_bytes_ >= entry.size, "window {} owned {}", Value(window), owned_bytes_);
  NoteGivenBack(window);
  --owned_count_;
  owned_bytes_ -= entry.size;
  StartClose(window);
}

void Arena::Poll(std::vector<WindowEvent>* events) {
  for (const WindowIndex index : handed_out_) {
    At(index).state = State::kReady;
    events->push_back(EventOf(index));
  }
  handed_out_.clear();
  if (HostReading host; sampler_.Take(&host)) {
    SetHost(host, std::exchange(sampled_making_bytes_, 0), sampled_closed_bytes_);
  }
  maker_.Poll(&made_);
  closer_.Poll(&made_);
  for (MadeWindow& made : made_) {
    if (made.closed) {
      OnClosed(std::move(made));
    } else {
      OnMade(std::move(made), events);
    }
  }
  made_.clear();
}

WindowEvent Arena::EventOf(WindowIndex window) const {
  const Entry& entry = entries_[Value(window)];
  return {.window = {.index = window,
                     .kind = entry.kind,
                     .page_size = entry.window.page_size(),
                     .node = entry.node,
                     .size = entry.size,
                     .place = entry.place},
          .owner = entry.owner,
          .message = {},
          .address = entry.window.address()};
}

void Arena::OnClosed(MadeWindow closed) {
  const WindowIndex window = closed.index;
  Entry& entry = At(window);
  TIER_CHECK(entry.state == State::kClosing && closing_bytes_ >= entry.size, "window {} state {}", Value(window),
             static_cast<int>(entry.state));
  closing_bytes_ -= entry.size;
  if (entry.closing_huge) {
    huge_pages_.EndClosing(entry.size);
  } else {
    closed_bytes_ += entry.size;
  }
  given_back_bytes_ += entry.given_back;
  ReturnNotes::Notes notes = return_notes_.Take(window);
  if (closed.retired) {
    retired_.Add({.window = {.owner = entry.owner,
                             .sessions = std::move(notes.unreturned),
                             .asked = std::move(notes.asked),
                             .number = notes.number,
                             .owed = notes.owed,
                             .since = clock_.Now(),
                             .bytes = entry.size},
                  .file = std::move(closed.retired)});
  }
  entry = {};
  unused_.MarkFree(Value(window));
  NoteRoomFreed();
}

void Arena::OnMade(MadeWindow made, std::vector<WindowEvent>* events) {
  Entry& entry = At(made.index);
  const bool for_stock = entry.state == State::kMakingStock;
  TIER_CHECK(for_stock || entry.state == State::kMaking, "window {} state {}", Value(made.index),
             static_cast<int>(entry.state));
  TIER_CHECK(making_bytes_ >= entry.size, "making {}", making_bytes_);
  making_bytes_ -= entry.size;
  if (!entry.making_small) huge_pages_.EndMaking(entry.size);
  if (!made.window) return OnFailed(std::move(made), events);
  TIER_CHECK(made.window.size() == entry.size, "size {} of {}", made.window.size(), entry.size);
  entry.window = std::move(made.window);
  entry.node = nodes_.several() ? made.node : kAnyNode;
  entry.state = for_stock ? State::kStock : State::kReady;
  if (for_stock) {
    prefault_done_bytes_ += entry.size;
    stock_.push_back(made.index);
    NoteRoomFreed();
    return;
  }
  events->push_back(EventOf(made.index));
}

void Arena::OnFailed(MadeWindow made, std::vector<WindowEvent>* events) {
  TIER_CHECK(made.error.code != Code::kOk, "window {} failed without a reason", Value(made.index));
  Entry& entry = At(made.index);
  const bool for_stock = entry.state == State::kMakingStock;
  ++create_failures_;
  (for_stock ? stock_bytes_ : owned_bytes_) -= entry.size;
  owned_count_ -= for_stock ? 0 : 1;
  if (for_stock) prefault_target_bytes_ -= entry.size;
  const OwnerId owner = entry.owner;
  const WindowKind kind = entry.kind;
  const uint64_t size = entry.size;
  places_.Free(entry.place, entry.size);
  entry = {};
  unused_.MarkFree(Value(made.index));
  NoteRoomFreed();
  last_failure_ = made.error.message;
  failing_ = true;
  if (for_stock) return;
  events->push_back({.window = {.index = made.index, .kind = kind, .size = size},
                     .owner = owner,
                     .code = made.error.code,
                     .message = std::move(made.error.message)});
}

// Where a limit is lowered while the daemon runs, a reserve that was derived from it goes with it.
uint64_t Arena::reserve_bytes() const {
  const ArenaSizes& sizes = options_.sizes;
  if (!sizes.reserve_is_derived || host_.memory_total == 0) return sizes.host_reserve_bytes;
  return std::min(sizes.host_reserve_bytes, DerivedReserve(host_.memory_limit()));
}

// What windows may take beside the daemon's own memory, by the limit that is. The windows that are there may take more.
uint64_t Arena::bound_bytes() const {
  const ArenaSizes& sizes = options_.sizes;
  uint64_t usable = sizes.usable_bytes;
  if (host_.memory_total != 0) {
    const uint64_t memory = host_.memory_limit();
    usable = std::min(usable, memory - std::min(memory, reserve_bytes()));
  }
  return std::min(sizes.max_bytes, usable - std::min(usable, own_bytes()));
}

std::unexpected<Error> Arena::HostRefusal(WindowKind kind, uint64_t size) {
  if (host_.memory_total == 0) {
    return Fail(Code::kNoMemory, "cannot tell how much memory the host has left: " + options_.host_root +
                                     "/proc/meminfo cannot be read");
  }
  if (kind == WindowKind::kBlock && options_.huge_pages == HugePagePolicy::kAlways) {
    return Fail(Code::kNoMemory,
                fmt::format("a window of {} in huge pages was asked for and {} of them are free; raise "
                            "vm.nr_hugepages or set arena.huge_pages to \"auto\"",
                            FormatBytes(size), host_.huge_pages_free));
  }
  if (pressure_.active()) {
    return Fail(Code::kNoMemory, fmt::format("the host is short of memory ({}): the arena stays at {}", PressureText(),
                                             FormatBytes(owned_bytes_)));
  }
  return Fail(Code::kNoMemory,
              fmt::format("a window of {} would cut into the host reserve: {} available{}, {} still to be populated, "
                          "reserve {}; the arena stays at {}",
                          FormatBytes(size), FormatBytes(host_.available()),
                          host_.cgroup.available < host_.memory_available ? " by the cgroup limit" : "",
                          FormatBytes(making_bytes_), FormatBytes(reserve_bytes()), FormatBytes(owned_bytes_)));
}

uint64_t Arena::HugePageBytesFree() const {
  return host_.huge_page_size == kBlockSize ? host_.huge_pages_free * kBlockSize : 0;
}

uint64_t Arena::HugePageBytes() const {
  uint64_t bytes = 0;
  for (const Entry& entry : entries_) {
    if (entry.window && entry.window.page_size() != kPageSize) bytes += entry.size;
  }
  return bytes;
}

void Arena::StartSample() {
  if (!sampler_.under_way()) {
    sampled_making_bytes_ = making_bytes_;
    sampled_closed_bytes_ = closed_bytes_;
    huge_pages_.StartReading();
  }
  sampler_.Start();
}

void Arena::StartRefresh() {
  retired_.Start();
  StartSample();
}

void Arena::RefreshHost() {
  huge_pages_.StartReading();
  const Result<HostReading> host = ReadHost(options_.host_root);
  SetHost(host ? *host : HostReading{}, 0, closed_bytes_);  // Unreadable: nothing may be had, the refusal says so.
}

// `given`: what is available, with what is on its way back.
HostPressure::Arena Arena::PressedBy(uint64_t given) const {
  const uint64_t bytes = owned_bytes_ + stock_bytes_;
  const uint64_t bound = bound_bytes();
  const uint64_t taken = reserve_bytes() + (making_bytes_ - huge_pages_.making_bytes()) + host_.cgroup.excess;
  return {.bytes = bytes,
          .least_bytes = std::max(std::min(options_.sizes.min_bytes, bytes), HugePageBytes()),
          .step_bytes = options_.sizes.window_size_min,
          .reserve_bytes = reserve_bytes(),
          .missing_bytes = taken > given ? taken - given : 0,
          .too_many_bytes = bytes > bound ? bytes - bound : 0};
}

void Arena::SetHost(const HostReading& host, uint64_t making_when_asked, uint64_t closed_when_asked) {
  host_ = host;
  host_read_ = true;
  if (std::exchange(failing_, false)) NoteRoomFreed();
  // Windows in the making are not in the reading yet, those being closed still are.
  const uint64_t making = std::max(making_bytes_, making_when_asked);
  const uint64_t taken = reserve_bytes() + making;
  const uint64_t closing = closing_bytes_ - huge_pages_.closing_bytes();
  const uint64_t given = host_.available() + closing;
  TIER_CHECK(closed_bytes_ >= closed_when_asked, "{} of {} bytes closed", closed_bytes_, closed_when_asked);
  const uint64_t closed_since = closed_bytes_ - closed_when_asked;  // The reading may still have them as used.
  const HostPressure::Arena pressed = PressedBy(given + closed_since);
  pressure_.Note(host_, pressed, clock_.Now());
  CloseStockBeyond(pressure_.ceiling());

  const uint64_t bytes = owned_bytes_ + stock_bytes_;
  uint64_t room = changing_owner_.RoomFor(given > taken ? given - taken : 0, clock_.Now());
  room = std::min(room, pressure_.ceiling() - std::min(bytes, pressure_.ceiling()));
  huge_pages_.TakeReading(HugePageBytesFree());
  const uint64_t huge_room = huge_pages_.bytes() + huge_pages_.closing_bytes();
  if (small_credit_.TakeReading(room)) room_freed_ = true;

  const uint64_t growth = (options_.huge_pages == HugePagePolicy::kAlways ? 0 : room) +
                          (options_.huge_pages == HugePagePolicy::kNever ? 0 : huge_room);
  const uint64_t reachable = std::min(pressure_.ceiling(), bytes + growth);
  const uint64_t grain = options_.sizes.window_size_min;
  // What is kept in any case counts as reachable where it is there; it is not made beyond what the host allows.
  max_now_bytes_ = std::max(std::min(bound_bytes(), reachable), pressed.least_bytes) / grain * grain;
}

// A window that is closed while the arena is above what the host leaves it.
void Arena::NoteGivenBack(WindowIndex window) {
  Entry& entry = At(window);
  TIER_CHECK(entry.window && entry.given_back == 0, "window {} is closed twice", Value(window));
  const uint64_t bytes = owned_bytes_ + stock_bytes_;
  if (entry.window.page_size() == kPageSize && bytes > max_now_bytes_) {
    entry.given_back = std::min(entry.size, bytes - max_now_bytes_);
  }
}

void Arena::StartClose(WindowIndex window) {
  Entry& entry = At(window);
  entry.state = State::kClosing;
  places_.Free(entry.place, entry.size);
  closing_bytes_ += entry.size;
  entry.closing_huge = entry.window.page_size() != kPageSize;
  if (entry.closing_huge) huge_pages_.StartClosing(entry.size);
  if (!entry.closing_huge) changing_owner_.NoteClosed(entry.size - entry.given_back, clock_.Now());
  closer_.StartClose(window, std::exchange(entry.window, Window()));
}

}  // namespace tier::memory

// See fake_transfer.h. Everything is ordered by (due turn, sequence), so a seed fully determines a run.
#include "tests/support/storage/fake_transfer.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "daemon/base/check.h"
#include "daemon/storage/checksum.h"

namespace tier::storage::testing {
namespace {

constexpr auto kPoison = std::byte{0xa5};

uint32_t PagesOf(const Transfer& transfer) { return static_cast<uint32_t>(PagesFor(transfer.length)); }

uint32_t Checksum(const Transfer& transfer) {
  uint32_t crc = 0;
  ForEachMemoryRun(transfer, transfer.length,
                   [&crc](WindowIndex, std::span<const std::byte> bytes) { crc = Crc32c(bytes, crc); });
  return crc;
}

bool RunsMeet(base::PageRun a, base::PageRun b) {
  return a.offset_bytes() < b.offset_bytes() + b.size_bytes() && b.offset_bytes() < a.offset_bytes() + a.size_bytes();
}

bool ExtentsMeet(const Transfer& a, const Transfer& b) {
  if (a.extent.device != b.extent.device) return false;
  return std::ranges::any_of(RunsOf(a), [&b](base::PageRun run) {
    return std::ranges::any_of(RunsOf(b), [run](base::PageRun other) { return RunsMeet(run, other); });
  });
}

// Of the run that meets `bad`, the bytes of content before it. None meets it: none.
std::optional<uint32_t> FailedAt(const Transfer& t, Extent bad) {
  uint64_t at = 0;
  for (const base::PageRun run : RunsOf(t)) {
    if (bad.device == t.extent.device && RunsMeet(run, bad.run)) return static_cast<uint32_t>(at);
    at += run.size_bytes();
  }
  return std::nullopt;
}

// visit(extent, memory, pages) for the first `pages` pages, as many at once as lie side by side in both.
template <typename Visit>
void ForEachPart(const Transfer& t, uint32_t pages, Visit visit) {
  const std::span<const base::PageRun> runs = RunsOf(t);
  size_t run = 0;
  uint16_t skipped = 0;  // Pages of that run.
  ForEachMemoryRun(t, pages * static_cast<uint32_t>(kPageSize), [&](WindowIndex, std::span<std::byte> memory) {
    for (size_t at = 0; at < memory.size() && run < runs.size();) {
      const auto left = static_cast<uint16_t>(PagesFor(memory.size() - at));
      const base::PageRun part{.block = runs[run].block,
                               .page = static_cast<uint16_t>(runs[run].page + skipped),
                               .pages = std::min<uint16_t>(left, static_cast<uint16_t>(runs[run].pages - skipped))};
      visit(Extent{.run = part, .device = t.extent.device}, memory.data() + at, uint32_t{part.pages});
      at += part.size_bytes();
      skipped = static_cast<uint16_t>(skipped + part.pages);
      if (skipped < runs[run].pages) continue;
      ++run;
      skipped = 0;
    }
  });
}

bool MemoryMeets(const Transfer& a, const Transfer& b) {
  bool meet = false;
  ForEachMemoryRun(a, IoBytes(a), [&](WindowIndex, std::span<const std::byte> one) {
    ForEachMemoryRun(b, IoBytes(b), [&](WindowIndex, std::span<const std::byte> other) {
      meet = meet || (one.data() < other.data() + other.size() && other.data() < one.data() + one.size());
    });
  });
  return meet;
}

}  // namespace

void MemoryDisk::Write(Extent extent, const std::byte* bytes, uint32_t pages) {
  TIER_CHECK(extent.run.page + pages <= kPagesPerBlock, "page {} + {}", extent.run.page, pages);
  Block& block = blocks_[KeyOf(extent)];
  for (uint32_t page = extent.run.page; page < extent.run.page + pages; ++page) {
    page_count_ += block.written[page] ? 0 : 1;
    block.written[page] = true;
  }
  std::memcpy(block.bytes.get() + extent.run.page * kPageSize, bytes, pages * kPageSize);
}

std::byte* MemoryDisk::BytesOf(Extent extent, uint32_t pages) const {
  const auto found = blocks_.find(KeyOf(extent));
  for (uint32_t page = extent.run.page; page < extent.run.page + pages; ++page) {
    TIER_CHECK(page < kPagesPerBlock && found != blocks_.end() && found->second.written[page],
               "device {} block {} page {} was never written", extent.device, extent.run.block, page);
  }
  return found->second.bytes.get() + extent.run.page * kPageSize;
}

void MemoryDisk::Read(Extent extent, std::byte* bytes, uint32_t pages) const {
  if (pages != 0) std::memcpy(bytes, BytesOf(extent, pages), pages * kPageSize);
}

bool MemoryDisk::Written(Extent extent) const {
  const auto found = blocks_.find(KeyOf(extent));
  for (uint32_t page = extent.run.page; page < uint32_t{extent.run.page} + extent.run.pages; ++page) {
    if (found == blocks_.end() || !found->second.written[page]) return false;
  }
  return true;
}

void MemoryDisk::FlipByte(Extent extent, uint64_t offset) {
  extent.run.page = static_cast<uint16_t>(extent.run.page + offset / kPageSize);
  BytesOf(extent, 1)[offset % kPageSize] ^= std::byte{0xff};
}

void MemoryDisk::Erase(Extent extent) {
  const auto found = blocks_.find(KeyOf(extent));
  if (found == blocks_.end()) return;
  for (uint32_t page = extent.run.page; page < uint32_t{extent.run.page} + extent.run.pages; ++page) {
    page_count_ -= found->second.written[page] ? 1 : 0;
    found->second.written[page] = false;
  }
  if (found->second.written.none()) blocks_.erase(found);
}

FakeTransferPort::FakeTransferPort(FakeTransferOptions options, std::shared_ptr<MemoryDisk> disk)
    : options_(options),
      disk_(disk ? std::move(disk) : std::make_shared<MemoryDisk>()),
      random_(options.seed),
      traffic_(options.device_count),
      latency_(options.device_count),
      devices_(options.device_count) {
  SetDelay(options.delay_turns_min, options.delay_turns_max);
}

FakeTransferPort::~FakeTransferPort() = default;

void FakeTransferPort::AddWindow(WindowIndex window, std::byte* address, uint64_t size, Pin pin) {
  TIER_CHECK(address != nullptr && size % kPageSize == 0 && size != 0, "window {} size {}", Value(window), size);
  const bool added = windows_.emplace(Value(window), Window{.address = address, .size = size, .pin = pin}).second;
  TIER_CHECK(added, "window {} announced twice", Value(window));
}

void FakeTransferPort::RemoveWindow(WindowIndex window) {
  for (const auto* list : {&started_, &submitted_}) {
    for (const Flight& flight : *list) {
      const Transfer& t = flight.transfer;
      ForEachMemoryRun(t, IoBytes(t), [&](WindowIndex used, std::span<const std::byte>) {
        TIER_CHECK(used != window, "window {} removed under transfer {}", Value(window), t.cookie);
      });
    }
  }
  TIER_CHECK(windows_.contains(Value(window)), "window {} is not announced", Value(window));
  for (const Removal& other : removals_) TIER_CHECK(other.window != window, "window {} removed twice", Value(window));
  removals_.push_back({.window = window, .calls_left = remove_delay_});
}

void FakeTransferPort::TakeRemoved(std::vector<WindowIndex>* windows) {
  std::erase_if(removals_, [&](Removal& removal) {
    if (removal.calls_left != 0) {
      --removal.calls_left;
      return false;
    }
    windows_.erase(Value(removal.window));
    windows->push_back(removal.window);
    return true;
  });
}

void FakeTransferPort::CheckStart(const Transfer& t) const {
  TIER_CHECK(inflight() < options_.inflight_max, "{} in flight", inflight());
  TIER_CHECK(t.extent && t.extent.device < options_.device_count, "device {} of {}", t.extent.device,
             options_.device_count);
  TIER_CHECK(t.extent.scattered == !t.runs.empty(), "{} runs", t.runs.size());
  uint32_t pages = 0;
  for (const base::PageRun run : RunsOf(t)) {
    TIER_CHECK(run.pages != 0 && run.page + run.pages <= kPagesPerBlock, "page {} + {}", run.page, run.pages);
    pages += run.pages;
  }
  TIER_CHECK(pages == t.extent.run.pages, "{} pages in runs of {}", t.extent.run.pages, pages);
  TIER_CHECK(t.length != 0 && t.length <= t.extent.run.size_bytes(), "length {} in {}", t.length,
             t.extent.run.size_bytes());
  uint64_t length = 0;
  ForEachMemoryRun(t, IoBytes(t), [&](WindowIndex index, std::span<const std::byte> memory) {
    const auto window = windows_.find(Value(index));
    TIER_CHECK(window != windows_.end(), "window {} is not announced", Value(index));
    const std::byte* begin = window->second.address;
    TIER_CHECK(memory.data() >= begin && memory.data() + memory.size() <= begin + window->second.size &&
                   static_cast<uint64_t>(memory.data() - begin) % kPageSize == 0,
               "memory at {} + {} of a window of {}", memory.data() - begin, memory.size(), window->second.size);
    length += memory.size();
  });
  TIER_CHECK(length == IoBytes(t), "{} bytes of memory for {}", length, IoBytes(t));
  for (const auto* list : {&started_, &submitted_}) {
    for (const Flight& other : *list) {
      const bool both_read = t.direction == Direction::kRead && other.transfer.direction == Direction::kRead;
      const bool both_write = t.direction == Direction::kWrite && other.transfer.direction == Direction::kWrite;
      TIER_CHECK(both_read || !ExtentsMeet(t, other.transfer), "transfers {} and {} share an extent", t.cookie,
                 other.transfer.cookie);
      TIER_CHECK(both_write || !MemoryMeets(t, other.transfer), "transfers {} and {} share memory", t.cookie,
                 other.transfer.cookie);
    }
  }
}

void FakeTransferPort::Start(const Transfer& transfer) {
  CheckStart(transfer);
  started_.push_back({.transfer = transfer, .sequence = sequence_++});
}

std::vector<FakeTransferPort::Move> FakeTransferPort::moves() const {
  std::vector<Move> moves;
  for (const auto* list : {&started_, &submitted_}) {
    for (const Flight& flight : *list) {
      const Transfer& t = flight.transfer;
      std::vector<base::PageRun> memory;
      ForEachMemoryRun(t, IoBytes(t), [&](WindowIndex index, std::span<const std::byte> bytes) {
        const auto page = static_cast<uint64_t>(bytes.data() - windows_.at(Value(index)).address) / kPageSize;
        const uint64_t block = Value(index) * (kWindowSizeMax / kBlockSize) + page / kPagesPerBlock;
        memory.push_back({.block = static_cast<uint32_t>(block),
                          .page = static_cast<uint16_t>(page % kPagesPerBlock),
                          .pages = static_cast<uint16_t>(bytes.size() / kPageSize)});
      });
      moves.push_back({.cookie = t.cookie,
                       .submitted = list == &submitted_,
                       .direction = t.direction,
                       .extent = t.extent,
                       .runs = {RunsOf(t).begin(), RunsOf(t).end()},
                       .memory = std::move(memory)});
    }
  }
  return moves;
}

void FakeTransferPort::Submit() {
  if (watch_) watch_();
  for (Flight& flight : started_) {
    const Transfer& t = flight.transfer;
    flight.due_turn =
        turn_ + options_.delay_turns_min + Draw(options_.delay_turns_max - options_.delay_turns_min + uint64_t{1});
    if (t.direction == Direction::kWrite) {
      flight.crc_at_submit = Checksum(t);
    } else {
      ForEachMemoryRun(t, IoBytes(t), [](WindowIndex, std::span<std::byte> bytes) {
        std::memset(bytes.data(), static_cast<int>(kPoison), bytes.size());
      });
    }
    ++traffic_[t.extent.device].inflight;
    submitted_.push_back(flight);
  }
  started_.clear();
}

void FakeTransferPort::Poll(std::vector<TransferResult>* results) {
  const uint64_t now = turn_++;
  std::vector<Flight> due;
  std::erase_if(submitted_, [&](const Flight& flight) {
    if (flight.due_turn > now || Hangs(flight.transfer.extent.device)) return false;
    due.push_back(flight);
    return true;
  });
  std::sort(due.begin(), due.end(), [](const Flight& a, const Flight& b) {
    return std::pair(a.due_turn, a.sequence) < std::pair(b.due_turn, b.sequence);
  });
  for (const Flight& flight : due) results->push_back(Complete(flight));
}

void FakeTransferPort::Probe(uint16_t device) {
  TIER_CHECK(std::ranges::count(probing_, device) == 0, "device {} is probed already", device);
  probing_.push_back(device);
  ++probes_;
}

void FakeTransferPort::TakeProbed(std::vector<ProbeResult>* results) {
  std::erase_if(probing_, [&](uint16_t device) {
    if (Hangs(device)) return false;
    results->push_back({.device = device, .error_number = devices_.at(device).error});
    return true;
  });
}

std::optional<FakeFault> FakeTransferPort::TakeFault(const Transfer& transfer) {
  bool punched = false;
  ForEachMemoryRun(transfer, IoBytes(transfer), [&](WindowIndex window, std::span<const std::byte>) {
    punched = punched || windows_.at(Value(window)).punched;
  });
  if (punched) return FakeFault{transfer.direction, TransferOutcome::kWindowFault, EFAULT};
  const DeviceFault& device = devices_[transfer.extent.device];
  const bool write = transfer.direction == Direction::kWrite;
  if (const int error = write && device.write_error != 0 ? device.write_error : device.error; error != 0) {
    return FakeFault{transfer.direction, TransferOutcome::kDeviceError, error};
  }
  for (const BadExtent& bad : bad_extents_) {
    const std::optional<uint32_t> at = FailedAt(transfer, bad.extent);
    if (at) return FakeFault{transfer.direction, bad.outcome, EIO, *at};
  }
  const auto scripted = std::find_if(scripted_.begin(), scripted_.end(),
                                     [&](const FakeFault& fault) { return fault.direction == transfer.direction; });
  if (scripted != scripted_.end()) {
    const FakeFault fault = *scripted;
    scripted_.erase(scripted);
    return fault;
  }
  for (const auto& [fault, per_million] : rates_) {
    if (fault.direction == transfer.direction && Draw(1'000'000) < per_million) return fault;
  }
  return std::nullopt;
}

TransferResult FakeTransferPort::Complete(const Flight& flight) {
  const Transfer& t = flight.transfer;
  DeviceTraffic& traffic = traffic_[t.extent.device];
  --traffic.inflight;
  if (const auto fault = TakeFault(t); fault && fault->outcome != TransferOutcome::kDone) {
    ++traffic.errors;
    return {.cookie = t.cookie,
            .outcome = fault->outcome,
            .error_number = fault->error_number,
            .device_offset = t.extent.run.offset_bytes(),
            .failed_at = fault->failed_at};
  }
  return t.direction == Direction::kWrite ? CompleteWrite(flight) : CompleteRead(flight);
}

void FakeTransferPort::NoteRequest(const Transfer& t) {
  LatencyFigures& figures =
      latency_[t.extent.device].figures[static_cast<size_t>(t.direction)][static_cast<size_t>(t.purpose)];
  ++figures.requests[0];
  figures.bytes += IoBytes(t);
}

TransferResult FakeTransferPort::CompleteWrite(const Flight& flight) {
  const Transfer& t = flight.transfer;
  if (Checksum(t) != flight.crc_at_submit) ++memory_changes_;
  ForEachPart(t, PagesOf(t), [this](Extent e, const std::byte* memory, uint32_t n) { disk_->Write(e, memory, n); });
  traffic_[t.extent.device].written_bytes += IoBytes(t);
  ++traffic_[t.extent.device].write_requests;
  NoteRequest(t);
  return {.cookie = t.cookie, .crc = flight.crc_at_submit, .device_offset = t.extent.run.offset_bytes()};
}

TransferResult FakeTransferPort::CompleteRead(const Flight& flight) {
  const Transfer& t = flight.transfer;
  ForEachPart(t, PagesOf(t), [this](Extent e, std::byte* memory, uint32_t n) { disk_->Read(e, memory, n); });
  traffic_[t.extent.device].read_bytes += IoBytes(t);
  ++traffic_[t.extent.device].read_requests;
  NoteRequest(t);
  const uint32_t crc = Checksum(t);
  return {.cookie = t.cookie,
          .outcome = crc == t.crc ? TransferOutcome::kDone : TransferOutcome::kCorrupt,
          .crc = crc,
          .device_offset = t.extent.run.offset_bytes()};
}

void FakeTransferPort::SetDelay(uint32_t turns_min, uint32_t turns_max) {
  TIER_CHECK(turns_min <= turns_max, "delay {} … {}", turns_min, turns_max);
  options_.delay_turns_min = turns_min;
  options_.delay_turns_max = turns_max;
}

void FakeTransferPort::FailNext(FakeFault fault, uint32_t count) { scripted_.insert(scripted_.end(), count, fault); }

void FakeTransferPort::SetFaultRate(FakeFault fault, uint32_t per_million) {
  std::erase_if(rates_, [&](const auto& rate) {
    return rate.first.direction == fault.direction && rate.first.outcome == fault.outcome;
  });
  if (per_million != 0) rates_.emplace_back(fault, per_million);
}

void FakeTransferPort::FailExtent(Extent extent, TransferOutcome outcome) { bad_extents_.push_back({extent, outcome}); }

void FakeTransferPort::PunchWindow(WindowIndex window) { windows_.at(Value(window)).punched = true; }

void FakeTransferPort::Crash() {
  for (const Flight& flight : submitted_) {
    const Transfer& t = flight.transfer;
    if (t.direction == Direction::kRead) continue;
    const auto landed = static_cast<uint32_t>(Draw(PagesOf(t) + uint64_t{1}));
    ForEachPart(t, landed, [this](Extent e, const std::byte* memory, uint32_t n) { disk_->Write(e, memory, n); });
  }
  started_.clear();
  submitted_.clear();
  windows_.clear();
  removals_.clear();
  probing_.clear();
  for (DeviceTraffic& traffic : traffic_) traffic.inflight = 0;
}

}  // namespace tier::storage::testing

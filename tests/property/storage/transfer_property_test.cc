// Random transfers over a device with random faults: each ends once, a kDone write can be read back as it was, a kDone
// read holds what was written, and no fault ever looks like success.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "daemon/base/fault_guard.h"
#include "daemon/storage/checksum.h"
#include "daemon/storage/transfer_engine.h"
#include "tests/support/storage/fake_device.h"
#include "tests/support/storage/fake_transfer.h"
#include "tests/support/storage/scratch.h"

namespace tier::storage {
namespace {

constexpr WindowIndex kWindow{0};
constexpr uint64_t kDataOffset = kBlockSize;
constexpr uint32_t kBlocks = 2;
constexpr uint32_t kPagesMax = kBlocks * kPagesPerBlock;

using Runs = std::shared_ptr<const std::vector<base::PageRun>>;
using MemoryRuns = std::shared_ptr<const std::vector<MemoryRun>>;

// One address space of pages: page i of the window belongs to page i of the device, so that runs merge. A scattered
// transfer has its runs in reverse order there; one that is scattered in memory, those of its memory.
struct Stored {
  Runs runs;  // Null: it is not scattered.
  uint32_t length = 0;
  uint32_t crc = 0;
  std::vector<std::byte> content;
};

class Program {
 public:
  Program(TransferPort* port, std::span<std::byte> memory, uint64_t seed)
      : port_(port), memory_(memory), random_(seed) {}

  // One turn: some transfers on disjoint pages, all finished.
  void Turn(bool faults_expected) {
    std::map<uint64_t, Started> started;
    const int count = *rc::gen::inRange(1, 30);
    uint64_t page = *rc::gen::inRange<uint64_t>(0, 20);
    for (int i = 0; i < count && page < kPagesMax; ++i) {
      const auto stored = stored_.find(page);
      const bool read = stored != stored_.end() && *rc::gen::arbitrary<bool>();
      const uint32_t length = read ? stored->second.length : DrawLength(page);
      if (length == 0) break;
      const Runs runs = read ? stored->second.runs : DrawRuns(page, length);
      const MemoryRuns memory = DrawMemory(page, length);
      Transfer transfer = Make(page, length, runs, read ? Direction::kRead : Direction::kWrite);
      if (memory) transfer.memory_runs = *memory;
      transfer.memory = memory ? memory->front().memory : transfer.memory;
      if (!read) DropOverlaps(page, length);
      ForEachMemoryRun(transfer, length, [&](WindowIndex, std::span<std::byte> bytes) {
        if (read) {
          std::ranges::fill(bytes, std::byte{0x5a});
        } else {
          testing::FillRandom(bytes, random_());
        }
      });
      started[page] = {transfer, runs, memory};
      port_->Start(transfer);
      page += PagesFor(length) + (*rc::gen::weightedElement<uint64_t>({{3, 0}, {1, 1}, {1, 7}}));
    }
    Finish(started, faults_expected);
  }

 private:
  struct Started {
    Transfer transfer;
    Runs runs;
    MemoryRuns memory;
  };

  static base::PageRun RunAt(uint64_t page, uint64_t pages) {
    return {.block = static_cast<uint32_t>(page / kPagesPerBlock),
            .page = static_cast<uint16_t>(page % kPagesPerBlock),
            .pages = static_cast<uint16_t>(pages)};
  }

  static Runs DrawRuns(uint64_t page, uint32_t length) {
    const uint64_t pages = PagesFor(length);
    if (pages < 2 || !*rc::gen::arbitrary<bool>()) return nullptr;
    std::vector<base::PageRun> runs;
    for (uint64_t at = 0; at < pages; at += runs.back().pages) {
      runs.push_back(RunAt(page + at, *rc::gen::inRange<uint64_t>(1, std::min(pages - at, pages - 1) + 1)));
    }
    std::ranges::reverse(runs);
    return std::make_shared<const std::vector<base::PageRun>>(std::move(runs));
  }

  MemoryRuns DrawMemory(uint64_t page, uint32_t length) {
    const Runs runs = DrawRuns(page, length);
    if (!runs) return nullptr;
    std::vector<MemoryRun> memory;
    for (const base::PageRun run : *runs) {
      memory.push_back({.window = kWindow,
                        .memory = memory_.data() + run.offset_bytes(),
                        .length = static_cast<uint32_t>(run.size_bytes())});
    }
    return std::make_shared<const std::vector<MemoryRun>>(std::move(memory));
  }

  uint32_t DrawLength(uint64_t page) {
    const uint64_t room = std::min<uint64_t>(kPagesMax - page, kPagesPerBlock - page % kPagesPerBlock);
    const auto pages = *rc::gen::inRange<uint64_t>(1, std::min<uint64_t>(room, 64) + 1);
    return static_cast<uint32_t>(pages * kPageSize - *rc::gen::inRange<uint64_t>(0, kPageSize));
  }

  Transfer Make(uint64_t page, uint32_t length, const Runs& runs, Direction direction) {
    Extent extent{.run = runs ? runs->front() : RunAt(page, 0), .scattered = runs != nullptr};
    extent.run.pages = static_cast<uint16_t>(PagesFor(length));
    return {.cookie = page,
            .direction = direction,
            .extent = extent,
            .runs = runs ? std::span(*runs) : std::span<const base::PageRun>(),
            .window = kWindow,
            .memory = memory_.data() + page * kPageSize,
            .length = length,
            .crc = direction == Direction::kRead ? stored_.at(page).crc : 0};
  }

  void DropOverlaps(uint64_t page, uint32_t length) {
    std::erase_if(stored_, [&](const auto& entry) {
      return entry.first < page + PagesFor(length) && page < entry.first + PagesFor(entry.second.length);
    });
  }

  void Finish(std::map<uint64_t, Started> started, bool faults_expected) {
    port_->Submit();
    std::vector<TransferResult> results;
    while (port_->inflight() != 0) port_->Poll(&results);
    RC_ASSERT(results.size() == started.size());
    for (const TransferResult& result : results) {
      RC_ASSERT(started.contains(result.cookie));
      CheckResult(started.at(result.cookie), result, faults_expected);
      started.erase(result.cookie);
    }
    RC_ASSERT(started.empty());
  }

  void CheckResult(const Started& of, const TransferResult& result, bool faults_expected) {
    const Transfer& transfer = of.transfer;
    RC_ASSERT(faults_expected || result.outcome == TransferOutcome::kDone);
    if (result.outcome != TransferOutcome::kDone) return;
    std::vector<std::byte> now;
    ForEachMemoryRun(transfer, transfer.length, [&now](WindowIndex, std::span<const std::byte> bytes) {
      now.insert(now.end(), bytes.begin(), bytes.end());
    });
    if (transfer.direction == Direction::kWrite) {
      RC_ASSERT(result.crc == Crc32c(now));
      stored_[transfer.cookie] = {.runs = of.runs, .length = transfer.length, .crc = result.crc, .content = now};
    } else {
      RC_ASSERT(now == stored_.at(transfer.cookie).content);
    }
  }

  TransferPort* port_;
  std::span<std::byte> memory_;
  std::mt19937_64 random_;
  std::map<uint64_t, Stored> stored_;  // By first page: what was acknowledged as written.
};

testing::IoFault DrawFault() {
  testing::IoFault fault;
  fault.direction = *rc::gen::element(Direction::kRead, Direction::kWrite);
  switch (*rc::gen::inRange(0, 6)) {
    case 0: fault.error = EIO; break;
    case 1: fault.error = EAGAIN; break;
    case 2: fault.error = ENOSPC; break;
    case 3: fault.short_bytes = *rc::gen::inRange<uint32_t>(0, 100'000); break;
    case 4: fault.flip_at = 0; break;
    default: fault.error = EFAULT; break;
  }
  // A flip of what a write stores is a scribbling device: only a later read can tell, so it is not for this model.
  if (fault.flip_at) fault.direction = Direction::kRead;
  return fault;
}

TEST(TransferEngineProperty, NeverTakesAFaultForSuccess) {
  const auto workers = base::Workers::Start(1, "property").value();
  const testing::WindowMemory memory(kPagesMax * kPageSize);
  const bool holds = rc::check("transfers under faults", [&](uint64_t seed) {
    CompletionSignal signal;
    testing::FakeDevice device(kDataOffset + kBlocks * kBlockSize);
    TransferEngineOptions options;
    options.place = {.data_offset = kDataOffset, .capacity_bytes = kBlocks * kBlockSize};
    options.io_depth = *rc::gen::inRange<uint32_t>(1, 9);
    options.inflight_max = 64;
    options.windows_max = 1;
    options.inline_bytes_max = *rc::gen::element<uint32_t>(0, 32 * 1024, UINT32_MAX);
    TransferEngine engine(options, device, *workers, signal);
    engine.AddWindow(kWindow, memory.data(), memory.size());
    device.SetNewestFirst(*rc::gen::arbitrary<bool>());
    device.CompleteAtMost(*rc::gen::element<size_t>(1, 2, SIZE_MAX));
    Program program(&engine, memory.bytes(), seed);
    const auto turns = *rc::gen::inRange(1, 12);
    for (int turn = 0; turn < turns; ++turn) {
      const auto faults = *rc::gen::weightedElement<int>({{2, 0}, {1, 1}, {1, 4}});
      for (int i = 0; i < faults; ++i) device.Inject(DrawFault());
      program.Turn(device.unspent_faults() != 0);
    }
    engine.RemoveWindow(kWindow);
  });
  EXPECT_TRUE(holds) << "RapidCheck printed the seed: replay with RC_PARAMS=\"reproduce=…\"";
}

// The simulator's stand-in must keep the same promises.
TEST(FakeTransferPortProperty, KeepsThePromisesOfTheRealOne) {
  const testing::WindowMemory memory(kPagesMax * kPageSize);
  const bool holds = rc::check("fake transfers", [&](uint64_t seed) {
    const auto delay = *rc::gen::inRange<uint32_t>(0, 4);
    testing::FakeTransferPort port({.seed = seed, .delay_turns_max = delay});
    port.AddWindow(kWindow, memory.data(), memory.size());
    port.SetFaultRate({.direction = Direction::kWrite, .outcome = TransferOutcome::kNoSpace}, 100'000);
    port.SetFaultRate({.direction = Direction::kRead, .outcome = TransferOutcome::kDeviceError}, 100'000);
    Program program(&port, memory.bytes(), seed);
    const auto turns = *rc::gen::inRange(1, 12);
    for (int turn = 0; turn < turns; ++turn) program.Turn(true);
    RC_ASSERT(port.memory_changes() == 0u);
    port.RemoveWindow(kWindow);
  });
  EXPECT_TRUE(holds) << "RapidCheck printed the seed: replay with RC_PARAMS=\"reproduce=…\"";
}

}  // namespace
}  // namespace tier::storage

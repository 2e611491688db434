// What is accepted can be read: random programs of jobs that create, write again and free tensors, over one to four
// devices, larger and smaller than RAM, until these are full. A refusal comes where the ledger says so, and at once;
// everything else is granted.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/tiering/sanitizer_divisor.h"
#include "tests/support/tiering/world.h"

namespace tier::tiering::testing {
namespace {

constexpr uint64_t kPiece = kBlockSize;
// No transfer of the fakes takes any time: what waits longer than this waits for nothing.
constexpr base::Duration kAtOnce = std::chrono::seconds(5);

struct Stored {
  uint64_t size = 0;
  uint64_t seed = 0;
};
struct JobModel {
  SessionId session{};
  JobOptions terms;
  uint64_t bytes = 0;  // Of its tensors, in whole pages.
  std::map<uint64_t, Stored> tensors;
};

class Program {
 public:
  explicit Program(uint64_t seed) : random_(seed), world_(Draw()) {
    for (uint64_t jobs = Pick(1, 3); jobs != 0; --jobs) AddJob();
  }

  void Go() {
    const uint64_t newcomer = Pick(0, 160);  // When a job more is opened, which takes its part of RAM from the others.
    for (uint32_t step = 0; step < 80 && !::testing::Test::HasFailure(); ++step) {
      if (step == newcomer && !SmallerThanRam()) AddJob();
      Step(jobs_[Pick(0, jobs_.size() - 1)]);
    }
    for (uint32_t round = 0; round < 2; ++round) {
      for (JobModel& job : jobs_) {
        for (const auto& [tensor, stored] : job.tensors) CheckOne(job, tensor, stored);
      }
    }
  }

 private:
  uint64_t Pick(uint64_t low, uint64_t high) { return low + random_() % (high - low + 1); }

  void AddJob() {
    const JobId id{100 + jobs_.size()};
    JobModel& job = jobs_.emplace_back();
    job.terms.uid = static_cast<uint32_t>(Pick(1, 2));
    if (Pick(0, 2) == 0) job.terms.ssd_limit_bytes = Pick(1, 40) * kMiB;
    if (Pick(0, 2) == 0) job.terms.ssd_guarantee_bytes = Pick(1, 8) * kMiB;
    if (job.terms.ssd_limit_bytes != 0) {
      job.terms.ssd_guarantee_bytes = std::min(job.terms.ssd_guarantee_bytes, job.terms.ssd_limit_bytes);
    }
    if (!world_.engine->OpenJob(id, job.terms).has_value()) job.terms.ssd_guarantee_bytes = 0;
    world_.engine->CloseJob(id, "tried", true);
    world_.Turns(3);
    job.session = world_.Open(job.terms);
  }

  // Then a newcomer's part of RAM may be more than SSD devices can make up for (docs/decisions/0020).
  bool SmallerThanRam() const {
    const uint64_t blocks = uint64_t{world_.options.device_blocks} * world_.options.transfers.device_count;
    return blocks * kBlockSize < world_.options.windows.arena_max_bytes;
  }

  // SSD devices that hold more than RAM, and less.
  WorldOptions Draw() {
    WorldOptions options{.windows = {.window_size = 2 * kMiB,
                                     .arena_max_bytes = (Pick(0, 1) == 0 ? Pick(4, 8) : Pick(4, 32)) * 2 * kMiB},
                         .transfers = {.seed = random_(), .device_count = static_cast<uint16_t>(Pick(1, 4))},
                         .device_blocks = static_cast<uint32_t>(Pick(0, 1) == 0 ? Pick(4, 16) : Pick(1, 6)),
                         .returns_windows = true};
    options.windows.windows_max = 64;
    return options;
  }

  void Step(JobModel& job) {
    const uint64_t what = Pick(0, 9);
    if (what < 5 || job.tensors.empty()) return CreateOne(job);
    auto at = job.tensors.begin();
    std::advance(at, Pick(0, job.tensors.size() - 1));
    if (what < 7) return CheckOne(job, at->first, at->second);
    if (what == 7) return RewriteOne(job, at->first, &at->second);
    ASSERT_EQ(world_.Free(job.session, at->first).code, Code::kOk);
    job.bytes -= AlignUp(at->second.size, kPageSize);
    job.tensors.erase(at);
  }

  // Small ones leave holes, large ones fill the devices. Holes in a RAM of a few windows are a large part of it.
  uint64_t DrawSize() {
    if (SmallerThanRam()) return Pick(1, 2) * kPiece;
    switch (Pick(0, 3)) {
      case 0: return Pick(1, 8 * kPageSize);
      case 1: return Pick(1, kPiece);
      default: return Pick(1, 2) * kPiece - Pick(0, 1) * Pick(0, 5000);
    }
  }

  void CreateOne(JobModel& job) {
    const uint64_t tensor = next_++;
    const Stored stored{.size = DrawSize(), .seed = random_()};
    const base::TimePoint asked = world_.now;
    const Answer created = world_.Create(job.session, tensor, stored.size);
    ASSERT_LE(world_.now - asked, kAtOnce) << created.detail;
    if (created.code == Code::kNoSpace) {
      if (SmallerThanRam()) return;  // A job's part of RAM is windows: not all of it fits what it asks for.
      ASSERT_GT(job.bytes + AlignUp(stored.size, kPageSize), created.error.limit) << created.detail;
      ASSERT_GE(created.error.limit + kPageSize, job.terms.ssd_guarantee_bytes) << created.detail;
      return;
    }
    ASSERT_EQ(created.code, Code::kOk) << created.detail;
    world_.Fill(created.spans, tensor, stored.seed);
    ASSERT_EQ(world_.Release(job.session, World::LeaseOf(created)).code, Code::kOk);
    job.tensors.emplace(tensor, stored);
    job.bytes += AlignUp(stored.size, kPageSize);
  }

  void RewriteOne(JobModel& job, uint64_t tensor, Stored* stored) {
    stored->seed = random_();
    const base::TimePoint asked = world_.now;
    const Answer rewritten = world_.Rewrite(job.session, tensor, stored->seed);
    ASSERT_EQ(rewritten.code, Code::kOk) << rewritten.detail;
    ASSERT_LE(world_.now - asked, kAtOnce);
  }

  void CheckOne(JobModel& job, uint64_t tensor, const Stored& stored) {
    const base::TimePoint asked = world_.now;
    ASSERT_EQ(world_.Check(job.session, tensor, stored.seed), Code::kOk) << "tensor " << tensor;
    ASSERT_LE(world_.now - asked, kAtOnce) << "tensor " << tensor;
  }

  std::mt19937_64 random_;
  World world_;
  std::vector<JobModel> jobs_;
  uint64_t next_ = 1;
};

// TIERD_ACCEPTED_SEEDS=COUNT, TIERD_ACCEPTED_SEED=FIRST: more of them, or one again.
uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

TEST(Accepted, EverythingAcceptedIsReadableAtOnce) {
  const uint64_t first = FromEnvironment("TIERD_ACCEPTED_SEED", 1);
  const uint64_t count = FromEnvironment("TIERD_ACCEPTED_SEEDS", 40 / kSanitizerDivisor);
  for (uint64_t seed = first; seed < first + count; ++seed) {
    SCOPED_TRACE("TIERD_ACCEPTED_SEED=" + std::to_string(seed) + " TIERD_ACCEPTED_SEEDS=1");
    Program(seed).Go();
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace tier::tiering::testing

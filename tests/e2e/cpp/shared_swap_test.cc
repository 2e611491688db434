// Swaps of a tensor that several sessions of a job share.
#include <algorithm>
#include <atomic>
#include <optional>
#include <thread>

#include "tests/e2e/cpp/real_daemon.h"

namespace tier::daemon_process {
namespace {

class SharedSwap : public RealDaemon {
 protected:
  void SetUp() override {
    Start({.arena = "32MiB", .ssd_file_size = "256MiB"});
    writer_.emplace(Options());
    reader_.emplace(OptionsOfJobOf(*writer_));
    shared_.flags = TIER_SHARED;
  }
  tier_copy_options shared_ = TIER_COPY_OPTIONS_INIT;
  void TearDown() override {
    writer_.reset();
    reader_.reset();
    RealDaemon::TearDown();
  }
  std::optional<tier::Client> writer_, reader_;
};

// No step follows it: what a swap_out has written is finished when the call has ended.
TEST_F(SharedSwap, OfAPartInOneRangeIsFinishedWithItsCall) {
  auto content = Random(6 * kMiB, 1);
  writer_->SwapOut(1, content, &shared_).Wait();
  const auto part = Random(kMiB, 2);
  std::ranges::copy(part, content.begin() + 3 * kMiB);
  tier_copy_options of_part = shared_;
  of_part.whole = 0;
  of_part.offset = 3 * kMiB;
  writer_->SwapOut(1, part, &of_part).Wait();
  writer_.reset();
  EXPECT_EQ(reader_->Tensor(1, TIER_SHARED).torn, 0);
  std::vector<std::byte> back(content.size());
  EXPECT_EQ(CodeOf([&] { reader_->SwapIn(1, back, &shared_).Wait(); }), TIER_OK) << tier_last_error();
  EXPECT_TRUE(back == content);
}

TEST_F(SharedSwap, ThatMeetsOthersOfTheSameTensorDeliversOneContent) {
  constexpr int kRounds = 30;
  std::vector<std::byte> written(12 * kMiB + 5), read(written.size());
  writer_->SwapOut(1, written, &shared_).Wait();
  std::atomic<bool> writing{true};
  std::thread writer([&] {
    for (int round = 1; round <= kRounds; ++round) {
      std::ranges::fill(written, static_cast<std::byte>(round));
      EXPECT_EQ(CodeOf([&] { writer_->SwapOut(1, written, &shared_).Wait(); }), TIER_OK) << tier_last_error();
    }
    writing = false;
  });
  bool last = false;
  do {
    last = !writing;  // Once more behind the last of them.
    std::string sentence;
    EXPECT_EQ(CodeOf([&] { reader_->SwapIn(1, read, &shared_).Wait(); }, &sentence), TIER_OK) << sentence;
    EXPECT_EQ(std::ranges::count(read, read.front()), std::ssize(read)) << "a mixture of two contents";
  } while (!last && !HasFailure());
  writer.join();
  EXPECT_EQ(read.front(), static_cast<std::byte>(kRounds));
}

}  // namespace
}  // namespace tier::daemon_process

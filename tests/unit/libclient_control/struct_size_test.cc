// Callers compiled with older and newer headers: their structs are filled as far as they go, and a struct without a
// size is refused before the call has taken effect.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

#include "tests/support/control/grpc_fixture.h"
#include "tier/control.h"

namespace tier::control {
namespace {

constexpr std::byte kUntouched{0xa5};
constexpr size_t kJobSizes[] = {offsetof(tier_control_job, guarantee_bytes), sizeof(tier_control_job),
                                sizeof(tier_control_job) + 3 * sizeof(uint64_t)};

// Structs of the caller's version, `size` bytes each, with a guard behind them.
class CallersStructs {
 public:
  CallersStructs(size_t size, size_t count) : size_(size), bytes_((count + 1) * size, kUntouched) {
    for (size_t i = 0; i < count; ++i) std::memcpy(&bytes_[i * size], &size, sizeof size);
  }
  template <typename Struct>
  Struct* as() {
    return reinterpret_cast<Struct*>(bytes_.data());
  }
  // Field by field: a short struct must not be read as a whole.
  size_t size_of(size_t index) const { return Read<size_t>(index, 0); }
  std::string text(size_t index, size_t offset) const {
    return reinterpret_cast<const char*>(&bytes_[index * size_ + offset]);
  }
  uint64_t number(size_t index, size_t offset) const { return Read<uint64_t>(index, offset); }
  // That nothing was written from `offset` within struct `index` up to the next, or the guard's end.
  bool untouched(size_t index, size_t offset = 0) const {
    const auto end = bytes_.begin() + static_cast<long>((index + 1) * size_);
    return std::all_of(bytes_.begin() + static_cast<long>(index * size_ + std::min(offset, size_)), end,
                       [](std::byte byte) { return byte == kUntouched; });
  }

 private:
  template <typename Value>
  Value Read(size_t index, size_t offset) const {
    Value value;
    std::memcpy(&value, &bytes_[index * size_ + offset], sizeof value);
    return value;
  }
  size_t size_;
  std::vector<std::byte> bytes_;
};

class StructSizeTest : public test::GrpcFixture {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(GrpcFixture::SetUp());
    ASSERT_EQ(tier_control_connect(options_.control_socket.c_str(), nullptr, &control_), TIER_OK)
        << tier_control_last_error();
  }
  void TearDown() override {
    tier_control_close(control_);
    GrpcFixture::TearDown();
  }
  int Open(const char* name, tier_control_job* job) {
    tier_control_open_options open = TIER_CONTROL_OPEN_OPTIONS_INIT;
    open.name = name;
    open.guarantee_bytes = 77;
    return tier_control_open_job(control_, &open, job);
  }

  tier_control* control_ = nullptr;
};

TEST_F(StructSizeTest, AJobIsFilledAsFarAsTheCallersStructGoes) {
  for (const size_t size : kJobSizes) {
    const std::string name = "of" + std::to_string(size);
    CallersStructs job(size, 1);
    ASSERT_EQ(Open(name.c_str(), job.as<tier_control_job>()), TIER_OK) << tier_control_last_error();
    EXPECT_EQ(job.text(0, offsetof(tier_control_job, name)), name);
    EXPECT_EQ(job.size_of(0), size);
    EXPECT_TRUE(job.untouched(0, sizeof(tier_control_job)) && job.untouched(1));
    const uint64_t guarantee = 99;
    ASSERT_EQ(tier_control_set_job(control_, name.c_str(), &guarantee, nullptr, job.as<tier_control_job>()), TIER_OK);
    if (size >= sizeof(tier_control_job)) {
      EXPECT_EQ(job.number(0, offsetof(tier_control_job, guarantee_bytes)), 99u);
    }
    EXPECT_TRUE(job.untouched(0, sizeof(tier_control_job)) && job.untouched(1));
  }
}

TEST_F(StructSizeTest, AListStepsByTheCallersStruct) {
  const char* const names[] = {"first", "second", "third"};
  tier_control_job job = TIER_CONTROL_JOB_INIT;
  for (const char* name : names) ASSERT_EQ(Open(name, &job), TIER_OK) << tier_control_last_error();
  for (const size_t size : kJobSizes) {
    CallersStructs jobs(size, 4);
    size_t count = 0;
    ASSERT_EQ(tier_control_list_jobs(control_, jobs.as<tier_control_job>(), 4, &count), TIER_OK)
        << tier_control_last_error();
    ASSERT_EQ(count, 3u);
    for (size_t i = 0; i < count; ++i) {
      EXPECT_EQ(jobs.text(i, offsetof(tier_control_job, name)), names[i]);
      EXPECT_EQ(jobs.size_of(i), size);
      EXPECT_TRUE(jobs.untouched(i, sizeof(tier_control_job)));
    }
    EXPECT_TRUE(jobs.untouched(3, sizeof(size_t)) && jobs.untouched(4)) << "of structs of " << size << " bytes";
  }
}

TEST_F(StructSizeTest, AnEventIsFilledAsFarAsTheCallersStructGoes) {
  tier_control_watch* watch = nullptr;
  ASSERT_EQ(tier_control_watch_start(control_, &watch), TIER_OK) << tier_control_last_error();
  api_.Emit({.sequence = 5, .unix_time_ms = 1, .kind = "torn", .job = "j", .message = "one piece"});
  tier_control_event unset{};
  EXPECT_EQ(tier_control_watch_next(watch, 10'000, &unset), TIER_INVALID);  // And the event is still to come.
  CallersStructs event(sizeof(tier_control_event) + sizeof(uint64_t), 1);
  EXPECT_EQ(tier_control_watch_next(watch, 10'000, event.as<tier_control_event>()), TIER_OK);
  EXPECT_EQ(event.text(0, offsetof(tier_control_event, message)), "one piece");
  EXPECT_TRUE(event.untouched(0, sizeof(tier_control_event)) && event.untouched(1));
  api_.Emit({.sequence = 6, .unix_time_ms = 1, .kind = "torn", .job = "j", .message = "two pieces", .uid = 7});
  CallersStructs before(offsetof(tier_control_event, has_uid), 1);  // Of the version without the user.
  EXPECT_EQ(tier_control_watch_next(watch, 10'000, before.as<tier_control_event>()), TIER_OK);
  EXPECT_EQ(before.text(0, offsetof(tier_control_event, message)), "two pieces");
  EXPECT_TRUE(before.untouched(1));
  tier_control_watch_stop(watch);
}

TEST_F(StructSizeTest, AnEventHasTheUserOfItsJob) {
  tier_control_watch* watch = nullptr;
  ASSERT_EQ(tier_control_watch_start(control_, &watch), TIER_OK) << tier_control_last_error();
  api_.Emit({.sequence = 5, .unix_time_ms = 1, .kind = "degraded", .job = "", .message = ""});
  api_.Emit({.sequence = 6, .unix_time_ms = 1, .kind = "torn", .job = "j", .message = "", .uid = 0});
  const std::string owner(63, 'o');  // The longest name.
  constexpr uint32_t kOfOwner = 4'026'531'840;
  api_.Emit(
      {.sequence = 7, .unix_time_ms = 1, .kind = "torn", .job = "j", .message = "", .uid = kOfOwner, .owner = owner});
  tier_control_event event = TIER_CONTROL_EVENT_INIT;
  ASSERT_EQ(tier_control_watch_next(watch, 10'000, &event), TIER_OK) << tier_control_last_error();
  EXPECT_EQ(event.has_uid, 0) << "of no job";
  ASSERT_EQ(tier_control_watch_next(watch, 10'000, &event), TIER_OK) << tier_control_last_error();
  EXPECT_TRUE(event.has_uid == 1 && event.uid == 0) << "root's";
  EXPECT_STREQ(event.owner, "");
  ASSERT_EQ(tier_control_watch_next(watch, 10'000, &event), TIER_OK) << tier_control_last_error();
  EXPECT_EQ(event.uid, kOfOwner);
  EXPECT_EQ(event.owner, owner);
  tier_control_watch_stop(watch);
}

TEST_F(StructSizeTest, AStructWithoutASizeIsRefusedBeforeTheCallTakesEffect) {
  tier_control_job job = TIER_CONTROL_JOB_INIT;
  ASSERT_EQ(Open("kept", &job), TIER_OK) << tier_control_last_error();
  const uint64_t guarantee = 99;
  size_t count = 0;
  for (const size_t wrong : {size_t{0}, sizeof(size_t), size_t{4097}}) {
    tier_control_job unset{};
    unset.struct_size = wrong;
    EXPECT_EQ(Open("never", &unset), TIER_INVALID);
    EXPECT_THAT(tier_control_last_error(), ::testing::HasSubstr("struct_size"));
    EXPECT_EQ(tier_control_set_job(control_, "kept", &guarantee, nullptr, &unset), TIER_INVALID);
    EXPECT_EQ(tier_control_list_jobs(control_, &unset, 1, &count), TIER_INVALID);
  }
  EXPECT_EQ(api_.opened.size(), 1u);
  EXPECT_EQ(api_.jobs.front().counters.guarantee_bytes, 77u);
}

TEST_F(StructSizeTest, OptionsOfOtherVersionsAreRead) {
  struct {
    tier_control_open_options known = TIER_CONTROL_OPEN_OPTIONS_INIT;
    uint64_t later = 1;
  } newer;
  newer.known.struct_size = sizeof newer;
  newer.known.name = "newer";
  tier_control_job job = TIER_CONTROL_JOB_INIT;
  EXPECT_EQ(tier_control_open_job(control_, &newer.known, &job), TIER_OK) << tier_control_last_error();
  tier_control_open_options older = TIER_CONTROL_OPEN_OPTIONS_INIT;
  older.struct_size = offsetof(tier_control_open_options, guarantee_bytes);
  older.name = "older";
  older.guarantee_bytes = 77;  // Beyond what it says it has.
  EXPECT_EQ(tier_control_open_job(control_, &older, &job), TIER_OK) << tier_control_last_error();
  EXPECT_EQ(api_.opened.back().guarantee_bytes, 0u);
}

}  // namespace
}  // namespace tier::control

// The file of reserved jobs follows the jobs: by what the file has, and until it has it.
#include "daemon/reservations.h"

#include <filesystem>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <boost/asio/io_context.hpp>

#include "tests/support/session/manual_clock.h"
#include "tests/support/session/temporary_directory.h"

namespace tier {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ReservationsTest : public ::testing::Test {
 protected:
  // A second passes. True: a list was written, or could not be.
  bool Note() {
    reservations_.Note();
    if (io_.poll_one() == 0) return false;
    EXPECT_EQ(io_.run_one_for(std::chrono::seconds(20)), 1U) << "the writer answers";
    return true;
  }
  void Change(std::vector<session::Reservation> reservations) {
    list_ = {.version = list_.version + 1, .reservations = std::move(reservations)};
  }
  std::vector<session::Reservation> Stored() const { return session::LoadReservations(path_).reservations; }

  session::testing::TemporaryDirectory directory_;
  const std::string path_ = directory_.path() + "/there/reservations";
  const std::vector<session::Reservation> one_ = {{.uid = 1, .name = "one", .named = false, .terms = {}}};
  session::ReservationFile file_{path_, std::vector<session::Reservation>()};
  session::ReservationList list_;
  session::testing::SharedClock clock_;
  std::vector<std::string> warnings_;
  boost::asio::io_context io_;
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_{io_.get_executor()};
  int built_ = 0;  // Lists that were asked for.
  Reservations reservations_{{.io = io_,
                              .file = &file_,
                              .version = [this] { return list_.version; },
                              .now =
                                  [this] {
                                    ++built_;
                                    return list_;
                                  },
                              .clock = clock_,
                              .warn = [this](const std::string& text) { warnings_.push_back(text); }}};
};

TEST_F(ReservationsTest, AreWrittenWhereTheFileHasOthers) {
  ASSERT_TRUE(std::filesystem::create_directory(directory_.path() + "/there"));
  EXPECT_FALSE(Note()) << "none, and the file has none";
  Change(one_);
  EXPECT_TRUE(Note());
  EXPECT_EQ(Stored(), one_);
  EXPECT_FALSE(Note()) << "it has them";
}

// Who reserves has the list written too: what was noted last is not what the file has.
TEST_F(ReservationsTest, AreComparedWithTheFileAndNotWithWhatWasNotedLast) {
  ASSERT_TRUE(std::filesystem::create_directory(directory_.path() + "/there"));
  EXPECT_FALSE(Note());
  Change(one_);
  ASSERT_TRUE(file_.Save(list_));
  Change({});
  EXPECT_TRUE(Note()) << "the job is gone within the same second";
  EXPECT_THAT(Stored(), IsEmpty());
}

// The engine thread looks at each job for a list.
TEST_F(ReservationsTest, AreAskedForOnlyWhereSomethingHasChanged) {
  ASSERT_TRUE(std::filesystem::create_directory(directory_.path() + "/there"));
  for (int second = 0; second < 3; ++second) EXPECT_FALSE(Note());
  EXPECT_EQ(built_, 1) << "what the file had at the start is compared once";
  Change(one_);
  EXPECT_TRUE(Note());
  for (int second = 0; second < 3; ++second) EXPECT_FALSE(Note());
  EXPECT_EQ(built_, 2);
  Change({});
  Change(one_);
  for (int second = 0; second < 3; ++second) EXPECT_FALSE(Note()) << "as before";
  EXPECT_EQ(built_, 3);
}

TEST_F(ReservationsTest, AWriteThatFailsIsToldOnceAndMadeAgain) {
  Change(one_);
  EXPECT_TRUE(Note());
  EXPECT_TRUE(Note()) << "again, though nothing has changed";
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("reserved jobs are not written down, and are tried again")));
  ASSERT_TRUE(std::filesystem::create_directory(directory_.path() + "/there"));
  EXPECT_TRUE(Note());
  EXPECT_EQ(Stored(), one_);
  EXPECT_FALSE(Note());
}

TEST_F(ReservationsTest, TheLastOnesAreWrittenAtTheEnd) {
  ASSERT_TRUE(std::filesystem::create_directory(directory_.path() + "/there"));
  Change(one_);
  reservations_.Finish();
  EXPECT_EQ(Stored(), one_);
}

TEST(ReservationsOfADaemonThatKeepsNothing, AreNotWritten) {
  boost::asio::io_context io;
  session::testing::SharedClock clock;
  Reservations reservations(
      {.io = io, .file = nullptr, .version = nullptr, .now = nullptr, .clock = clock, .warn = nullptr});
  reservations.Note();
  reservations.Finish();
  EXPECT_EQ(io.poll(), 0U);
}

}  // namespace
}  // namespace tier

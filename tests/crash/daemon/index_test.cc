// The index of manifests cut short under a running daemon: what it persists is refused, and nothing else is lost.
#include <unistd.h>

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/crash/daemon/daemon_process.h"
#include "tests/crash/daemon/trainer.h"

namespace tier::crash {
namespace {

using ::testing::HasSubstr;

TEST(Index, CutShortUnderARunningDaemonCostsItNoTensor) {
  ScratchDirectory scratch;
  DaemonProcess daemon(scratch);
  ASSERT_TRUE(daemon.WaitReady()) << daemon.Output();
  proto::Hello hello = session::testing::MakeHello("train");
  hello.named = 1;
  Trainer trainer(daemon, hello);
  EXPECT_EQ(trainer.Put(1, 8 * kMiB, 1).header.code, 0);
  const auto persisted = trainer.Ask(proto::Op::kPersist, {.tensor = 1});
  ASSERT_EQ(persisted.header.code, 0) << persisted.detail;
  ASSERT_EQ(::truncate((scratch / "data/index.mdb").c_str(), 0), 0);
  for (int i = 0; i < 2; ++i) {
    const auto refused = trainer.Ask(proto::Op::kPersist, {.tensor = 1});
    EXPECT_EQ(refused.header.code, static_cast<uint16_t>(Code::kIoError));
    EXPECT_THAT(refused.detail, HasSubstr("index.mdb was cut short"));
  }
  EXPECT_TRUE(trainer.Holds(1, 1));
  EXPECT_EQ(trainer.Put(2, 8 * kMiB, 2).header.code, 0);
  EXPECT_TRUE(trainer.Holds(2, 2));
  EXPECT_EQ(daemon.Stop(), 0) << daemon.Output();
}

}  // namespace
}  // namespace tier::crash

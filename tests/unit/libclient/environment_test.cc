#include "libclient/link/environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <map>

#include "proto/socket_places.h"
#include "tests/support/session/temporary_directory.h"

namespace tier::link {
namespace {

using ::testing::ElementsAre;

Lookup Environment(std::map<std::string, std::string> variables) {
  auto kept = std::make_shared<std::map<std::string, std::string>>(std::move(variables));
  return [kept](const char* name) -> const char* {
    const auto found = kept->find(name);
    return found == kept->end() ? nullptr : found->second.c_str();
  };
}

TEST(SocketCandidates, AGivenSocketStandsAlone) {
  EXPECT_THAT(SocketCandidates("/a", Environment({{"TIERD_SOCKET", "/b"}})), ElementsAre("/a"));
}

TEST(SocketCandidates, TheEnvironmentsSocketStandsAlone) {
  EXPECT_THAT(SocketCandidates("", Environment({{"TIERD_SOCKET", "/b"}, {"XDG_RUNTIME_DIR", "/r"}})),
              ElementsAre("/b"));
}

TEST(SocketCandidates, ADirectoryStandsForTheSocketInIt) {
  const session::testing::TemporaryDirectory folder;
  const std::string socket = folder.path() + "/tierd.sock";
  for (const std::string& directory : {folder.path(), folder.path() + "/"}) {
    EXPECT_THAT(SocketCandidates(directory, Environment({})), ElementsAre(socket));
    EXPECT_THAT(SocketCandidates("", Environment({{"TIERD_SOCKET", directory}})), ElementsAre(socket));
  }
}

TEST(SocketCandidates, TheUsersDirectoryComesBeforeTheSystems) {
  const std::string own = proto::UserSocketDirectory(::geteuid()) + "/tierd.sock";
  EXPECT_THAT(SocketCandidates("", Environment({{"XDG_RUNTIME_DIR", "/run/user/7"}})),
              ElementsAre("/run/user/7/tierd/tierd.sock", own, "/run/tierd/tierd.sock"));
  EXPECT_THAT(SocketCandidates("", Environment({})), ElementsAre(own, "/run/tierd/tierd.sock"));
}

TEST(JobIdentity, StaysOpenWithoutALauncher) {
  const auto identity = CompleteIdentity({}, Environment({}));
  EXPECT_EQ(identity.name, "");
  EXPECT_EQ(identity.token, "");
  EXPECT_EQ(identity.launch, "");
  EXPECT_EQ(identity.rank, -1);
  EXPECT_EQ(identity.world_size, 0);
}

std::map<std::string, std::string> Torchrun(const std::string& rank, const std::string& restart = "0") {
  return {{"TORCHELASTIC_RUN_ID", "run 7!"},       {"MASTER_ADDR", "node1"}, {"MASTER_PORT", "29500"},
          {"TORCHELASTIC_RESTART_COUNT", restart}, {"RANK", rank},           {"WORLD_SIZE", "2"}};
}

TEST(JobIdentity, RanksOfOneTorchrunMeetInOneJob) {
  const auto first = CompleteIdentity({}, Environment(Torchrun("0")));
  const auto second = CompleteIdentity({}, Environment(Torchrun("1")));
  EXPECT_EQ(first.name, second.name);
  EXPECT_EQ(first.launch, second.launch);
  EXPECT_NE(first.launch, "");
  EXPECT_EQ(first.token, "") << "the daemon makes it";
  EXPECT_EQ(first.name.find_first_of(" !"), std::string::npos);
  EXPECT_EQ(first.rank, 0);
  EXPECT_EQ(second.rank, 1);
  EXPECT_EQ(second.world_size, 2);
}

TEST(JobIdentity, ARestartIsAnotherJob) {
  const auto before = CompleteIdentity({}, Environment(Torchrun("0", "0")));
  const auto after = CompleteIdentity({}, Environment(Torchrun("0", "1")));
  EXPECT_NE(before.name, after.name);
  EXPECT_NE(before.launch, after.launch);
}

TEST(JobIdentity, SlurmStepsAreJobs) {
  const auto a = CompleteIdentity({}, Environment({{"SLURM_JOB_ID", "12"}, {"SLURM_STEP_ID", "0"}}));
  const auto b = CompleteIdentity({}, Environment({{"SLURM_JOB_ID", "12"}, {"SLURM_STEP_ID", "1"}}));
  EXPECT_EQ(a.name, "slurm-12.0");
  EXPECT_NE(a.launch, b.launch);
}

TEST(JobIdentity, WhatIsGivenOutranksWhatIsDerived) {
  const auto identity =
      CompleteIdentity({.name = "mine", .token = "t", .rank = 3, .world_size = 4}, Environment(Torchrun("0")));
  EXPECT_EQ(identity.name, "mine");
  EXPECT_EQ(identity.token, "t");
  EXPECT_EQ(identity.launch, "") << "the token alone decides";
  EXPECT_EQ(identity.rank, 3);
  auto variables = Torchrun("0");
  variables["TIERD_JOB_TOKEN"] = "handed-on";
  const auto handed_on = CompleteIdentity({}, Environment(variables));
  EXPECT_EQ(handed_on.token, "handed-on");
  EXPECT_EQ(handed_on.launch, "");
}

TEST(JobIdentity, HalfAnEnvironmentGivesNoRank) {
  EXPECT_EQ(CompleteIdentity({}, Environment({{"RANK", "3"}})).rank, -1);
  EXPECT_EQ(CompleteIdentity({}, Environment({{"RANK", "x"}, {"WORLD_SIZE", "4"}})).world_size, 0);
}

}  // namespace
}  // namespace tier::link

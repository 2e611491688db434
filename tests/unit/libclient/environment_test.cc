#include "libclient/link/environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "libclient/link/sha256.h"

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

TEST(Sha256, AgreesWithThePublishedVectors) {
  EXPECT_EQ(Sha256Hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(Sha256Hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(Sha256Hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(Sha256Hex(std::string(1000, 'a')), "41edece42d63e8d9bf515a9ba6932e1c20cbc9f5a5d134645adb5db1b9737ea3");
}

TEST(SocketCandidates, AGivenSocketStandsAlone) {
  EXPECT_THAT(SocketCandidates("/a", Environment({{"TIERD_SOCKET", "/b"}})), ElementsAre("/a"));
}

TEST(SocketCandidates, TheEnvironmentsSocketStandsAlone) {
  EXPECT_THAT(SocketCandidates("", Environment({{"TIERD_SOCKET", "/b"}, {"XDG_RUNTIME_DIR", "/r"}})),
              ElementsAre("/b"));
}

TEST(SocketCandidates, TheUsersDirectoryComesBeforeTheSystems) {
  EXPECT_THAT(SocketCandidates("", Environment({{"XDG_RUNTIME_DIR", "/run/user/7"}})),
              ElementsAre("/run/user/7/tierd/tierd.sock", "/run/tierd/tierd.sock"));
  EXPECT_THAT(SocketCandidates("", Environment({})), ElementsAre("/run/tierd/tierd.sock"));
}

TEST(JobIdentity, StaysOpenWithoutALauncher) {
  const auto identity = CompleteIdentity({}, 1000, Environment({}));
  EXPECT_EQ(identity.name, "");
  EXPECT_EQ(identity.token, "");
  EXPECT_EQ(identity.rank, -1);
  EXPECT_EQ(identity.world_size, 0);
}

std::map<std::string, std::string> Torchrun(const std::string& rank, const std::string& restart = "0") {
  return {{"TORCHELASTIC_RUN_ID", "run 7!"},       {"MASTER_ADDR", "node1"}, {"MASTER_PORT", "29500"},
          {"TORCHELASTIC_RESTART_COUNT", restart}, {"RANK", rank},           {"WORLD_SIZE", "2"}};
}

TEST(JobIdentity, RanksOfOneTorchrunMeetInOneJob) {
  const auto first = CompleteIdentity({}, 1000, Environment(Torchrun("0")));
  const auto second = CompleteIdentity({}, 1000, Environment(Torchrun("1")));
  EXPECT_EQ(first.name, second.name);
  EXPECT_EQ(first.token, second.token);
  EXPECT_EQ(first.token.size(), 64u);
  EXPECT_EQ(first.name.find_first_of(" !"), std::string::npos);
  EXPECT_EQ(first.rank, 0);
  EXPECT_EQ(second.rank, 1);
  EXPECT_EQ(second.world_size, 2);
}

TEST(JobIdentity, ARestartIsAnotherJob) {
  const auto before = CompleteIdentity({}, 1000, Environment(Torchrun("0", "0")));
  const auto after = CompleteIdentity({}, 1000, Environment(Torchrun("0", "1")));
  EXPECT_NE(before.name, after.name);
  EXPECT_NE(before.token, after.token);
}

TEST(JobIdentity, AnotherUserGetsAnotherToken) {
  EXPECT_NE(CompleteIdentity({}, 1000, Environment(Torchrun("0"))).token,
            CompleteIdentity({}, 1001, Environment(Torchrun("0"))).token);
}

TEST(JobIdentity, SlurmStepsAreJobs) {
  const auto a = CompleteIdentity({}, 1, Environment({{"SLURM_JOB_ID", "12"}, {"SLURM_STEP_ID", "0"}}));
  const auto b = CompleteIdentity({}, 1, Environment({{"SLURM_JOB_ID", "12"}, {"SLURM_STEP_ID", "1"}}));
  EXPECT_EQ(a.name, "slurm-12.0");
  EXPECT_NE(a.token, b.token);
}

TEST(JobIdentity, WhatIsGivenOutranksWhatIsDerived) {
  const auto identity =
      CompleteIdentity({.name = "mine", .token = "t", .rank = 3, .world_size = 4}, 1000, Environment(Torchrun("0")));
  EXPECT_EQ(identity.name, "mine");
  EXPECT_EQ(identity.token, "t");
  EXPECT_EQ(identity.rank, 3);
  EXPECT_EQ(CompleteIdentity({}, 1, Environment({{"TIERD_JOB_TOKEN", "handed-on"}})).token, "handed-on");
}

TEST(JobIdentity, HalfAnEnvironmentGivesNoRank) {
  EXPECT_EQ(CompleteIdentity({}, 1, Environment({{"RANK", "3"}})).rank, -1);
  EXPECT_EQ(CompleteIdentity({}, 1, Environment({{"RANK", "x"}, {"WORLD_SIZE", "4"}})).world_size, 0);
}

}  // namespace
}  // namespace tier::link

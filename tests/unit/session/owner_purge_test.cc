// An owner whose name is given up: nothing of it, and no one who has been it, is the next owner of that name.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/session/owner_sockets.h"
#include "daemon/session/quota_book.h"
#include "tests/support/session/connect_error.h"
#include "tests/support/session/control_callers.h"
#include "tests/support/session/session_world.h"
#include "tests/support/session/temporary_directory.h"

namespace tier::session {
namespace {

using ::testing::AllOf;
using testing::ConnectError;
using testing::DataClient;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::kAdmin;
using testing::MakeHello;
using testing::SessionWorld;
using tiering::QuotaLevel;

class OneUser final : public UserDirectory {
 public:
  UserEntry FindUser(uint32_t uid) override { return uid == 1001 ? UserEntry{.name = "alice"} : UserEntry{}; }
  Result<uint32_t> FindUserId(const std::string& name) override {
    if (!answers) return Fail(Code::kTimeout, "the user database does not answer");
    return name == "alice" ? Result<uint32_t>(1001U) : NoUser(name);
  }
  Result<uint32_t> FindGroupId(const std::string& name) override { return NoGroup(name); }
  bool answers = true;
};

class OwnerPurge : public ::testing::Test {
 protected:
  static QuotaBookOptions OptionsIn(const std::string& directory) {
    QuotaBookOptions options;
    options.jobs.most = 8;
    options.file = directory + "/quotas";
    return options;
  }
  std::string Socket(const std::string& folder) const { return folder + "/tierd.sock"; }
  OwnerSocket Open(const std::string& owner) { return control_.OpenSocket(kAdmin, owner).value(); }
  // What a pod has mounted: the folder itself, whatever its name is later.
  static std::string Mounted(const proto::FileDescriptor& folder) {
    return "/proc/self/fd/" + std::to_string(folder.get());
  }

  testing::TemporaryDirectory directory_;
  OwnerTable table_{directory_.path() + "/owners", {}};
  OneUser system_;
  OwnerDirectory users_{table_, system_};
  base::SteadyClock clock_;
  QuotaBook quotas_{OptionsIn(directory_.path()), {}, users_, clock_};
  SessionWorld world_{{.quotas = &quotas_,
                       .owners = &table_,
                       .users = &system_,
                       .settings = {.list = [](bool) { return SettingsReport{}; }, .set = {}}}};
  ControlServer& control_{world_.control()};
};

TEST_F(OwnerPurge, AQuotaOfAnOwnerIsListedAsItsOwn) {
  const OwnerSocket socket = Open("pod-a");
  ASSERT_TRUE(
      quotas_.SetTable({.by_default = {}, .users = {{"pod-a", {.ram = 7}}, {"alice", {.ram = 8}}}, .groups = {}}));
  ASSERT_TRUE(control_.SetQuota(kAdmin, {QuotaLevel::kUser, std::to_string(socket.uid)}, {.jobs = 1}));
  const auto report = control_.ListQuotas(kAdmin);
  ASSERT_TRUE(report);
  std::vector<std::string> owners;
  for (const QuotaRow& row : report->quotas) {
    owners.push_back(row.owner);
    EXPECT_EQ(row.name, row.owner.empty() ? "alice" : "pod-a");
  }
  EXPECT_THAT(owners, ElementsAre("pod-a", "", "pod-a")) << "set at run time; then the configuration, by name";
}

TEST_F(OwnerPurge, ANameIsGivenUpOnlyWhenNothingIsItsOwn) {
  const auto socket = control_.OpenSocket(kAdmin, "pod-a");
  ASSERT_TRUE(socket);
  {
    DataClient client(socket->directory + "/tierd.sock");
    ASSERT_EQ(client.Attach(MakeHello("train")).code, 0);
    const Status refused = control_.CloseSocket(kAdmin, "pod-a", true);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Code::kDenied);
    EXPECT_THAT(refused.error().message,
                AllOf(HasSubstr("it has 1 job, open or reserved"), HasSubstr("tierctl job remove --purge pod-a/JOB")));
  }
  ASSERT_TRUE(world_.WaitForSessions(0));
  world_.OnEngine([&] { world_.engine.kept = {{.key = fmt::format("{}/nightly", socket->uid)}}; });
  EXPECT_THAT(control_.CloseSocket(kAdmin, "pod-a", true).error().message, HasSubstr("and persisted tensors"));
  world_.OnEngine([&] { world_.engine.kept.clear(); });
  ASSERT_TRUE(control_.CloseSocket(kAdmin, "pod-a", true));
  EXPECT_THAT(control_.ListSockets(kAdmin).value(), IsEmpty());
  EXPECT_FALSE(std::filesystem::exists(socket->directory + "/tierd.sock"));
  EXPECT_EQ(control_.OpenSocket(kAdmin, "pod-a").value().uid, socket->uid + 1);
}

TEST_F(OwnerPurge, ASocketThatIsClosedIsToldAlsoWhereItsNameStays) {
  testing::Collector collector({"socket_closed"});
  const auto watching = control_.Watch(kAdmin, collector.callback()).value();
  const OwnerSocket socket = Open("pod-a");
  EXPECT_EQ(control_.CloseSocket(kAdmin, "pod-b", true).error().code, Code::kNotFound);
  ASSERT_TRUE(control_.OpenJob({.uid = socket.uid}, {.name = "train"}));
  EXPECT_EQ(control_.CloseSocket(kAdmin, "pod-a", true).error().code, Code::kDenied);
  EXPECT_FALSE(control_.ListSockets(kAdmin)->front().open);
  EXPECT_EQ(collector.Wait(0).message, fmt::format("uid 0 closed the socket of owner pod-a (uid {})", socket.uid));
  ASSERT_TRUE(control_.CloseJob(kAdmin, "pod-a/train", {}));
  ASSERT_TRUE(control_.CloseSocket(kAdmin, "pod-a", true));
  EXPECT_EQ(collector.Wait(1).message,
            fmt::format("uid 0 closed the socket of owner pod-a (uid {}), and gave the name up", socket.uid));
}

// Neither the registry nor the list of manifests has it: a purge now would leave a manifest without an owner.
TEST_F(OwnerPurge, ANameIsNotGivenUpWhileAManifestOfAClosingJobMayCome) {
  const OwnerSocket socket = Open("pod-a");
  const std::string key = fmt::format("{}/nightly", socket.uid);
  world_.OnEngine([&] { world_.engine.unsettled = {key}; });
  const Status refused = control_.CloseSocket(kAdmin, "pod-a", true);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kTimeout);
  EXPECT_THAT(refused.error().message, HasSubstr("its name is not given up: jobs are still being closed"));
  EXPECT_EQ(table_.UidOf("pod-a"), socket.uid);
  world_.OnEngine([&] { world_.engine.unsettled.clear(); });
  EXPECT_TRUE(control_.CloseSocket(kAdmin, "pod-a", true));
}

// The pod has put a file there, so the folder cannot be removed.
TEST_F(OwnerPurge, WhoHasTheOldFolderMountedIsNotTheNextOwnerOfTheName) {
  const OwnerSocket first = Open("pod-a");
  std::ofstream(first.directory + "/left") << "of the pod";
  const proto::FileDescriptor mounted(::open(first.directory.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  ASSERT_EQ(ConnectError(Socket(Mounted(mounted))), 0);
  ASSERT_TRUE(control_.CloseSocket(kAdmin, "pod-a", true));
  const OwnerSocket second = Open("pod-a");
  EXPECT_EQ(second.uid, first.uid + 1);
  EXPECT_EQ(ConnectError(Socket(second.directory)), 0);
  EXPECT_EQ(ConnectError(Socket(Mounted(mounted))), ENOENT);
  EXPECT_TRUE(std::filesystem::exists(Mounted(mounted) + "/left")) << "it is the pod's";
  EXPECT_FALSE(std::filesystem::exists(Mounted(mounted) + "/control.sock"));
  EXPECT_NE(FileIdOf(second.directory), FileIdOf(Mounted(mounted) + "/."));
}

// As after a loss of the file of owners, or of its last line, on a machine that goes on.
TEST_F(OwnerPurge, AFolderThatIsThereAlreadyIsNotThatOfANewOwner) {
  const OwnerSocket first = Open("pod-a");
  const proto::FileDescriptor mounted(::open(first.directory.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  std::ofstream(first.directory + "/left") << "of the pod";
  ASSERT_TRUE(table_.Remove("pod-a"));
  const OwnerSocket second = Open("pod-a");
  EXPECT_NE(second.uid, first.uid);
  EXPECT_EQ(ConnectError(Socket(Mounted(mounted))), ENOENT);
  EXPECT_TRUE(std::filesystem::exists(second.directory + "/../.gone-pod-a/left"));
}

TEST_F(OwnerPurge, EmptyFoldersOfEarlierOwnersGoAtAStart) {
  const OwnerSocket socket = Open("pod-a");
  std::ofstream(socket.directory + "/left") << "of the pod";
  ASSERT_TRUE(control_.CloseSocket(kAdmin, "pod-a", true));
  const std::string gone =
      std::filesystem::path(socket.directory).parent_path() / (".gone-" + std::to_string(socket.uid));
  ASSERT_TRUE(std::filesystem::exists(gone + "/left"));
  EXPECT_THAT(world_.owner_sockets().Reopen(), IsEmpty());
  EXPECT_TRUE(std::filesystem::exists(gone + "/left")) << "it is not empty";
  std::filesystem::remove(gone + "/left");
  EXPECT_THAT(world_.owner_sockets().Reopen(), IsEmpty());
  EXPECT_FALSE(std::filesystem::exists(gone));
}

// Connected before the end of the name, it says hello behind it.
TEST_F(OwnerPurge, AClientThatWaitsIsNotServedAnyMore) {
  const OwnerSocket socket = Open("pod-a");
  DataClient waiting(Socket(socket.directory));
  while (world_.ListenerIsIdle()) std::this_thread::yield();
  ASSERT_TRUE(control_.CloseSocket(kAdmin, "pod-a", true));
  ASSERT_TRUE(waiting.Send(MakeHello("train")));
  const proto::Welcome refusal = waiting.ReceiveRefusal();
  EXPECT_EQ(refusal.code, static_cast<uint16_t>(Code::kDenied));
  EXPECT_THAT(refusal.message, HasSubstr("no owner has it any more"));
  EXPECT_THAT(world_.ended_owners, ElementsAre(socket.uid));
}

// Of a connection that is older than the end of the name.
TEST_F(OwnerPurge, NoCallIsServedAnyMore) {
  const Caller owner{.uid = Open("pod-a").uid};
  const auto subscription = control_.Watch(owner, [](const Event&) {});
  EXPECT_TRUE(subscription && control_.ListQuotas(owner) && control_.DescribePool(owner) &&
              control_.ListOptions(owner));
  EXPECT_FALSE(control_.RecentEvents(owner, 0).empty());
  ASSERT_TRUE(control_.CloseSocket(kAdmin, "pod-a", true));
  for (const Code code : {control_.OpenJob(owner, {.name = "train"}).error().code,
                          control_.CloseJob(owner, "train", {.purge = true}).error().code,
                          control_.SetJob(owner, "train", {.limit_bytes = 1}).error().code,
                          control_.ListTensors(owner, "train", 0, 1).error().code,
                          control_.ListStalls(owner, "train").error().code, control_.DescribePool(owner).error().code,
                          control_.ListQuotas(owner).error().code, control_.ListOptions(owner).error().code,
                          control_.Drain(owner, "train", std::chrono::milliseconds(1)).error().code,
                          control_.Watch(owner, [](const Event&) {}).error().code,
                          control_.WatchFrom(owner, 0, [](const Event&) {}).error().code}) {
    EXPECT_EQ(code, Code::kDenied);
  }
  EXPECT_THAT(control_.RecentEvents(owner, 0), IsEmpty());
  EXPECT_EQ(control_.ListJobs(owner).error().code, Code::kDenied);
  EXPECT_EQ(control_.ListStoredManifests(owner, "", 8).error().code, Code::kDenied);
}

// Between the look and the end of the name no job of the owner can come to be.
TEST_F(OwnerPurge, NothingIsOpenedForAnOwnerWhoIsBeingLookedAt) {
  const OwnerSocket socket = Open("pod-a");
  const auto job = [&] { return control_.OpenJob({.uid = socket.uid}, {.name = "train"}); };
  const auto kept = world_.owner_sockets().Purge("pod-a", [&](uint32_t uid) -> Status {
    EXPECT_EQ(uid, socket.uid);
    EXPECT_EQ(job().error().code, Code::kDenied);
    return Fail(Code::kDenied, "it is used");
  });
  ASSERT_TRUE(kept) << "the socket is closed";
  EXPECT_EQ(kept->uid, socket.uid);
  EXPECT_EQ(kept->rest.error().message, "it is used");
  EXPECT_THAT(world_.ended_owners, ElementsAre(socket.uid)) << "else it opens what was removed again, before each look";
  EXPECT_TRUE(job()) << "the name stays, for a caller that was let in";
  EXPECT_EQ(table_.UidOf("pod-a"), socket.uid);
}

TEST_F(OwnerPurge, AReservedJobThatIsNotOpenIsTheOwnersToo) {
  const OwnerSocket socket = Open("pod-a");
  world_.OnEngine([&] {
    world_.engine.open_job_answer = Fail(Code::kNoMemory, "nothing is left");
    EXPECT_FALSE(
        world_.jobs().Restore({.uid = socket.uid, .name = "train", .named = false, .terms = {}}, clock_.Now()));
  });
  EXPECT_THAT(control_.CloseSocket(kAdmin, "pod-a", true).error().message, HasSubstr("it has 1 job, open or reserved"));
  ASSERT_TRUE(control_.CloseJob(kAdmin, std::to_string(socket.uid) + "/train", {}));
  EXPECT_TRUE(control_.CloseSocket(kAdmin, "pod-a", true));
}

TEST_F(OwnerPurge, ItsQuotaGoesWithIt) {
  const OwnerSocket a = Open("pod-a");
  const OwnerSocket b = Open("pod-b");
  for (const char* owner : {"pod-a", "pod-b"})
    ASSERT_TRUE(control_.SetQuota(kAdmin, {QuotaLevel::kUser, owner}, {.ram = kGiB}));
  ASSERT_TRUE(control_.CloseSocket(kAdmin, "pod-a", false));
  EXPECT_EQ(quotas_.List().size(), 2U) << "a closed socket's stays";
  ASSERT_TRUE(control_.CloseSocket(kAdmin, "pod-a", true));
  ASSERT_EQ(quotas_.List().size(), 1U);
  EXPECT_EQ(quotas_.List().front().name, std::to_string(b.uid));
  EXPECT_TRUE(control_.CloseSocket(kAdmin, "pod-b", true));
  EXPECT_THAT(quotas_.List(), IsEmpty());
}

// A quota of this name would be the owner's, and no longer the user's.
TEST_F(OwnerPurge, AUsersNameIsNoNewOwners) {
  const auto refused = control_.OpenSocket(kAdmin, "alice");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kInvalid);
  EXPECT_THAT(refused.error().message, HasSubstr("'alice' is a user of this system"));
  EXPECT_THAT(table_.List(), IsEmpty());
  ASSERT_TRUE(table_.Open("alice"));
  EXPECT_TRUE(control_.OpenSocket(kAdmin, "alice")) << "it was an owner before the system had that user";
}

// LDAP is down: the user is there all the same, and its quota would become the owner's.
TEST_F(OwnerPurge, ANameThatMayBeAUsersIsNoNewOwners) {
  (void)Open("pod-a");
  system_.answers = false;
  const auto refused = control_.OpenSocket(kAdmin, "alice");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kTimeout) << "it is to be tried again";
  EXPECT_THAT(refused.error().message, HasSubstr("the user database does not answer"));
  EXPECT_TRUE(control_.OpenSocket(kAdmin, "pod-a")) << "it is an owner";
  system_.answers = true;
  EXPECT_EQ(control_.OpenSocket(kAdmin, "alice").error().code, Code::kInvalid);
  EXPECT_TRUE(control_.OpenSocket(kAdmin, "bob"));
}

}  // namespace
}  // namespace tier::session

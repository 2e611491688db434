// The sockets of owners, with a live listener: who connects there is the owner, and who connects elsewhere is not.
#include "daemon/session/owner_sockets.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/session/connect_error.h"
#include "tests/support/session/control_callers.h"
#include "tests/support/session/session_world.h"
#include "tests/support/session/temporary_directory.h"

namespace tier::session {
namespace {

using testing::Collector;
using testing::ConnectError;
using testing::DataClient;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::InChild;
using ::testing::IsEmpty;
using testing::kAdmin;
using testing::kAlice;
using testing::MakeHello;
using testing::SessionWorld;

unsigned ModeOf(const std::string& path) {
  struct stat about{};
  return ::lstat(path.c_str(), &about) == 0 ? about.st_mode & 0777U : 0;
}

class OwnerSocketsTest : public ::testing::Test {
 protected:
  uint32_t UidOfJob(const std::string& name) {
    const auto jobs = control_.ListJobs(kAdmin);
    for (const JobDescription& job : *jobs) {
      if (job.name == name) return job.uid;
    }
    return kUnknownUid;
  }

  testing::TemporaryDirectory directory_;
  OwnerTable table_{directory_.path() + "/owners", {}};
  SessionWorld world_{{.owners = &table_}};
  ControlServer& control_{world_.control()};
};

TEST_F(OwnerSocketsTest, WhoConnectsIsTheOwnerAndSeesNothingOfOthers) {
  const auto a = control_.OpenSocket(kAdmin, "pod-a");
  const auto b = control_.OpenSocket(kAdmin, "pod-b");
  ASSERT_TRUE(a) << a.error().message;
  ASSERT_TRUE(b);
  DataClient by_a(a->directory + "/tierd.sock"), by_b(b->directory + "/tierd.sock"), ordinary(world_.socket_path());
  ASSERT_EQ(by_a.Attach(MakeHello("of-a")).code, 0);
  ASSERT_EQ(by_b.Attach(MakeHello("of-b")).code, 0);
  ASSERT_EQ(ordinary.Attach(MakeHello("ordinary")).code, 0);
  EXPECT_EQ(UidOfJob("of-a"), kOwnerUidFirst);
  EXPECT_EQ(UidOfJob("of-b"), kOwnerUidFirst + 1);
  EXPECT_EQ(UidOfJob("ordinary"), ::geteuid()) << "the ordinary socket believes the kernel";
  const auto seen = control_.ListJobs({.uid = a->uid}).value();
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_EQ(seen[0].name, "of-a");
  EXPECT_EQ(seen[0].owner, "pod-a");
  DataClient joining(a->directory + "/tierd.sock");
  proto::Hello hello = MakeHello("of-b");
  hello.mode = static_cast<uint16_t>(proto::OpenMode::kJoin);
  ASSERT_TRUE(joining.Send(hello));
  EXPECT_EQ(joining.ReceiveRefusal().code, static_cast<uint16_t>(Code::kNotFound)) << "it is another's";
}

TEST_F(OwnerSocketsTest, EventsOfAnOwnersJobHaveItsName) {
  const auto socket = control_.OpenSocket(kAdmin, "pod-a");
  ASSERT_TRUE(socket) << socket.error().message;
  Collector events({"job_opened"});
  const auto watch = control_.Watch(kAdmin, events.callback());
  ASSERT_TRUE(control_.OpenJob({.uid = socket->uid}, {.name = "train"}));
  ASSERT_TRUE(control_.OpenJob(kAlice, {.name = "train"}));
  EXPECT_EQ(events.Wait(0).uid, std::optional(socket->uid));
  EXPECT_EQ(events.Wait(0).owner, "pod-a");
  EXPECT_EQ(events.Wait(1).uid, std::optional(kAlice.uid));
  EXPECT_EQ(events.Wait(1).owner, "");
  EXPECT_EQ(control_.RecentEvents({.uid = socket->uid}, 0).back().owner, "pod-a");
}

TEST_F(OwnerSocketsTest, CredentialsThatAClientSendsCountForNothing) {
  const auto socket = control_.OpenSocket(kAdmin, "pod-a");
  ASSERT_TRUE(socket);
  DataClient client(socket->directory + "/tierd.sock");
  proto::Hello hello = MakeHello("train");
  iovec part = {.iov_base = &hello, .iov_len = sizeof(hello)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(ucred))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* const claim = CMSG_FIRSTHDR(&message);
  claim->cmsg_level = SOL_SOCKET;
  claim->cmsg_type = SCM_CREDENTIALS;
  claim->cmsg_len = CMSG_LEN(sizeof(ucred));
  // Root may claim to be any user.
  const ucred credentials = {.pid = ::getpid(), .uid = ::geteuid() == 0 ? 12345 : ::getuid(), .gid = ::getgid()};
  std::memcpy(CMSG_DATA(claim), &credentials, sizeof(credentials));
  ASSERT_EQ(::sendmsg(client.socket(), &message, 0), static_cast<ssize_t>(sizeof(hello)));
  testing::IncomingPacket answer = client.Receive();
  if (answer.kind() != proto::PacketKind::kWelcome) answer = client.Receive();  // A challenge, of an older kernel.
  EXPECT_EQ(answer.As<proto::Welcome>().code, 0);
  EXPECT_EQ(UidOfJob("train"), kOwnerUidFirst);
}

TEST_F(OwnerSocketsTest, AnOwnersUidIsNoUserOfAnotherSocket) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root: two uids";
  const int status = InChild([&] {
    if (::setgid(12345) != 0 || ::setuid(kOwnerUidFirst) != 0) return 90;
    DataClient own(world_.socket_path());
    if (!own.Send(MakeHello("train"))) return 91;
    const proto::Welcome refusal = own.ReceiveRefusal();
    return refusal.code == static_cast<uint16_t>(Code::kDenied) &&
                   std::strstr(refusal.message, "stand for owners of sockets") != nullptr
               ? 0
               : 1;
  });
  EXPECT_EQ(status, 0);
}

TEST_F(OwnerSocketsTest, AClosedSocketRefusesNewClientsAndItsSessionsGoOn) {
  Collector collector({"socket_opened", "socket_closed"});
  const auto watch = control_.Watch(kAdmin, collector.callback());
  const auto socket = control_.OpenSocket(kAdmin, "pod-a");
  ASSERT_TRUE(socket);
  EXPECT_THAT(collector.Wait(0).message, HasSubstr("uid 0 opened the socket of owner pod-a (uid 4026531840)"));
  DataClient client(socket->directory + "/tierd.sock");
  ASSERT_EQ(client.Attach(MakeHello("train")).code, 0);
  const std::string kept = socket->directory + "/kept.sock";
  ASSERT_EQ(::link((socket->directory + "/tierd.sock").c_str(), kept.c_str()), 0);
  ASSERT_TRUE(control_.CloseSocket(kAdmin, "pod-a", false));
  EXPECT_EQ(ConnectError(kept), ECONNREFUSED) << "by another name that a pod gave it";
  EXPECT_THAT(collector.Wait(1).message, HasSubstr("closed the socket of owner pod-a"));
  EXPECT_NE(ConnectError(socket->directory + "/tierd.sock"), 0);
  const proto::RequestItem item{.tensor = 1};
  ASSERT_TRUE(client.ring().Send(proto::Op::kFree, {&item, 1}));
  client.Ring();
  EXPECT_EQ(client.WaitForCompletions(1).size(), 1U);
  const auto listed = control_.ListSockets(kAdmin);
  ASSERT_TRUE(listed);
  ASSERT_EQ(listed->size(), 1U);
  EXPECT_FALSE(listed->front().open);
  const auto again = control_.OpenSocket(kAdmin, "pod-a");
  ASSERT_TRUE(again);
  EXPECT_EQ(again->uid, socket->uid);
  DataClient second(again->directory + "/tierd.sock");
  EXPECT_EQ(second.Attach(MakeHello("train-2")).code, 0);
}

// Names of pods are those of other tenants.
// A full disk, for example: a right must end all the same.
TEST_F(OwnerSocketsTest, WhatCannotBeWrittenDownIsClosedAllTheSame) {
  const auto socket = control_.OpenSocket(kAdmin, "pod-a");
  ASSERT_TRUE(socket);
  ASSERT_EQ(ConnectError(socket->directory + "/tierd.sock"), 0);
  std::filesystem::remove_all(directory_.path());
  const Status closed = control_.CloseSocket(kAdmin, "pod-a", false);
  ASSERT_FALSE(closed);
  EXPECT_THAT(closed.error().message, HasSubstr("is closed, and would be open again at the next start"));
  EXPECT_NE(ConnectError(socket->directory + "/tierd.sock"), 0);
  EXPECT_FALSE(control_.ListSockets(kAdmin).value().front().open);
  std::filesystem::create_directory(directory_.path());
  EXPECT_TRUE(control_.CloseSocket(kAdmin, "pod-a", false));
}

TEST_F(OwnerSocketsTest, OthersThanAdministratorsAreToldNoNames) {
  Collector collector({"socket_opened", "socket_closed"});
  const auto watch = control_.Watch(kAlice, collector.callback());
  ASSERT_TRUE(control_.OpenSocket(kAdmin, "pod-a"));
  ASSERT_TRUE(control_.CloseSocket(kAdmin, "pod-a", false));
  EXPECT_EQ(collector.Wait(0).message, "an administrator opened the socket of an owner");
  EXPECT_EQ(collector.Wait(1).message, "an administrator closed the socket of an owner");
}

TEST_F(OwnerSocketsTest, OnlyAdministratorsOpenCloseAndList) {
  ASSERT_TRUE(control_.OpenSocket(kAdmin, "pod-a"));
  for (const Caller& caller : {kAlice, Caller{.uid = 0}, Caller{.uid = kOwnerUidFirst}}) {
    EXPECT_EQ(control_.OpenSocket(caller, "pod-b").error().code, Code::kDenied);
    EXPECT_EQ(control_.CloseSocket(caller, "pod-a", true).error().code, Code::kDenied);
    EXPECT_EQ(control_.ListSockets(caller).error().code, Code::kDenied);
  }
  EXPECT_EQ(table_.List().size(), 1U);
}

TEST_F(OwnerSocketsTest, NamesThatAreNoneAreRefused) {
  for (const char* name : {"", "..", "../tierd", "a/b", "/etc", "1001"})
    EXPECT_EQ(control_.OpenSocket(kAdmin, name).error().code, Code::kInvalid) << name;
  EXPECT_EQ(control_.CloseSocket(kAdmin, "../tierd", false).error().code, Code::kNotFound);
  EXPECT_THAT(control_.ListSockets(kAdmin).value(), IsEmpty());
}

TEST_F(OwnerSocketsTest, TheFolderIsOpenToAPodAndItsParentToNoOne) {
  const auto socket = control_.OpenSocket(kAdmin, "pod-a");
  ASSERT_TRUE(socket);
  const std::filesystem::path folder = socket->directory;
  EXPECT_EQ(ModeOf(folder.parent_path()), 0700U) << "no user of the machine becomes an owner";
  EXPECT_EQ(ModeOf(folder), 0755U);
  EXPECT_EQ(ModeOf(folder / "tierd.sock"), 0666U) << "a pod has any uid";
}

// A pod that may write in its folder: what it puts there is replaced, also while the socket is open.
TEST_F(OwnerSocketsTest, WhatAPodPutsInThePlaceOfASocketIsReplaced) {
  const auto socket = control_.OpenSocket(kAdmin, "pod-a");
  ASSERT_TRUE(socket);
  const std::string secret = directory_.path() + "/secret";
  std::ofstream(secret) << "secret";
  ASSERT_EQ(::chmod(secret.c_str(), 0600), 0);
  const std::string data = socket->directory + "/tierd.sock";
  const std::string control = socket->directory + "/control.sock";
  const auto put_link = [&](const std::string& path) {
    ASSERT_EQ(::unlink(path.c_str()), 0);
    ASSERT_EQ(::symlink(secret.c_str(), path.c_str()), 0);
  };
  put_link(data);
  ASSERT_TRUE(control_.OpenSocket(kAdmin, "pod-a")) << "it is open, and another file stands there";
  EXPECT_EQ(ConnectError(data), 0);
  put_link(control);
  ASSERT_TRUE(control_.OpenSocket(kAdmin, "pod-a"));
  EXPECT_FALSE(std::filesystem::is_symlink(control));
  ASSERT_EQ(::unlink(control.c_str()), 0);
  ASSERT_TRUE(control_.OpenSocket(kAdmin, "pod-a"));
  EXPECT_TRUE(std::filesystem::exists(control));
  ASSERT_TRUE(control_.CloseSocket(kAdmin, "pod-a", false));
  ASSERT_EQ(::symlink(secret.c_str(), data.c_str()), 0);
  ASSERT_TRUE(control_.OpenSocket(kAdmin, "pod-a")) << "it was closed";
  EXPECT_EQ(ConnectError(data), 0);
  EXPECT_EQ(ModeOf(secret), 0600U) << "no link was followed";
  const auto before = FileIdOf(data);
  ASSERT_TRUE(control_.OpenSocket(kAdmin, "pod-a"));
  EXPECT_EQ(FileIdOf(data), before) << "nothing was wrong with it";
}

TEST_F(OwnerSocketsTest, ALinkInThePlaceOfAFolderIsRefused) {
  const auto socket = control_.OpenSocket(kAdmin, "pod-a");
  ASSERT_TRUE(socket);
  ASSERT_TRUE(control_.CloseSocket(kAdmin, "pod-a", false));
  ASSERT_GT(std::filesystem::remove_all(socket->directory), 0U);
  ASSERT_EQ(::symlink(directory_.path().c_str(), socket->directory.c_str()), 0);
  const auto refused = control_.OpenSocket(kAdmin, "pod-a");
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr(socket->directory));
  EXPECT_FALSE(control_.ListSockets(kAdmin).value().back().open);
  EXPECT_FALSE(table_.List().back().second.open) << "nor at the next start";
}

// The descriptors that keep the sockets for an orderly close must not keep their clients waiting.
TEST_F(OwnerSocketsTest, NothingConnectsDuringAStop) {
  const auto socket = control_.OpenSocket(kAdmin, "pod-a");
  ASSERT_TRUE(socket);
  const std::string path = socket->directory + "/tierd.sock";
  EXPECT_EQ(ConnectError(path), 0);
  world_.StopAccepting("tierd is being stopped");
  EXPECT_EQ(ConnectError(path), ECONNREFUSED);
  const auto late = world_.owner_sockets().Open("pod-b");
  ASSERT_TRUE(late);
  world_.OnSocketThread([] {});  // It is given to the listener there.
  EXPECT_EQ(ConnectError(late->directory + "/tierd.sock"), ECONNREFUSED) << "opened meanwhile";
}

TEST(OwnerSocketsWarnings, ACloseIsNone) {
  testing::TemporaryDirectory directory;
  OwnerTable table(directory.path() + "/owners", {});
  std::vector<std::string> warnings;  // The socket thread's.
  SessionWorld world({.on_warning = [&](const std::string& text) { warnings.push_back(text); }, .owners = &table});
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(world.control().OpenSocket(kAdmin, "pod-a"));
    world.OnSocketThread([] {});
    ASSERT_TRUE(world.control().CloseSocket(kAdmin, "pod-a", false));
    world.OnSocketThread([] {});
  }
  world.OnSocketThread([&] { EXPECT_THAT(warnings, IsEmpty()); });
}

TEST_F(OwnerSocketsTest, OpenSocketsAreOpenAgainAfterARestart) {
  ASSERT_TRUE(control_.OpenSocket(kAdmin, "pod-a"));
  ASSERT_TRUE(control_.OpenSocket(kAdmin, "pod-b"));
  ASSERT_TRUE(control_.CloseSocket(kAdmin, "pod-b", false));
  OwnerTable next(directory_.path() + "/owners", LoadOwners(directory_.path() + "/owners").value());
  SessionWorld restarted({.owners = &next});
  EXPECT_THAT(restarted.owner_sockets().Reopen(), IsEmpty());
  const auto listed = restarted.owner_sockets().List();
  ASSERT_EQ(listed.size(), 2U);
  EXPECT_TRUE(listed[0].open);
  EXPECT_FALSE(listed[1].open);
  DataClient client(listed[0].directory + "/tierd.sock");
  EXPECT_EQ(client.Attach(MakeHello("train")).code, 0);
  const auto jobs = restarted.control().ListJobs({.uid = kOwnerUidFirst}).value();
  ASSERT_EQ(jobs.size(), 1U) << "the number is the same";
}

TEST_F(OwnerSocketsTest, WhatCannotBeOpenedAtAStartIsToldAndTheOthersAreOpen) {
  ASSERT_TRUE(control_.OpenSocket(kAdmin, "pod-a"));
  ASSERT_TRUE(control_.OpenSocket(kAdmin, "pod-b"));
  OwnerTable next(directory_.path() + "/owners", LoadOwners(directory_.path() + "/owners").value());
  testing::TemporaryDirectory runtime;
  std::filesystem::create_directory(runtime.path() + "/owners");
  std::ofstream(runtime.path() + "/owners/pod-a") << "a file";
  std::vector<uint32_t> opened;
  OwnerSockets sockets(runtime.path() + "/owners", next,
                       {.listen = [&](uint32_t uid, proto::FileDescriptor) { opened.push_back(uid); },
                        .stop = [](uint32_t) {},
                        .listen_control = [](uint32_t, const std::string&) { return Status(); },
                        .stop_control = [](uint32_t) {},
                        .end_control = [](uint32_t) {}});
  EXPECT_EQ(sockets.Open("pod-c").error().code, Code::kTimeout) << "it is starting";
  const auto failures = sockets.Reopen();
  ASSERT_EQ(failures.size(), 1U);
  EXPECT_THAT(failures[0], HasSubstr("the socket of owner pod-a is not open"));
  EXPECT_THAT(failures[0], HasSubstr("tierctl socket open --owner pod-a"));
  EXPECT_THAT(opened, ElementsAre(kOwnerUidFirst + 1));
}

TEST(OwnerSocketsOfPrivateDaemons, AreNone) {
  testing::TemporaryDirectory directory;
  OwnerTable table(directory.path() + "/owners", {});
  SessionWorld world({.owners = &table, .is_private = true});
  EXPECT_EQ(world.control().OpenSocket(kAdmin, "pod-a").error().code, Code::kDenied);
  EXPECT_TRUE(table.List().empty());
}

}  // namespace
}  // namespace tier::session

// What makes the daemon a good process: one instance, systemd's protocol, a private one's end.
#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/session/instance_lock.h"
#include "daemon/session/packet_socket.h"
#include "daemon/session/passed_descriptors.h"
#include "daemon/session/peer_identity.h"
#include "daemon/session/private_lifetime.h"
#include "daemon/session/service_manager.h"
#include "tests/support/proto/thread_shortage.h"
#include "tests/support/session/hostile_descriptor.h"
#include "tests/support/session/temporary_directory.h"

namespace tier::session {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;

class Scratch {
 public:
  std::string operator/(const std::string& name) const { return directory_.path() + "/" + name; }

 private:
  testing::TemporaryDirectory directory_;
};

TEST(InstanceLock, IsTakenOnceAndNamesItsHolder) {
  const Scratch scratch;
  auto first = InstanceLock::Take(scratch / "run", false);
  ASSERT_TRUE(first) << first.error().message;
  const auto second = InstanceLock::Take(scratch / "run", false);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Code::kAlreadyExists);
  EXPECT_THAT(second.error().message, HasSubstr("process " + std::to_string(::getpid())));
}

TEST(InstanceLock, FileIsForItsOwnerOnlyAndAnOlderOneBecomesSo) {
  const Scratch scratch;
  const auto permissions = [&] { return std::filesystem::status(scratch / "run/tierd.lock").permissions(); };
  constexpr auto kOwner = std::filesystem::perms::owner_read | std::filesystem::perms::owner_write;
  {
    ASSERT_TRUE(InstanceLock::Take(scratch / "run", false));
    EXPECT_EQ(permissions(), kOwner);
  }
  std::filesystem::permissions(scratch / "run/tierd.lock", std::filesystem::perms{0644});
  ASSERT_TRUE(InstanceLock::Take(scratch / "run", false));
  EXPECT_EQ(permissions(), kOwner);
}

TEST(InstanceLock, SaysThatTheHolderIsNotTheTierdOfTheFile) {
  const Scratch scratch;
  const pid_t dead = ::fork();
  if (dead == 0) ::_exit(0);
  ::waitpid(dead, nullptr, 0);
  std::filesystem::create_directory(scratch / "run");
  std::ofstream(scratch / "run/tierd.lock") << dead << '\n';
  const proto::FileDescriptor stranger(::open((scratch / "run/tierd.lock").c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_EQ(::flock(stranger.get(), LOCK_EX | LOCK_NB), 0);
  const auto lock = InstanceLock::Take(scratch / "run", false);
  ASSERT_FALSE(lock);
  EXPECT_EQ(lock.error().code, Code::kAlreadyExists);
  EXPECT_THAT(lock.error().message, HasSubstr(std::to_string(dead) + ") has ended"));
  EXPECT_THAT(lock.error().message, HasSubstr("locked by"));
}

TEST(InstanceLock, TellsACrashFromAnOrderlyEnd) {
  const Scratch scratch;
  {
    EXPECT_FALSE(InstanceLock::Take(scratch / "run", false)->predecessor_crashed());
  }
  {
    auto lock = InstanceLock::Take(scratch / "run", false);
    ASSERT_TRUE(lock);
    EXPECT_TRUE(lock->predecessor_crashed());
    lock->MarkEnded();
  }
  EXPECT_FALSE(InstanceLock::Take(scratch / "run", false)->predecessor_crashed());
}

TEST(InstanceLock, MakesAPrivateDirectoryPrivate) {
  const Scratch scratch;
  ASSERT_TRUE(InstanceLock::Take(scratch / "a/b/run", true));
  EXPECT_EQ(std::filesystem::status(scratch / "a/b/run").permissions(), std::filesystem::perms::owner_all);
}

TEST(InstanceLock, MakesASharedDirectoryOpenWhateverTheUmask) {
  const Scratch scratch;
  const mode_t before = ::umask(0077);
  const bool taken = InstanceLock::Take(scratch / "run", false).has_value();
  ::umask(before);
  ASSERT_TRUE(taken);
  EXPECT_EQ(std::filesystem::status(scratch / "run").permissions(), std::filesystem::perms{0755});
  EXPECT_EQ(ClosedToOthers(scratch / "run"), "");
}

TEST(InstanceLock, SaysHowToOpenADirectoryThatWasLeftClosed) {
  const Scratch scratch;
  ASSERT_TRUE(InstanceLock::Take(scratch / "run", true));
  ASSERT_TRUE(InstanceLock::Take(scratch / "run", false));
  EXPECT_THAT(ClosedToOthers(scratch / "run"), HasSubstr("is 700; to let every user in: chmod 755 " + scratch / "run"));
}

TEST(InstanceLock, DirectoryThatCannotBeIsNamed) {
  const Scratch scratch;
  std::ofstream(scratch / "file") << "x";
  const auto lock = InstanceLock::Take(scratch / "file/run", false);
  ASSERT_FALSE(lock);
  EXPECT_EQ(lock.error().code, Code::kInvalid);
  EXPECT_THAT(lock.error().message, HasSubstr("socket_directory"));
  EXPECT_EQ(InstanceLock::Take(scratch / "file", false).error().code, Code::kInvalid) << "a file in its place";
  std::filesystem::create_symlink(scratch / "absent", scratch / "link");
  EXPECT_EQ(InstanceLock::Take(scratch / "link", false).error().code, Code::kNotFound);
}

// A status of 1 would have systemd try again without a limit.
TEST(InstanceLock, DirectoryThatTheKernelRefusesIsNoErrorThatMayPass) {
  for (const char* directory : {"/proc/tierd", "/proc/deep/tierd", "/sys/tierd", "/sys/deep/tierd"}) {
    const auto lock = InstanceLock::Take(directory, false);
    ASSERT_FALSE(lock) << directory;
    EXPECT_THAT(lock.error().code, ::testing::AnyOf(Code::kDenied, Code::kNotFound)) << directory;
    EXPECT_THAT(lock.error().message, HasSubstr("socket_directory"));
  }
}

TEST(InstanceLock, LinkInPlaceOfTheLockFileIsNotFollowed) {
  const Scratch scratch;
  std::filesystem::create_directory(scratch / "run");
  std::ofstream(scratch / "victim") << "precious";
  std::filesystem::create_symlink(scratch / "victim", scratch / "run/tierd.lock");
  EXPECT_FALSE(InstanceLock::Take(scratch / "run", false));
  std::string content;
  std::ifstream(scratch / "victim") >> content;
  EXPECT_EQ(content, "precious");
}

TEST(PrivateLifetime, EndsFiveSecondsAfterTheLastSession) {
  PrivateLifetime lifetime;
  const base::TimePoint start{seconds(100)};
  EXPECT_EQ(lifetime.end(), std::nullopt) << "nobody has come yet";
  lifetime.OnSessionCount(1, start);
  EXPECT_EQ(lifetime.end(), std::nullopt);
  lifetime.OnSessionCount(0, start + seconds(7));
  EXPECT_EQ(lifetime.end(), start + seconds(12));
  lifetime.OnSessionCount(1, start + seconds(8));
  EXPECT_EQ(lifetime.end(), std::nullopt);
}

TEST(PrivateLifetime, EndsThirtySecondsAfterItsStarterUnlessSomebodyIsThere) {
  PrivateLifetime lifetime;
  const base::TimePoint start{seconds(100)};
  lifetime.OnStarterDied(start);
  lifetime.OnStarterDied(start + seconds(10));
  EXPECT_EQ(lifetime.end(), start + seconds(30));
  lifetime.OnSessionCount(2, start + seconds(20));
  EXPECT_EQ(lifetime.end(), std::nullopt) << "a rank that outlives the one that started the daemon keeps it";
  lifetime.OnSessionCount(0, start + seconds(50));
  EXPECT_EQ(lifetime.end(), start + seconds(55));
}

// Variables that a test sets; gone afterwards.
class Environment {
 public:
  void Set(const char* name, const std::string& value) {
    ::setenv(name, value.c_str(), 1);
    names_.push_back(name);
  }
  ~Environment() {
    for (const char* name : names_) ::unsetenv(name);
  }

 private:
  std::vector<const char*> names_;
};

TEST(ServiceManager, AbsentOneIsNoTrouble) {
  ServiceManager manager = ServiceManager::FromEnvironment();
  EXPECT_FALSE(manager.present());
  manager.Notify("READY=1\n");
  EXPECT_EQ(manager.watchdog(), std::nullopt);
  EXPECT_FALSE(manager.TakeSocket("data"));
}

TEST(ServiceManager, HearsWhatItIsTold) {
  const Scratch scratch;
  const proto::FileDescriptor socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strcpy(address.sun_path, (scratch / "notify").c_str());
  ASSERT_EQ(::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  Environment environment;
  environment.Set("NOTIFY_SOCKET", scratch / "notify");
  environment.Set("WATCHDOG_USEC", "30000000");
  const ServiceManager manager = ServiceManager::FromEnvironment();
  EXPECT_TRUE(manager.present());
  EXPECT_EQ(manager.watchdog(), seconds(30));
  EXPECT_EQ(std::getenv("NOTIFY_SOCKET"), nullptr) << "children must not speak for us";
  manager.Notify("READY=1\nSTATUS=serving\n");
  std::array<char, 100> text{};
  EXPECT_GT(::recv(socket.get(), text.data(), text.size(), MSG_DONTWAIT), 0);
  EXPECT_STREQ(text.data(), "READY=1\nSTATUS=serving\n");
}

TEST(ServiceManager, WatchdogOfAnotherProcessIsNotOurs) {
  Environment environment;
  environment.Set("WATCHDOG_USEC", "30000000");
  environment.Set("WATCHDOG_PID", "1");
  EXPECT_EQ(ServiceManager::FromEnvironment().watchdog(), std::nullopt);
}

TEST(ServiceManager, NonsenseInTheEnvironmentIsIgnored) {
  Environment environment;
  environment.Set("WATCHDOG_USEC", "soon");
  environment.Set("LISTEN_PID", std::to_string(::getpid()));
  environment.Set("LISTEN_FDS", "-5");
  ServiceManager manager = ServiceManager::FromEnvironment();
  EXPECT_EQ(manager.watchdog(), std::nullopt);
  EXPECT_FALSE(manager.TakeSocket("data"));
}

TEST(PacketSocket, OnlyAListeningPacketSocketPasses) {
  const Scratch scratch;
  const auto listening = ListenAt(scratch / "s", 0600);
  ASSERT_TRUE(listening);
  EXPECT_TRUE(CheckListening(listening->get()));
  const proto::FileDescriptor stream(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_FALSE(CheckListening(stream.get()));
  const proto::FileDescriptor file(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  EXPECT_FALSE(CheckListening(file.get()));
}

TEST(PacketSocket, PathThatIsTooLongIsRefusedWithFigures) {
  const auto listening = ListenAt("/tmp/" + std::string(200, 'x'), 0600);
  ASSERT_FALSE(listening);
  EXPECT_THAT(listening.error().message, HasSubstr("at most 107"));
}

TEST(PacketSocket, ConnectionWithoutADescriptorLeftIsAnErrorAndStaysWaiting) {
  const Scratch scratch;
  const auto listening = ListenAt(scratch / "s", 0600);
  ASSERT_TRUE(listening);
  ASSERT_TRUE(AcceptConnection(listening->get()));
  EXPECT_FALSE(*AcceptConnection(listening->get())) << "nobody has come";
  // Before the limit: UBSan opens a pipe when it meets the types of the error's sentence for the first time.
  EXPECT_FALSE(AcceptConnection(-1)) << "no socket";
  const proto::FileDescriptor client(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  (scratch / "s").copy(address.sun_path, sizeof(address.sun_path) - 1);
  ASSERT_EQ(::connect(client.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none = {.rlim_cur = 0, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  const auto refused = AcceptConnection(listening->get());
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_FALSE(refused);
  const auto accepted = AcceptConnection(listening->get());
  ASSERT_TRUE(accepted);
  EXPECT_TRUE(*accepted);
}

// Kernels differ: there is none, or it is an error that says so.
TEST(PacketSocket, OneThatWasShutDownHasNoConnectionAndNoFailureToTryAgain) {
  const Scratch scratch;
  const auto listening = ListenAt(scratch / "s", 0600);
  ASSERT_TRUE(listening);
  ASSERT_EQ(::shutdown(listening->get(), SHUT_RDWR), 0);
  const auto ended = AcceptConnection(listening->get());
  if (ended) {
    EXPECT_FALSE(*ended);
  } else {
    EXPECT_EQ(ended.error().code, Code::kDisconnected) << ended.error().message;
  }
}

// Between its making and this, one who may write in the folder can put a link in its place.
TEST(PacketSocket, TheModeOfWhatALinkNamesIsNotChanged) {
  const Scratch scratch;
  std::ofstream(scratch / "secret") << "secret";
  ASSERT_EQ(::chmod((scratch / "secret").c_str(), 0600), 0);
  ASSERT_EQ(::symlink((scratch / "secret").c_str(), (scratch / "s").c_str()), 0);
  EXPECT_FALSE(SetSocketMode(scratch / "s", 0666));
  struct stat about{};
  ASSERT_EQ(::stat((scratch / "secret").c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777U, 0600U);
  ASSERT_TRUE(ListenAt(scratch / "t", 0600));
  EXPECT_TRUE(SetSocketMode(scratch / "t", 0640));
  ASSERT_EQ(::stat((scratch / "t").c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777U, 0640U);
}

TEST(PacketSocket, FullSocketSaysSoAndHungUpOneToo) {
  int pair[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
  const proto::FileDescriptor ours(pair[0]);
  proto::FileDescriptor theirs(pair[1]);
  const std::vector<std::byte> bytes(1000);
  SocketOutcome outcome = SocketOutcome::kDone;
  for (int i = 0; i < 100'000 && outcome == SocketOutcome::kDone; ++i) outcome = SendPacket(ours.get(), bytes, {});
  EXPECT_EQ(outcome, SocketOutcome::kWouldBlock);
  ReceivedPacket packet;
  EXPECT_EQ(ReceivePacket(ours.get(), {}, &packet), SocketOutcome::kWouldBlock);
  theirs.Reset();
  EXPECT_EQ(SendPacket(ours.get(), bytes, {}), SocketOutcome::kGone);
  EXPECT_EQ(ReceivePacket(ours.get(), {}, &packet), SocketOutcome::kGone);
}

struct SocketPair {
  SocketPair() {
    int pair[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
    ours = proto::FileDescriptor(pair[0]);
    theirs = proto::FileDescriptor(pair[1]);
  }
  proto::FileDescriptor ours;
  proto::FileDescriptor theirs;
};

constexpr std::byte kByte{7};

std::vector<proto::FileDescriptor> SomeDescriptors() {
  std::vector<proto::FileDescriptor> some;
  for (int i = 0; i < 3; ++i) some.emplace_back(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  return some;
}

TEST(PacketSocket, PacketWithDescriptorsStaysInTheQueue) {
  const SocketPair pair;
  ASSERT_TRUE(AskForCredentials(pair.theirs.get()));
  ASSERT_EQ(SendPacket(pair.ours.get(), {&kByte, 1}, {}), SocketOutcome::kDone);
  ASSERT_EQ(SendPacket(pair.ours.get(), {&kByte, 1}, SomeDescriptors()), SocketOutcome::kDone);
  const size_t before = testing::OpenDescriptors();
  for (const bool credentials : {true, false}) {
    if (!credentials) {
      const int off = 0;
      ASSERT_EQ(::setsockopt(pair.theirs.get(), SOL_SOCKET, SO_PASSCRED, &off, sizeof(off)), 0);
    }
    const ReceiveOptions options{.descriptors_refused = false, .credentials = credentials};
    ReceivedPacket packet;
    if (credentials) {
      EXPECT_EQ(ReceivePacket(pair.theirs.get(), options, &packet), SocketOutcome::kDone);
      EXPECT_EQ(packet.bytes, std::vector{kByte});
      EXPECT_FALSE(packet.truncated);
      ASSERT_TRUE(packet.sender);
      EXPECT_EQ(packet.sender->pid, ::getpid());
    }
    EXPECT_EQ(ReceivePacket(pair.theirs.get(), options, &packet), SocketOutcome::kDescriptors);
    EXPECT_EQ(ReceivePacket(pair.theirs.get(), options, &packet), SocketOutcome::kDescriptors) << "as it was";
  }
  EXPECT_EQ(testing::OpenDescriptors(), before);
}

TEST(PacketSocket, EmptyPacketWithCredentialsIsNoEnd) {
  SocketPair pair;
  ASSERT_TRUE(AskForCredentials(pair.theirs.get()));
  ASSERT_EQ(::send(pair.ours.get(), "", 0, 0), 0);
  pair.ours.Reset();
  const ReceiveOptions options{.descriptors_refused = false, .credentials = true};
  ReceivedPacket packet;
  EXPECT_EQ(ReceivePacket(pair.theirs.get(), options, &packet), SocketOutcome::kDone);
  EXPECT_TRUE(packet.bytes.empty());
  EXPECT_EQ(ReceivePacket(pair.theirs.get(), options, &packet), SocketOutcome::kGone);
}

TEST(PeerIdentity, IsWhoConnected) {
  const SocketPair pair;
  const auto peer = IdentifyPeer(pair.ours.get());
  ASSERT_TRUE(peer);
  EXPECT_EQ(peer->pid, ::getpid());
  EXPECT_EQ(peer->uid, ::getuid());
  for (const PidfdSource source : {PidfdSource::kSocket, PidfdSource::kNumber}) {
    const auto pidfd = OpenPeerPidfd(pair.ours.get(), *peer, source);
    ASSERT_TRUE(pidfd);
    ASSERT_TRUE(pidfd->descriptor);
    EXPECT_FALSE(HasEnded(pidfd->descriptor.get()));
    EXPECT_TRUE(pidfd->proven == false || source == PidfdSource::kSocket) << "the number may be another's by now";
  }
}

TEST(PeerIdentity, NumberOfAnEndedProcessIsNotFound) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  const auto pidfd = OpenPeerPidfd(-1, {.pid = child}, PidfdSource::kNumber);
  ASSERT_FALSE(pidfd);
  EXPECT_EQ(pidfd.error().code, Code::kNotFound);
  const auto invisible = OpenPeerPidfd(-1, {.pid = 0}, PidfdSource::kNumber);
  ASSERT_TRUE(invisible);
  EXPECT_FALSE(invisible->descriptor);
}

TEST(BackgroundCloser, ClosesOthersThoughTheFirstWouldLinger) {
  std::string why_not;
  const auto lingering = testing::HostileDescriptor::Make(testing::HostileKind::kLingeringSocket, &why_not);
  ASSERT_NE(lingering, nullptr) << why_not;
  SocketPair tainted;
  SocketPair plain;
  ASSERT_EQ(testing::SendDescriptor(tainted.ours.get(), lingering->fd()), 0);
  lingering->DropOwn();
  {
    BackgroundCloser closer;
    closer.Close(std::move(tainted.theirs));
    closer.Close(std::move(plain.theirs));
    char byte = 0;
    pollfd hangup = {.fd = plain.ours.get(), .events = POLLIN, .revents = 0};
    EXPECT_EQ(::poll(&hangup, 1, testing::kHostileWaitMs), 1) << "the other side of the second";
    EXPECT_EQ(::recv(plain.ours.get(), &byte, 1, MSG_DONTWAIT), 0);
  }
}

TEST(BackgroundCloser, ClosesWhatItCouldGetNoThreadForWithTheNextOne) {
  SocketPair first;
  SocketPair second;
  BackgroundCloser closer;
  {
    const tier::testing::ThreadShortage shortage;
    const Status closing = closer.Close(std::move(first.theirs));
    ASSERT_FALSE(closing);
    EXPECT_EQ(closing.error().code, Code::kNoMemory) << closing.error().message;
    pollfd hangup = {.fd = first.ours.get(), .events = POLLIN, .revents = 0};
    EXPECT_EQ(::poll(&hangup, 1, 0), 0) << "its last close could wait for a stranger";
  }
  EXPECT_TRUE(closer.Close(std::move(second.theirs)));
  for (const SocketPair* pair : {&first, &second}) {
    pollfd hangup = {.fd = pair->ours.get(), .events = POLLIN, .revents = 0};
    EXPECT_EQ(::poll(&hangup, 1, testing::kHostileWaitMs), 1);
  }
}

TEST(BackgroundCloser, IsNotFullForGoodWhereItCouldGetNoThread) {
  BackgroundCloser closer;
  {
    const tier::testing::ThreadShortage shortage;
    for (size_t i = 0; i < kBackgroundClosesMax; ++i) {
      SocketPair pair;
      EXPECT_FALSE(closer.Close(std::move(pair.theirs)));
    }
    EXPECT_TRUE(closer.full());
  }
  while (closer.full()) std::this_thread::yield();  // Its thread is started by the first of these.
}

TEST(BackgroundCloser, LingersForNoneAtItsEndEvenWithoutAThread) {
  std::string why_not;
  const auto lingering = testing::HostileDescriptor::Make(testing::HostileKind::kLingeringSocket, &why_not);
  ASSERT_NE(lingering, nullptr) << why_not;
  SocketPair tainted;
  ASSERT_EQ(testing::SendDescriptor(tainted.ours.get(), lingering->fd()), 0);
  lingering->DropOwn();
  {
    const tier::testing::ThreadShortage shortage;
    BackgroundCloser closer;
    EXPECT_FALSE(closer.Close(std::move(tainted.theirs)));
  }  // The socket would linger for ten minutes.
  pollfd hangup = {.fd = tainted.ours.get(), .events = POLLIN, .revents = 0};
  EXPECT_EQ(::poll(&hangup, 1, 0), 1);
}

TEST(PeerIdentity, FileIsNobody) {
  const proto::FileDescriptor file(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  EXPECT_FALSE(IdentifyPeer(file.get()));
}

}  // namespace
}  // namespace tier::session

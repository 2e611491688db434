#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "tests/support/session/temporary_directory.h"
#include "tests/unit/libclient/client_fixture.h"

namespace tier::session_fake {
namespace {

using ::testing::HasSubstr;

int ConnectTo(const std::string& socket, tier_client** client) {
  tier_connect_options options = TIER_CONNECT_OPTIONS_INIT;
  options.socket = socket.c_str();
  return tier_connect(&options, client);
}

// A socket file that nobody listens on, as a crashed daemon leaves it.
class DeadSocket {
 public:
  DeadSocket() {
    const proto::FileDescriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path().data(), path().size());
    EXPECT_EQ(::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }
  std::string path() const { return directory_.path() + "/tierd.sock"; }

 private:
  session::testing::TemporaryDirectory directory_;
};

TEST(Connect, NamesTheSocketAndTheWayToStartADaemon) {
  tier_client* client = nullptr;
  EXPECT_TIER_ERROR(ConnectTo("/nonexistent/tierd.sock", &client), TIER_NOT_FOUND, "/nonexistent/tierd.sock");
  EXPECT_THAT(tier_last_error(),
              HasSubstr("start the daemon of /nonexistent (tierd --set daemon.socket_directory="
                        "/nonexistent, with its other options), or name another socket (TIERD_SOCKET)"));
  EXPECT_EQ(client, nullptr);
}

TEST(Connect, WhatIsNoSocketOfADaemonIsNotToBeStarted) {
  tier_client* client = nullptr;
  EXPECT_NE(ConnectTo("/etc/passwd", &client), TIER_OK);
  EXPECT_THAT(tier_last_error(), HasSubstr("name a socket of tierd, such as /etc/tierd.sock, or its directory"));
  EXPECT_EQ(client, nullptr);
}

TEST(Connect, ToASocketWithoutADaemonIsDisconnected) {
  const DeadSocket socket;
  tier_client* client = nullptr;
  EXPECT_TIER_ERROR(ConnectTo(socket.path(), &client), TIER_DISCONNECTED, "no daemon listens there any more");
}

TEST(Connect, ToADirectoryIsToTheDataSocketInIt) {
  const DeadSocket socket;
  const std::filesystem::path directory = std::filesystem::path(socket.path()).parent_path();
  tier_client* client = nullptr;
  EXPECT_TIER_ERROR(ConnectTo(directory, &client), TIER_DISCONNECTED, "no daemon listens there any more");
  EXPECT_THAT(tier_last_error(), HasSubstr(socket.path()));
}

TEST(Connect, SaysWhatAPathIsThatIsNoDataSocket) {
  const DeadSocket dead;
  const std::filesystem::path directory = std::filesystem::path(dead.path()).parent_path();
  tier_client* client = nullptr;
  std::filesystem::create_directories(directory / "deep/tierd.sock");
  EXPECT_TIER_ERROR(ConnectTo(directory / "deep", &client), TIER_INVALID, "tierd.sock: this is a directory");
  std::ofstream(directory / "file") << "x";
  EXPECT_TIER_ERROR(ConnectTo(directory / "file", &client), TIER_INVALID, "no socket: name a daemon's tierd.sock");
  const std::string control = directory / "control.sock";
  const proto::FileDescriptor stream(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, control.data(), control.size());
  ASSERT_EQ(::bind(stream.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(::listen(stream.get(), 1), 0);
  EXPECT_TIER_ERROR(ConnectTo(control, &client), TIER_INVALID, "name the tierd.sock beside it");
}

TEST(Connect, RefusesATooLongPath) {
  tier_client* client = nullptr;
  EXPECT_TIER_ERROR(ConnectTo("/" + std::string(200, 'x'), &client), TIER_INVALID, "xxx");
}

TEST(Connect, FindsTheSocketInTheEnvironment) {
  const FakeDaemon daemon;
  ASSERT_EQ(::setenv("TIERD_SOCKET", daemon.socket_path().c_str(), 1), 0);
  tier_client* client = nullptr;
  EXPECT_TIER_OK(tier_connect(nullptr, &client));
  ::unsetenv("TIERD_SOCKET");
  tier_session_view view{};
  view.struct_size = sizeof view;
  EXPECT_TIER_OK(tier_session(client, &view));
  EXPECT_EQ(view.epoch, 77u);
  EXPECT_STREQ(view.job, "fake-job");
  EXPECT_EQ(std::string(view.token).size(), 64u);
  EXPECT_EQ(view.socket, daemon.socket_path());
  EXPECT_EQ(view.connected, 1);
  tier_close(client);
}

TEST(Connect, TellsHowLongACallWaitsThatIsGivenNoTime) {
  for (const auto& [told, timeout_ms] : {std::pair(1500U, 1500U), std::pair(0U, 60'000U)}) {
    const FakeDaemon daemon({.request_timeout_ms = told});
    tier_client* client = nullptr;
    EXPECT_TIER_OK(ConnectTo(daemon.socket_path(), &client));
    tier_session_view view{};
    view.struct_size = sizeof view;
    EXPECT_TIER_OK(tier_session(client, &view));
    EXPECT_EQ(view.request_timeout_ms, timeout_ms);
    tier_close(client);
  }
}

TEST(Connect, RefusesALaunchThatDoesNotFit) {
  const FakeDaemon daemon;
  ::setenv("TORCHELASTIC_RUN_ID", std::string(proto::kLaunchSize, 'r').c_str(), 1);
  tier_client* client = nullptr;
  EXPECT_TIER_ERROR(ConnectTo(daemon.socket_path(), &client), TIER_INVALID, "at most 511; set TIERD_JOB_TOKEN");
  ::unsetenv("TORCHELASTIC_RUN_ID");
}

TEST(Connect, SendsNoDescriptor) {
  FakeDaemon daemon;
  tier_client* const client = Connect(daemon);
  EXPECT_EQ(daemon.counters().descriptors.load(), 0u);
  tier_close(client);
}

TEST(Connect, AnswersAChallengeBeforeTheWelcome) {
  FakeDaemon daemon({.challenges = true});
  tier_client* const client = Connect(daemon);  // The fake welcomes nobody before the right answer.
  tier_close(client);
}

TEST(Connect, HandsOnTheDaemonsRefusal) {
  const FakeDaemon daemon({.refusal = Code::kDenied});
  tier_client* client = nullptr;
  EXPECT_TIER_ERROR(ConnectTo(daemon.socket_path(), &client), TIER_DENIED, "the fake refuses everybody");
}

// As a notebook cell does that is run again: the process holds the job's token, its caller does not.
class OwnJobTest : public ::testing::Test {
 protected:
  OwnJobTest() { options_.socket = daemon_.socket_path().c_str(), options_.job = "fake-job"; }
  ~OwnJobTest() override { tier_close(first_), tier_close(second_); }

  const FakeDaemon daemon_{{.wants_token = true}};
  tier_connect_options options_ = TIER_CONNECT_OPTIONS_INIT;
  tier_client* first_ = nullptr;
  tier_client* second_ = nullptr;
};

TEST_F(OwnJobTest, IsJoinedWithoutTheTokenWhileAClientHasItOpen) {
  ASSERT_TIER_OK(tier_connect(&options_, &first_));
  EXPECT_TIER_OK(tier_connect(&options_, &second_));
  tier_close(std::exchange(first_, nullptr));
  EXPECT_TIER_OK(tier_connect(&options_, &first_)) << "the second client has the job open";
  tier_close(std::exchange(first_, nullptr));
  tier_close(std::exchange(second_, nullptr));
  EXPECT_TIER_ERROR(tier_connect(&options_, &first_), TIER_ALREADY_EXISTS, "the job is live");
  EXPECT_THAT(tier_last_error(), ::testing::Not(HasSubstr("of this process")));
}

TEST_F(OwnJobTest, ThatMustBeNewIsRefusedByNameOfTheClientInTheWay) {
  ASSERT_TIER_OK(tier_connect(&options_, &first_));
  options_.mode = TIER_MODE_CREATE;
  EXPECT_TIER_ERROR(tier_connect(&options_, &second_), TIER_ALREADY_EXISTS,
                    "a client of this process has the job open: use that one, or close it first");
}

TEST_F(OwnJobTest, OfAnotherNameIsNotTaken) {
  ASSERT_TIER_OK(tier_connect(&options_, &first_));
  options_.job = "other-job";
  EXPECT_TIER_ERROR(tier_connect(&options_, &second_), TIER_ALREADY_EXISTS, "the job is live");
  EXPECT_THAT(tier_last_error(), ::testing::Not(HasSubstr("of this process")));
}

TEST(Connect, ToAnotherProtocolIsAVersionMismatch) {
  const FakeDaemon daemon({.protocol_version = 9});
  tier_client* client = nullptr;
  EXPECT_TIER_ERROR(ConnectTo(daemon.socket_path(), &client), TIER_VERSION_MISMATCH, "protocol 9");
}

TEST(Connect, RefusesAWelcomeWithImpossibleSizes) {
  const std::vector<std::function<void(proto::Welcome&)>> spoils = {
      [](auto& welcome) { welcome.address_space_size = 0; },
      [](auto& welcome) { welcome.address_space_size = kWindowSizeMin; },  // Less than a window.
      [](auto& welcome) { welcome.address_space_size += kPageSize; },
      [](auto& welcome) { welcome.address_space_size = kAddressSpaceMax + kBlockSize; },
      [](auto& welcome) { welcome.address_space_size = ~uint64_t{0}; },
      [](auto& welcome) { welcome.window_size = 3 * kMiB; },
      [](auto& welcome) { welcome.windows_max = 0; },
      [](auto& welcome) { welcome.windows_max = kWindowsMax + 1; }};
  for (const auto& spoil : spoils) {
    const FakeDaemon daemon({.spoil_welcome = spoil});
    tier_client* client = nullptr;
    EXPECT_TIER_ERROR(ConnectTo(daemon.socket_path(), &client), TIER_VERSION_MISMATCH, "does not fit this libtier");
  }
}

TEST(Connect, RefusesOptionsOfNoSize) {
  tier_connect_options options{};
  tier_client* client = nullptr;
  EXPECT_TIER_ERROR(tier_connect(&options, &client), TIER_INVALID, "struct_size");
  EXPECT_TIER_ERROR(tier_connect(nullptr, nullptr), TIER_INVALID, "place for the client");
}

TEST(Connect, ReadsOptionsOfAnOlderHeader) {
  const FakeDaemon daemon;
  tier_connect_options options = TIER_CONNECT_OPTIONS_INIT;
  options.socket = daemon.socket_path().c_str();
  options.struct_size = offsetof(tier_connect_options, guarantee_bytes);
  options.spin = 99;  // Beyond what that older header had: must not be looked at.
  tier_client* client = nullptr;
  EXPECT_TIER_OK(tier_connect(&options, &client));
  tier_close(client);
}

TEST(Connect, RefusesImpossibleOptions) {
  tier_client* client = nullptr;
  tier_connect_options options = TIER_CONNECT_OPTIONS_INIT;
  options.mode = 7;
  EXPECT_TIER_ERROR(tier_connect(&options, &client), TIER_INVALID, "mode 7");
  options = TIER_CONNECT_OPTIONS_INIT;
  options.spin = 3;
  EXPECT_TIER_ERROR(tier_connect(&options, &client), TIER_INVALID, "spin 3");
  options = TIER_CONNECT_OPTIONS_INIT;
  options.copy_threads = 1000;
  EXPECT_TIER_ERROR(tier_connect(&options, &client), TIER_INVALID, "copy_threads");
  const std::string name(200, 'n');
  const FakeDaemon daemon;
  options = TIER_CONNECT_OPTIONS_INIT;
  options.socket = daemon.socket_path().c_str();
  options.job = name.c_str();
  EXPECT_TIER_ERROR(tier_connect(&options, &client), TIER_INVALID, "too long");
}

TEST(Connect, CloseSaysGoodbye) {
  FakeDaemon daemon;
  tier_close(Connect(daemon));
  EXPECT_EQ(daemon.counters().goodbyes.load(), 1u);
  tier_close(nullptr);
}

TEST(Connect, LeavesNoDescriptorsBehind) {
  FakeDaemon daemon;
  const auto count = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator());
  };
  tier_close(Connect(daemon));
  const auto before = count();
  for (int i = 0; i < 5; ++i) tier_close(Connect(daemon));
  EXPECT_EQ(count(), before);
}

TEST(Codes, HaveNames) {
  EXPECT_STREQ(tier_code_name(TIER_WOULD_DEADLOCK), "WOULD_DEADLOCK");
  EXPECT_STREQ(tier_code_name(-1), "UNKNOWN");
  EXPECT_STREQ(tier_code_name(99), "UNKNOWN");
  EXPECT_STREQ(tier_version(), "0.1.0");
}

TEST(Connect, WithoutAThreadConnectingIsRefused) {
  FakeDaemon daemon;
  tier_connect_options options = TIER_CONNECT_OPTIONS_INIT;
  options.socket = daemon.socket_path().c_str();
  tier_client* client = nullptr;
  {
    const NoThreads none;
    EXPECT_TIER_ERROR(tier_connect(&options, &client), TIER_NO_MEMORY, "tier-service");
  }
  EXPECT_EQ(client, nullptr);
  EXPECT_TRUE(SignalsOpen());
  EXPECT_TIER_OK(tier_connect(&options, &client));
  tier_close(client);
}

}  // namespace
}  // namespace tier::session_fake

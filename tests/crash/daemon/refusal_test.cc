// How a start that is refused ends: by whom the cause can be removed, and with which priority a journal gets the
// reason.
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/crash/daemon/daemon_process.h"

namespace tier::crash {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// What a process writes to a pipe, which is told of as the journal's stream.
struct Journal {
  Journal() {
    std::array<int, 2> ends{};
    EXPECT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
    reader = proto::FileDescriptor(ends[0]);
    writer = proto::FileDescriptor(ends[1]);
    struct stat about{};
    EXPECT_EQ(::fstat(writer.get(), &about), 0);
    stream = fmt::format("{}:{}", about.st_dev, about.st_ino);
  }
  // Until the last writer has ended.
  std::string Read() {
    writer = {};
    std::string text;
    std::array<char, 4096> part{};
    for (ssize_t got = 0; (got = ::read(reader.get(), part.data(), part.size())) > 0;)
      text.append(part.data(), static_cast<size_t>(got));
    return text;
  }

  proto::FileDescriptor reader;
  proto::FileDescriptor writer;
  std::string stream;
};

struct Ended {
  int status = 0;
  std::string journal;
};

Ended RunInJournal(const std::vector<std::string>& arguments) {
  ScratchDirectory scratch;
  Journal journal;
  DaemonProcess daemon(scratch, {.arguments = arguments,
                                 .environment = {{"JOURNAL_STREAM", journal.stream}},
                                 .uid = {},
                                 .inherited = {},
                                 .output = journal.writer.get()});
  std::string text = journal.Read();
  return {daemon.Wait(), std::move(text)};
}

TEST(Refusal, BeforeTheLogIsUpIsAnErrorInTheJournal) {
  const Ended ended = RunInJournal({"--set", "arena.maximun=1GiB"});
  EXPECT_EQ(ended.status, EX_CONFIG);
  EXPECT_THAT(ended.journal, AllOf(StartsWith("<3>tierd: "), HasSubstr("'arena.maximum'")));
}

TEST(Refusal, OfACommandLineIsAnErrorInTheJournal) {
  const Ended ended = RunInJournal({"--nonsense"});
  EXPECT_EQ(ended.status, 2);
  EXPECT_THAT(ended.journal, StartsWith("<3>tierd: "));
}

TEST(Refusal, ByTheHostIsAnErrorInTheJournal) {
  const Ended ended = RunInJournal({"--set", "arena.maximum=900TiB"});
  EXPECT_EQ(ended.status, EX_CONFIG);
  EXPECT_THAT(ended.journal, StartsWith("<3>tierd: "));
}

TEST(Refusal, OnAStreamThatIsNotTheJournalsIsPlain) {
  ScratchDirectory scratch;
  // A process below a service has the variable, and standard error elsewhere.
  const Outcome early = RunTierd(scratch, {"--set", "arena.maximun=1GiB"}, {{"JOURNAL_STREAM", "1:2"}});
  EXPECT_EQ(early.status, EX_CONFIG);
  EXPECT_THAT(early.output, StartsWith("tierd: "));
  auto arguments = SmallDaemon(scratch);
  arguments.insert(arguments.end(), {"--set", "arena.maximum=900TiB"});
  EXPECT_THAT(RunTierd(scratch, arguments, {{"JOURNAL_STREAM", "1:2"}}).output, Not(HasSubstr("<")));
}

TEST(Refusal, OfAConfigurationThatIsMissingOrWrongIsForItsOperator) {
  ScratchDirectory scratch;
  EXPECT_EQ(RunTierd(scratch, {"--config", scratch / "none.toml"}).status, EX_CONFIG);
  std::ofstream(scratch / "tierd.toml") << "[log]\nlevel = \"loud\"\n";
  EXPECT_EQ(RunTierd(scratch, {"--config", scratch / "tierd.toml"}).status, EX_CONFIG);
}

// The same words from the check and from the start.
void ExpectRefused(const ScratchDirectory& scratch, std::vector<std::string> arguments, const std::string& words) {
  for (int times = 0; times < 2; ++times) {
    const Outcome outcome = RunTierd(scratch, arguments);
    EXPECT_EQ(outcome.status, EX_CONFIG) << outcome.output;
    EXPECT_THAT(outcome.output, HasSubstr(words));
    arguments.emplace_back("--check-config");
  }
}

TEST(Refusal, OfADirectoryThatCannotServeIsForItsOperator) {
  ScratchDirectory scratch;
  std::ofstream(scratch / "file") << "x";
  for (const char* option : {"daemon.socket_directory", "daemon.data_directory"}) {
    for (const std::string& place : {std::string("/proc/tierd"), std::string("/proc/deep/tierd"),
                                     std::string("/sys/tierd"), scratch / "file", scratch / "file/tierd"}) {
      auto arguments = SmallDaemon(scratch);
      arguments.insert(arguments.end(), {"--set", fmt::format("{}={}", option, place)});
      ExpectRefused(scratch, arguments, option);
    }
  }
}

TEST(Refusal, OfWhatAnOperatorHasToRepairIsToldByTheCheckToo) {
  ScratchDirectory scratch;
  std::filesystem::create_directory(scratch / "data");
  for (const char* file : {"data/quotas", "data/owners"}) {
    std::ofstream(scratch / file) << "garbage\n";
    ExpectRefused(scratch, SmallDaemon(scratch), "cannot be read from " + scratch / file);
    std::filesystem::remove(scratch / file);
  }
  auto arguments = SmallDaemon(scratch);
  arguments.insert(arguments.end(), {"--set", "daemon.socket_directory=" + scratch / std::string(100, 'x')});
  ExpectRefused(scratch, arguments, "at most 107 are allowed");
}

TEST(Refusal, IsNotForAGroupOfAdministratorsThatTheSystemDoesNotKnow) {
  constexpr char kSentence[] = "daemon.admin_group is nosuchgroup, and only root";
  const std::vector<std::string> option = {"--set", "daemon.admin_group=nosuchgroup"};
  ScratchDirectory scratch;
  auto arguments = SmallDaemon(scratch);
  arguments.insert(arguments.end(), option.begin(), option.end());
  arguments.emplace_back("--check-config");
  const Outcome checked = RunTierd(scratch, arguments);
  EXPECT_EQ(checked.status, 0) << checked.output;
  EXPECT_THAT(checked.output, HasSubstr(std::string("warning: ") + kSentence));
  DaemonProcess daemon(scratch, {.arguments = option, .environment = {}, .uid = {}, .inherited = {}});
  ASSERT_TRUE(daemon.WaitReady()) << daemon.Output();
  EXPECT_THAT(daemon.Output(), HasSubstr(kSentence));
}

TEST(Refusal, OfAnAddressThatIsTakenNamesIt) {
  const proto::FileDescriptor taken(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ASSERT_EQ(::bind(taken.get(), reinterpret_cast<const sockaddr*>(&address), size), 0);
  ASSERT_EQ(::listen(taken.get(), 1), 0);
  ASSERT_EQ(::getsockname(taken.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  ScratchDirectory scratch;
  const std::string listen = fmt::format("127.0.0.1:{}", ntohs(address.sin_port));
  auto arguments = SmallDaemon(scratch);
  arguments.insert(arguments.end(), {"--set", "metrics.listen=" + listen});
  const Outcome outcome = RunTierd(scratch, arguments);
  EXPECT_EQ(outcome.status, EX_CONFIG);
  EXPECT_THAT(outcome.output, AllOf(HasSubstr(listen), HasSubstr("metrics.listen")));
}

}  // namespace
}  // namespace tier::crash

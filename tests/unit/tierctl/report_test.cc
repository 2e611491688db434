// What a support bundle may have and what it has of this machine; and how other programs are run for it.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/base/check.h"
#include "proto/mapping.h"
#include "tests/support/session/temporary_directory.h"
#include "tools/tierctl/host_files.h"
#include "tools/tierctl/masking.h"
#include "tools/tierctl/page_reader.h"
#include "tools/tierctl/report.h"
#include "tools/tierctl/report_text.h"
#include "tools/tierctl/run_program.h"

namespace tier::tierctl {
namespace {

TEST(NotWritten, SaysWhichOfTheReasonsItWas) {
  EXPECT_EQ(NotWritten("/nonexist/x", ENOENT).code, Code::kNotFound);
  EXPECT_EQ(NotWritten("/nonexist/x", ENOENT).message, "cannot write /nonexist/x: the folder /nonexist does not exist");
  EXPECT_EQ(NotWritten("/etc/passwd/x", ENOTDIR).code, Code::kNotFound);
  EXPECT_EQ(NotWritten("/closed/x", EACCES).code, Code::kDenied);
  EXPECT_EQ(NotWritten("/full/x", ENOSPC).code, Code::kNoSpace);
  EXPECT_EQ(NotWritten("/tmp/x", EEXIST).code, Code::kAlreadyExists);
  EXPECT_EQ(NotWritten("/tmp/x", EEXIST).message, "cannot write /tmp/x: it is there already; choose another -o");
  EXPECT_EQ(NotWritten("/tmp/xxx", ENAMETOOLONG).code, Code::kInvalid);
}

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;

const std::string kToken = "0123456789abcdef0123456789ABCDEF0123456789abcdef0123456789abcdef";

TEST(Report, SaysAReasonOnce) {
  Bundle bundle;
  bundle.Miss("status.json", "no daemon answers");
  bundle.Miss("log.txt", "journalctl is not there");
  bundle.Miss("jobs.json", "no daemon answers");
  EXPECT_THAT(MissingLines(bundle),
              ElementsAre("status.json, jobs.json: no daemon answers", "log.txt: journalctl is not there"));
  EXPECT_THAT(ReadmeOf(bundle, "now"), HasSubstr("  status.json, jobs.json: no daemon answers\n"));
}

TEST(Report, MasksTokensWhereverTheyStand) {
  EXPECT_EQ(Masked(kToken), "<masked>");
  EXPECT_EQ(Masked("a " + kToken + ", and\n{\"" + kToken + "00\"}\n"), "a <masked>, and\n{\"<masked>\"}\n");
  EXPECT_EQ(Masked(kToken.substr(1)), kToken.substr(1)) << "63 digits are none";
  EXPECT_EQ(WithoutTokens("x" + kToken), "x<masked>");
  EXPECT_EQ(WithoutTokens(""), "");
}

TEST(Report, MasksWhatIsCalledASecret) {
  EXPECT_EQ(Masked("# admin_password = \"hunter2\" # so\nmaximum = 5\n"), "# admin_password = <masked>\nmaximum = 5\n");
  EXPECT_EQ(Masked("TIERD_JOB_TOKEN=abc\n"), "TIERD_JOB_TOKEN= <masked>\n");
  EXPECT_EQ(Masked("tierd --set x=1 --api-token=abc"), "tierd --set x=1 --api-token= <masked>");
  EXPECT_EQ(Masked("\"Secret\" = 1"), "\"Secret\" = <masked>");
  EXPECT_EQ(Masked("level = \"info\"\r\n"), "level = \"info\"\r\n");
}

TEST(Report, MasksSecretsHoweverTheyAreWritten) {
  const std::string letters = "abcdefghij0123456789KLMNOPQRSTUV";
  const std::vector<std::pair<std::string, std::string>> texts_and_secrets = {
      {"# password: hunter2", "hunter2"},
      {"    Password : 'hunter2'", "hunter2"},
      {"machine a login bob password hunter2", "hunter2"},
      {"tierd --passwd hunter2", "hunter2"},
      {"passphrase=correct horse", "horse"},
      {"MYSQL_PWD=hunter2 DB_PASS=hunter3", "hunter"},
      {"password: 1234", "1234"},
      {"https://alice:s3cretpw@host/x", "s3cretpw"},
      {"to postgres://alice:s3/cr@etpw@host:5432/x, and on", "etpw"},
      {"https://0123456789abcdef01@host/x", "abcdef"},
      {"Authorization: Bearer abcdefgh", "abcdefgh"},
      {"sent 'Bearer eyJhbGciOi.J9-x_y', and", "eyJ"},
      {"curl -H \"authorization: Basic YWxpY2U6cHc=\"", "YWxp"},
      {"is Basic YWxpY2U6cHc= good", "YWxp"},
      {"{\"secret_key\": \"abc\", \"a\": 1}", "abc"},
      {"API key: abc", "abc"},
      {"aws.secret-access-key = abc", "abc"},
      {"the token 5f3c9a77 was given", "5f3c"},
      {"--api-token 12ab", "12ab"},
      {"npm //registry/:_authToken=abc", "abc"},
      {"basic_auth: bob:hunter3", "hunter3"},
      {"basic auth: bob:hunter3", "hunter3"},
      {"basic_auth:\n  - bob:hunter3\n\n  - x:hunter4\nb: 1", "hunter"},
      {"password: |\n  hunter2\nb: 1", "hunter2"},
      {"password = \"\"\"\nhunter2\n\"\"\"\nb = 1", "hunter2"},
      {"api_tokens = [\n\"abcd\",\n]\nb = 1", "abcd"},
      {"x -----BEGIN RSA PRIVATE KEY-----\nMIIEow\nIBAAKC\n-----END RSA PRIVATE KEY-----\nb", "MIIE"},
      {"private_key: -----BEGIN PRIVATE KEY-----\nMIIEow\n-----END PRIVATE KEY-----\nb", "MIIE"},
      {"-----BEGIN PRIVATE KEY-----\\nMIIEow\\n-----END PRIVATE KEY-----\nb", "MIIE"},
      {"2026-11-27T18:00:00 host tierd[7]: password: hunter2", "hunter2"},
  };
  for (const auto& [text, secret] : texts_and_secrets) {
    const std::string masked = Masked(text);
    EXPECT_THAT(masked, AllOf(HasSubstr("<masked>"), Not(HasSubstr(secret)))) << text;
    if (text.find("\nb") == text.npos) continue;
    EXPECT_EQ(masked.back(), text.back()) << "what follows stays: " << text;
  }
  for (const std::string prefix : {"ghp_", "gho_", "github_pat_", "glpat-", "xoxb-", "hf_", "AKIA"}) {
    EXPECT_EQ(Masked("was " + prefix + letters + ", and"), "was <masked>, and");
    EXPECT_EQ(WithoutTokens("{\"a\": \"" + prefix + letters + "\"}"), "{\"a\": \"<masked>\"}");
  }
  EXPECT_EQ(WithoutTokens("{\"url\": \"https://a:b@c\"}"), "{\"url\": \"https://a:<masked>@c\"}");
}

TEST(Report, LeavesWhatIsNoSecret) {
  for (const std::string text : {
           "2026-11-27T18:00:00.1+00:00 host tierd[7]: <6>job 'token' of uid 1000 closed: its session ended",
           "job 'token': 3 tensors, tensor 'secret': 4 pages",
           "job 1000/token: 3 pages",
           "joining job 'train' needs its token (TIERD_JOB_TOKEN)",
           "this is not the token of job 'train-2026', which was opened without a session",
           "the job token must be 64 hexadecimal digits",
           "a job token and a launch were given; give one of them",
           "page_token is of a list of tensors",
           "page_token is unknown: begin the list again, without one",
           "cannot read /run/secrets/token: No such file or directory",
           "max_tokens = 4096 # tokens: 512, tokens 32",
           "tokenizer: bpe-50257, keys: 5, key = layers.0",
           "the password of the user",
           "serving metrics on http://127.0.0.1:9464/metrics@2, git at ssh://git@host/x",
           "hf_model_layers_0_weight, ghp_x, AKIA, a basic setting, Basic Settings, bearer of news",
           "tierd_job_stall_seconds_total{tierd_job=\"token\",uid=\"1000\"} 12.5",
           "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue",
           "PWD=/root",
           "-----BEGIN CERTIFICATE-----\nMIIE\n-----END CERTIFICATE-----\n",
       }) {
    EXPECT_EQ(Masked(text), text);
  }
}

TEST(Report, AJobIsNeverTakenForAnotherUsers) {
  v1::Job job;
  job.set_uid(1234);
  job.set_name("1300/train");
  EXPECT_EQ(NameForDaemon(job, true), "1234/1300/train") << "1300/train is uid 1300's train";
  EXPECT_EQ(NameForDaemon(job, false), "1300/train");
}

TEST(Report, ADocumentOfJsonStaysOne) {
  Bundle bundle;
  bundle.Add("stalls.json", "{\"key\": \"token=x\", \"t\": \"" + kToken + "\"}");
  EXPECT_THAT(bundle.files, Contains(Pair("stalls.json", "{\"key\": \"token=x\", \"t\": \"<masked>\"}")));
  bundle.Miss("log.txt", "no " + kToken);
  EXPECT_THAT(bundle.missing, Contains(Pair("log.txt", "no <masked>")));
}

class KernelFacts : public ::testing::Test {
 protected:
  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path whole = directory_.path() + path;
    std::filesystem::create_directories(whole.parent_path());
    std::ofstream(whole) << text;
  }
  std::string File(const std::string& name) {
    for (const auto& [each, text] : bundle_.files) {
      if (each == name) return text;
    }
    return "missing";
  }

  session::testing::TemporaryDirectory directory_;
  Bundle bundle_;
};

TEST_F(KernelFacts, AreThoseOfTheDaemonAndItsPaths) {
  Write("/proc/version", "Linux 6.1\n");
  Write("/proc/meminfo", "MemTotal: 5 kB\n");
  Write("/proc/sys/vm/nr_hugepages", "512\n");
  Write("/proc/self/mountinfo",
        "20 1 8:1 / / rw - ext4 /dev/root rw\n"
        "21 20 8:2 / /var/lib rw - xfs /dev/sdb rw\n"
        "22 20 8:3 / /var/library rw - ext4 /dev/sdc rw\n");
  Write("/proc/7/limits", "Max locked memory unlimited\n");
  Write("/proc/7/cgroup", "0::/system.slice/tierd.service\n");
  Write("/sys/fs/cgroup/system.slice/tierd.service/memory.max", "1073741824\n");
  Write("/sys/fs/cgroup/system.slice/io.max", "8:0 rbps=1\n8:16 wbps=2\n");
  AddKernelFacts(directory_.path(), 7, {"/var/lib/tierd", "/dev/nvme0n1"}, &bundle_);
  EXPECT_EQ(File("kernel/version"), "Linux 6.1\n");
  EXPECT_EQ(File("kernel/meminfo"), "MemTotal: 5 kB\n");
  EXPECT_THAT(File("kernel/settings"),
              AllOf(HasSubstr("/proc/sys/vm/nr_hugepages 512\n"), HasSubstr("/proc/sys/kernel/io_uring_disabled -\n")));
  EXPECT_EQ(File("kernel/mounts"),
            "/var/lib/tierd\n  21 20 8:2 / /var/lib rw - xfs /dev/sdb rw\n"
            "/dev/nvme0n1\n  20 1 8:1 / / rw - ext4 /dev/root rw\n");
  EXPECT_EQ(File("kernel/limits"), "Max locked memory unlimited\n");
  EXPECT_THAT(File("kernel/cgroup"), AllOf(HasSubstr("tierd.service\n  memory.max 1073741824\n"),
                                           HasSubstr("/system.slice\n  io.max 8:0 rbps=1\n  io.max 8:16 wbps=2\n")));
  EXPECT_THAT(bundle_.missing, Contains(Pair("kernel/pressure-memory", HasSubstr("cannot read"))));
}

TEST_F(KernelFacts, WithoutADaemonItsLimitsAreMissing) {
  AddKernelFacts(directory_.path(), Fail(Code::kDisconnected, "no daemon answers"), {}, &bundle_);
  EXPECT_THAT(bundle_.missing, Contains(Pair("kernel/cgroup", "no daemon answers")));
  EXPECT_THAT(bundle_.missing, Contains(Pair("kernel/mounts", HasSubstr("mountinfo"))));
  const std::string readme = ReadmeOf(bundle_, "2026-11-27 18:00:00 UTC");
  EXPECT_THAT(readme, AllOf(HasSubstr("at 2026-11-27 18:00:00 UTC"), HasSubstr("kernel/cgroup: no daemon answers\n"),
                            HasSubstr("kernel/settings (")));
  EXPECT_THAT(ReadmeOf(Bundle{}, "now"), HasSubstr("Nothing is missing."));
}

TEST(RunProgram, GivesWhatIsPrinted) {
  EXPECT_EQ(RunProgram({"printf", "%s|%s", "a b", "$HOME"}), "a b|$HOME") << "no shell reads it";
  EXPECT_EQ(RunProgram({"cat"}), "") << "standard input is empty";
  const auto large = RunProgram({"head", "--bytes=20000000", "/dev/zero"});
  ASSERT_TRUE(large);
  EXPECT_EQ(large->size(), kProgramOutputMax);
}

TEST(RunProgram, FailuresAreTold) {
  EXPECT_EQ(RunProgram({"no-such-program-anywhere"}).error().code, Code::kNotFound);
  const auto failed = RunProgram({"sh", "-c", "echo why >&2; exit 3"});
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, Code::kIoError);
  EXPECT_EQ(failed.error().message, "sh ended with status 3: why");
  const auto killed = RunProgram({"sh", "-c", "kill -9 $$"});
  ASSERT_FALSE(killed);
  EXPECT_THAT(killed.error().message, HasSubstr("status 137"));
}

TEST(RunProgram, OneThatDoesNotEndIsKilled) {
  const auto late = RunProgram({"cat", "/dev/zero"}, {.timeout = std::chrono::milliseconds(50), .output = -1});
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, Code::kTimeout);
  EXPECT_EQ(late.error().message, "cat did not end within 50 ms and was killed");
}

class HostFiles : public ::testing::Test {
 protected:
  std::string Write(const std::string& name, const std::string& text) {
    std::ofstream(At(name)) << text;
    return At(name);
  }
  std::string At(const std::string& name) { return directory_.path() + "/" + name; }

  session::testing::TemporaryDirectory directory_;
};

TEST_F(HostFiles, ARegularFileIsRead) {
  EXPECT_EQ(ReadHostFile(Write("tierd.toml", "a = 1\n")), "a = 1\n");
  EXPECT_EQ(ReadHostFile(Write("empty", "")), "");
  EXPECT_EQ(ReadHostFile(Write("most", std::string(kHostFileBytesMax, 'x'))), std::string(kHostFileBytesMax, 'x'));
  EXPECT_TRUE(ReadHostFile("/proc/self/limits")) << "of the kernel, which says no size";
}

TEST_F(HostFiles, WhatIsNoRegularFileIsRefusedAtOnce) {
  ASSERT_EQ(::mkfifo(At("pipe").c_str(), 0600), 0);
  std::filesystem::create_symlink("pipe", At("link"));
  for (const std::string& path : {At("pipe"), At("link"), std::string("/dev/zero"), directory_.path()}) {
    const auto refused = ReadHostFile(path);
    ASSERT_FALSE(refused) << path;
    EXPECT_EQ(refused.error().code, Code::kDenied);
    EXPECT_EQ(refused.error().message, "cannot read " + path + ": it is no regular file");
  }
  EXPECT_EQ(ReadHostFile(At("none")).error().code, Code::kNotFound);
  EXPECT_EQ(ReadHostFile("").error().code, Code::kDenied);
}

// As tools for configuration keep theirs: /etc/tierd/tierd.toml -> ..data/tierd.toml, and ..data -> ..2026.
TEST_F(HostFiles, LinksOfTheCallerAreFollowed) {
  std::filesystem::create_directory(At("..2026"));
  Write("..2026/tierd.toml", "a = 1\n");
  std::filesystem::create_directory_symlink("..2026", At("..data"));
  std::filesystem::create_symlink("..data/../..data/tierd.toml", At("tierd.toml"));
  std::filesystem::create_symlink(At("tierd.toml"), At("absolute"));
  for (const char* name : {"tierd.toml", "absolute", "..data/tierd.toml"})
    EXPECT_EQ(ReadHostFile(At(name)), "a = 1\n") << name;
  EXPECT_TRUE(ReadHostFile("/proc/self/mounts")) << "links of root";
}

TEST_F(HostFiles, LinksThatLeadNowhereAreRefused) {
  std::filesystem::create_symlink("round", At("round"));
  EXPECT_EQ(ReadHostFile(At("round")).error().code, Code::kDenied);
  EXPECT_THAT(ReadHostFile(At("round")).error().message, HasSubstr("oo many levels of symbolic links"));
  std::filesystem::create_symlink("none", At("dangling"));
  EXPECT_EQ(ReadHostFile(At("dangling")).error().code, Code::kNotFound);
  EXPECT_EQ(ReadHostFile(Write("file", "") + "/").error().code, Code::kNotFound) << "it is no folder";
}

TEST_F(HostFiles, LinksOfAnotherUserAreRefused) {
  constexpr uint32_t kOther = 12345;
  std::filesystem::create_directory(At("folder"));
  Write("folder/file", "secret");
  std::filesystem::create_symlink("folder/file", At("link"));
  std::filesystem::create_directory_symlink("folder", At("way"));
  for (const char* name : {"link", "way"}) {
    if (::lchown(At(name).c_str(), kOther, kOther) != 0) GTEST_SKIP() << "needs root, to make a link another user's";
  }
  for (const std::string& path : {At("link"), At("way/file")}) {
    const auto refused = ReadHostFile(path);
    ASSERT_FALSE(refused) << path;
    EXPECT_EQ(refused.error().code, Code::kDenied);
    EXPECT_THAT(refused.error().message,
                AllOf(HasSubstr("cannot read " + path), HasSubstr("is a symbolic link of uid 12345, and only those of "
                                                                  "root and of uid 0 are followed")));
    EXPECT_EQ(ReadHostFile(path, kOther), "secret") << "for that user they are";
  }
}

TEST_F(HostFiles, ALongOneIsRefused) {
  const auto refused = ReadHostFile(Write("long", std::string(kHostFileBytesMax + 1, 'x')));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kNoMemory);
  EXPECT_THAT(refused.error().message, HasSubstr("it is longer than 1048576 bytes"));
}

TEST(Peers, RootTheSystemsUserAndTheCallerMayNameFiles) {
  for (const std::vector<uint32_t>& peers : {std::vector<uint32_t>{0}, {1000}, {990}, {0, 990, 1000}})
    EXPECT_TRUE(CheckPeers(peers, 1000, 990));
  for (const std::vector<uint32_t>& peers : {std::vector<uint32_t>{1001}, {0, 1001}}) {
    const Status refused = CheckPeers(peers, 0, 990);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Code::kDenied);
    EXPECT_THAT(refused.error().message, AllOf(HasSubstr("uid 1001 answers here"), HasSubstr("as uid 1001")));
  }
  EXPECT_FALSE(CheckPeers({990}, 0, std::nullopt)) << "a machine without that user";
  EXPECT_THAT(CheckPeers({}, 0, 990).error().message, HasSubstr("the kernel does not say"));
}

TEST(Peers, AreThoseOfTheSocketsOfThisProcess) {
  const size_t before = PeersOfOwnSockets().size();
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
  const proto::FileDescriptor one(ends[0]);
  const proto::FileDescriptor other(ends[1]);
  EXPECT_EQ(PeersOfOwnSockets().size(), before) << "as those that a program is started with";
  const proto::FileDescriptor unconnected(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(PeersOfOwnSockets().size(), before);
  ASSERT_EQ(::fcntl(one.get(), F_SETFD, FD_CLOEXEC), 0);
  EXPECT_EQ(PeersOfOwnSockets().size(), before + 1);
  EXPECT_THAT(PeersOfOwnSockets(), Contains(::geteuid()));
}

// Takes one connection, and sends it a byte each time it has not hung up for a millisecond.
class SlowServer {
 public:
  SlowServer() {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    socklen_t size = sizeof address;
    TIER_CHECK(::bind(listener_.get(), any, size) == 0 && ::listen(listener_.get(), 1) == 0, "errno {}", errno);
    TIER_CHECK(::getsockname(listener_.get(), any, &size) == 0, "errno {}", errno);
    address_ = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
    thread_ = std::thread([this] { Serve(); });
  }
  ~SlowServer() {
    (void)::shutdown(listener_.get(), SHUT_RDWR);
    thread_.join();
  }
  SlowServer(const SlowServer&) = delete;
  SlowServer& operator=(const SlowServer&) = delete;
  const std::string& address() const { return address_; }

 private:
  void Serve() const {
    const proto::FileDescriptor client(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!client) return;
    pollfd gone{.fd = client.get(), .events = POLLRDHUP, .revents = 0};
    while (::poll(&gone, 1, 1) == 0) (void)::send(client.get(), "x", 1, MSG_NOSIGNAL);
  }

  const proto::FileDescriptor listener_{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  std::string address_;
  std::thread thread_;
};

TEST(PageReader, OneDeadlineHoldsForTheWholePage) {
  const SlowServer server;
  const auto late = ReadPage(server.address(), "/metrics", std::chrono::milliseconds(100));
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, Code::kTimeout);
  EXPECT_THAT(late.error().message, HasSubstr("did not end within 100 ms"));
}

TEST(PageReader, SaysWhyThereIsNoPage) {
  EXPECT_THAT(ReadPage("nowhere", "/metrics").error().message, HasSubstr("it has no port"));
  EXPECT_EQ(ReadPage("tierd.example:9464", "/metrics").error().code, Code::kDisconnected) << "no name is looked up";
  const auto refused = ReadPage("127.0.0.1:1", "/metrics");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kDisconnected);
  EXPECT_THAT(refused.error().message, HasSubstr("cannot read metrics from 127.0.0.1:1"));
}

}  // namespace
}  // namespace tier::tierctl

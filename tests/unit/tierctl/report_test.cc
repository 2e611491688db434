// What a support bundle may have and what it has of this machine; and how other programs are run for it.
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/session/temporary_directory.h"
#include "tools/tierctl/page_reader.h"
#include "tools/tierctl/report_text.h"
#include "tools/tierctl/run_program.h"

namespace tier::tierctl {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Pair;

const std::string kToken = "0123456789abcdef0123456789ABCDEF0123456789abcdef0123456789abcdef";

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
  AddKernelFacts(directory_.path(), 0, {}, &bundle_);
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

TEST(PageReader, SaysWhyThereIsNoPage) {
  EXPECT_THAT(ReadPage("nowhere", "/metrics").error().message, HasSubstr("it has no port"));
  const auto refused = ReadPage("127.0.0.1:1", "/metrics");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kDisconnected);
  EXPECT_THAT(refused.error().message, HasSubstr("cannot read metrics from 127.0.0.1:1"));
}

}  // namespace
}  // namespace tier::tierctl

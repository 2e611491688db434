// See scratch.h.
#include "tests/support/storage/scratch.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <random>

#include <poll.h>
#include <unistd.h>

#include "daemon/base/check.h"

namespace tier::storage::testing {

ScratchDirectory::ScratchDirectory() {
  const char* base = std::getenv("TMPDIR");
  path_ = std::string(base != nullptr ? base : "/var/tmp") + "/tier-storage-XXXXXX";
  TIER_CHECK(::mkdtemp(path_.data()) != nullptr, "{}: errno {}", path_, errno);
}

ScratchDirectory::~ScratchDirectory() {
  std::error_code ignored;  // Best effort: a leftover directory harms no test.
  std::filesystem::remove_all(path_, ignored);
}

WindowMemory::WindowMemory(uint64_t size) {
  auto file = proto::CreateMemoryFile("tier-test-window", size);
  TIER_CHECK(file.has_value(), "{}", file.error().message);
  file_ = std::move(*file);
  auto mapping = proto::Mapping::Map(file_.get(), 0, size, proto::Access::kReadWrite);
  TIER_CHECK(mapping.has_value(), "{}", mapping.error().message);
  mapping_ = std::move(*mapping);
}

void WindowMemory::Fill(uint64_t seed) const { FillRandom(bytes(), seed); }

void FillRandom(std::span<std::byte> bytes, uint64_t seed) {
  std::mt19937_64 random(seed);
  for (size_t at = 0; at < bytes.size(); at += sizeof(uint64_t)) {
    const uint64_t word = random();
    std::memcpy(bytes.data() + at, &word, std::min(sizeof word, bytes.size() - at));
  }
}

bool RunCommand(const std::string& command) {
  return std::system(("{ " + command + " ; } >/dev/null 2>&1").c_str()) == 0;
}

std::string CommandLine(const std::string& command) {
  struct Close {
    void operator()(FILE* pipe) const { ::pclose(pipe); }
  };
  const std::unique_ptr<FILE, Close> pipe(::popen((command + " 2>/dev/null").c_str(), "r"));
  char line[512] = "";
  if (!pipe || std::fgets(line, sizeof line, pipe.get()) == nullptr) return "";
  line[std::strcspn(line, "\n")] = '\0';
  return line;
}

bool IsRoot() { return ::geteuid() == 0; }

bool HasTool(const std::string& name) { return RunCommand("command -v " + name); }

Cleanup::~Cleanup() {
  for (auto command = commands_.rbegin(); command != commands_.rend(); ++command) (void)RunCommand(*command);
}

bool WaitReadable(int fd, int timeout_ms) {
  pollfd waited{.fd = fd, .events = POLLIN, .revents = 0};
  return ::poll(&waited, 1, timeout_ms) == 1;
}

}  // namespace tier::storage::testing

// See kernel_holdings.h.
#include "tests/support/daemon_process/kernel_holdings.h"

#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>

namespace tier::daemon_process {
namespace {

constexpr std::string_view kMemoryFile = "/memfd:";
constexpr std::string_view kGone = " (deleted)";
// gRPC makes these when it is first called, and keeps some.
constexpr uint64_t kGrpcKeeps = 4;

// "socket:[17]" is a socket, "/memfd:tierd-window-3 (deleted)" a window.
std::string KindOf(std::string_view target) {
  if (target.ends_with(kGone)) target.remove_suffix(kGone.size());
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  if (target.starts_with(kMemoryFile)) {
    while (is_digit(target.back())) target.remove_suffix(1);
  } else if (const size_t bracket = target.find(":["); bracket != target.npos && is_digit(target[bracket + 2])) {
    target = target.substr(0, bracket);
  }
  return std::string(target);
}

void AddMore(const std::map<std::string, uint64_t>& before, const std::map<std::string, uint64_t>& now,
             const std::string& what, std::string* more) {
  for (const auto& [kind, count] : now) {
    const auto known = before.find(kind);
    uint64_t had = known == before.end() ? 0 : known->second;
    if (kind == "anon_inode:[eventfd]" || kind == "anon_inode:[eventpoll]") had += kGrpcKeeps;
    if (count > had) *more += std::to_string(count - had) + " more " + kind + " (" + what + "); ";
  }
}

}  // namespace

KernelHoldings HoldingsOf(pid_t pid) {
  namespace fs = std::filesystem;
  const fs::path process = "/proc/" + std::to_string(pid);
  KernelHoldings holdings;
  std::error_code gone;  // What ends while it is looked at is not counted.
  for (fs::directory_iterator at(process / "fd", gone), end; !gone && at != end; at.increment(gone)) {
    std::error_code closed;
    const std::string target = fs::read_symlink(at->path(), closed).string();
    if (!closed) ++holdings.descriptors[KindOf(target)];
  }
  gone.clear();
  for (fs::directory_iterator at(process / "task", gone), end; !gone && at != end; at.increment(gone)) {
    std::ifstream file(at->path() / "comm");
    std::string name;
    if (std::getline(file, name) && name.starts_with("tier")) ++holdings.threads[name];
  }
  std::ifstream maps(process / "maps");
  for (std::string line; std::getline(maps, line);) {
    const size_t name = line.find(kMemoryFile);
    if (name != std::string::npos) ++holdings.mapped[KindOf(line.substr(name))];
  }
  return holdings;
}

std::string MoreThan(const KernelHoldings& before, const KernelHoldings& now) {
  std::string more;
  AddMore(before.descriptors, now.descriptors, "open", &more);
  AddMore(before.threads, now.threads, "threads", &more);
  AddMore(before.mapped, now.mapped, "mapped", &more);
  return more;
}

}  // namespace tier::daemon_process

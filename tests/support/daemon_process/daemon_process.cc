#include "tests/support/daemon_process/daemon_process.h"

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace tier::daemon_process {
namespace {

// A service manager as far as sd_notify goes: one datagram socket that hears READY=1.
class NotifySocket {
 public:
  explicit NotifySocket(const std::string& path) : socket_(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.data(), path.size());
    ::unlink(path.c_str());
    if (::bind(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
      throw std::runtime_error("bind " + path + ": " + std::strerror(errno));
    }
  }
  // False when the process ended first.
  bool AwaitReady(int pidfd) {
    while (true) {
      std::array<pollfd, 2> entries = {{{socket_.get(), POLLIN, 0}, {pidfd, POLLIN, 0}}};
      if (::poll(entries.data(), entries.size(), -1) < 0) continue;
      std::array<char, 1024> text{};
      const ssize_t got = ::recv(socket_.get(), text.data(), text.size() - 1, MSG_DONTWAIT);
      if (got > 0 && std::strstr(text.data(), "READY=1") != nullptr) return true;
      if (got < 0 && entries[1].revents != 0) return false;
    }
  }

 private:
  Descriptor socket_;
};

}  // namespace

DaemonProcess::DaemonProcess(const DaemonOptions& options) : options_(options) {
  char pattern[] = "/tmp/tier-e2e-XXXXXX";
  if (::mkdtemp(pattern) == nullptr) throw std::runtime_error("mkdtemp failed");
  directory_ = pattern;
  socket_path_ = directory_ + "/run/tierd.sock";
  std::ofstream config(directory_ + "/tierd.toml");
  config << "[daemon]\nsocket_directory = \"" << directory_ << "/run\"\ndata_directory = \"" << directory_
         << "/data\"\n"
         << "private = " << (options_.is_private ? "true" : "false") << "\n"
         << "[arena]\nmaximum = \"" << options_.arena << "\"\ncollapse = \"" << options_.collapse << "\"\n"
         << "[ssd]\nfile_size = \"" << options_.ssd_file_size << "\"\nany_file_system = true\n";
  if (!options_.is_private) config << "[metrics]\nlisten = \"127.0.0.1:0\"\n";
  config << options_.more_toml;
  config.close();
  Start();
}

DaemonProcess::~DaemonProcess() {
  child_.reset();
  std::error_code ignored;
  std::filesystem::remove_all(directory_, ignored);
}

void DaemonProcess::Start() {
  const std::string notify_path = directory_ + "/notify";
  NotifySocket notify(notify_path);
  child_.emplace(ChildProcess::Options{.command = {options_.program, "--config", directory_ + "/tierd.toml"},
                                       .environment = {{"NOTIFY_SOCKET", notify_path}},
                                       .error_file = directory_ + "/log"});
  if (!notify.AwaitReady(child_->pidfd())) throw std::runtime_error("tierd did not start: " + Log());
  before_ = HoldingsOf(child_->pid());
}

void DaemonProcess::Kill() {
  child_->Signal(SIGKILL);
  child_->Join();
}

void DaemonProcess::Restart() {
  child_.reset();
  Start();
}

int DaemonProcess::Stop() {
  child_->Signal(SIGTERM);
  return child_->Join();
}

std::string DaemonProcess::Log() const {
  std::ifstream file(directory_ + "/log");
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string DaemonProcess::AwaitNothingLeft(std::chrono::milliseconds timeout) {
  constexpr auto kBetweenLooks = std::chrono::milliseconds(20);
  const auto end = std::chrono::steady_clock::now() + timeout;
  for (;;) {
    std::string left = MoreThan(before_, HoldingsOf(child_->pid()));
    if (left.empty() || std::chrono::steady_clock::now() > end) return left;
    if (child_->AwaitDeath(kBetweenLooks)) return {};
  }
}

size_t DaemonProcess::descriptor_count() const {
  size_t count = 0;
  const std::string path = "/proc/" + std::to_string(child_->pid()) + "/fd";
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(path)) ++count;
  return count;
}

}  // namespace tier::daemon_process

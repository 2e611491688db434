#include "tools/tierctl/run_program.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>

#include "proto/mapping.h"

namespace tier::tierctl {
namespace {

using Clock = std::chrono::steady_clock;
constexpr size_t kErrorShownMax = 400;  // Bytes of standard error.

struct Pipe {
  proto::FileDescriptor read;
  proto::FileDescriptor write;
};

Result<Pipe> MakePipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0)
    return Fail(Code::kNoMemory, fmt::format("the system gives no pipe: {}", std::strerror(errno)));
  return Pipe{proto::FileDescriptor(ends[0]), proto::FileDescriptor(ends[1])};
}

class FileActions {
 public:
  FileActions() { ::posix_spawn_file_actions_init(&actions_); }
  ~FileActions() { ::posix_spawn_file_actions_destroy(&actions_); }
  FileActions(const FileActions&) = delete;
  FileActions& operator=(const FileActions&) = delete;
  posix_spawn_file_actions_t* get() { return &actions_; }

 private:
  posix_spawn_file_actions_t actions_;
};

Result<pid_t> Start(const std::vector<std::string>& arguments, int output, int errors) {
  FileActions actions;
  ::posix_spawn_file_actions_addopen(actions.get(), STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(actions.get(), output, STDOUT_FILENO);
  ::posix_spawn_file_actions_adddup2(actions.get(), errors, STDERR_FILENO);
  std::vector<std::string> copies = arguments;
  std::vector<char*> words;
  for (std::string& word : copies) words.push_back(word.data());
  words.push_back(nullptr);
  pid_t pid = 0;
  const int error = ::posix_spawnp(&pid, words.front(), actions.get(), nullptr, words.data(), environ);
  if (error == 0) return pid;
  return Fail(error == ENOENT ? Code::kNotFound : Code::kIoError,
              fmt::format("cannot run {}: {}", arguments.front(), std::strerror(error)));
}

// Reads both until both are closed. False: the time is over.
bool ReadAll(const std::array<int, 2>& ends, Clock::time_point end, std::array<std::string, 2>* texts) {
  std::array<pollfd, 2> polled = {{{ends[0], POLLIN, 0}, {ends[1], POLLIN, 0}}};
  while (polled[0].fd >= 0 || polled[1].fd >= 0) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now()).count();
    if (left <= 0) return false;
    if (::poll(polled.data(), polled.size(), static_cast<int>(left)) < 0) {
      if (errno == EINTR) continue;
      return false;
    }
    for (size_t i = 0; i < polled.size(); ++i) {
      if (polled[i].fd < 0 || polled[i].revents == 0) continue;
      std::array<char, 65536> buffer;
      const ssize_t got = ::read(polled[i].fd, buffer.data(), buffer.size());
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) {
        polled[i].fd = -1;
        continue;
      }
      std::string& text = (*texts)[i];
      text.append(buffer.data(), std::min(static_cast<size_t>(got), kProgramOutputMax - text.size()));
    }
  }
  return true;
}

int WaitFor(pid_t pid) {
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

}  // namespace

Result<std::string> RunProgram(const std::vector<std::string>& arguments, const ProgramOptions& options) {
  auto output = MakePipe();
  if (!output) return std::unexpected(std::move(output.error()));
  auto errors = MakePipe();
  if (!errors) return std::unexpected(std::move(errors.error()));
  const auto pid = Start(arguments, options.output >= 0 ? options.output : output->write.get(), errors->write.get());
  if (!pid) return std::unexpected(pid.error());
  output->write = {};
  errors->write = {};
  std::array<std::string, 2> texts;
  const bool ended = ReadAll({output->read.get(), errors->read.get()}, Clock::now() + options.timeout, &texts);
  if (!ended) (void)::kill(*pid, SIGKILL);
  const int status = WaitFor(*pid);
  if (!ended) {
    return Fail(Code::kTimeout,
                fmt::format("{} did not end within {} ms and was killed", arguments.front(), options.timeout.count()));
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return std::move(texts[0]);
  std::string said = texts[1].substr(0, kErrorShownMax);
  said.erase(said.find_last_not_of(" \n") + 1);
  return Fail(Code::kIoError, fmt::format("{} ended with status {}{}{}", arguments.front(),
                                          WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
                                          said.empty() ? "" : ": ", said));
}

}  // namespace tier::tierctl

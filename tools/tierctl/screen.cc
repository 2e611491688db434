#include "tools/tierctl/screen.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace tier::tierctl {
namespace {

constexpr std::string_view kEnter = "\033[?1049h\033[?25l";  // The alternate screen, without a cursor.
constexpr std::string_view kLeave = "\033[?25h\033[?1049l";

// What a terminal does not take is lost: the next drawing comes.
void Write(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(STDOUT_FILENO, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    text.remove_prefix(static_cast<size_t>(written));
  }
}

}  // namespace

Result<std::unique_ptr<Screen>> Screen::Open() {
  std::unique_ptr<Screen> screen(new Screen());
  if (::isatty(STDOUT_FILENO) == 0) return Fail(Code::kIoError, "standard output is no terminal");
  sigset_t signals;
  ::sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGWINCH}) ::sigaddset(&signals, signal);
  if (const int error = ::pthread_sigmask(SIG_BLOCK, &signals, nullptr); error != 0) {
    return Fail(Code::kIoError, fmt::format("pthread_sigmask: {}", std::strerror(error)));
  }
  screen->signals_ = proto::FileDescriptor(::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!screen->signals_) return Fail(Code::kIoError, fmt::format("signalfd: {}", std::strerror(errno)));
  termios input{};
  if (::tcgetattr(STDIN_FILENO, &input) == 0) {
    screen->before_ = input;
    input.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    input.c_cc[VSUSP] = _POSIX_VDISABLE;  // A stopped one would leave the screen as it is.
    input.c_cc[VMIN] = 1;
    input.c_cc[VTIME] = 0;
    (void)::tcsetattr(STDIN_FILENO, TCSANOW, &input);  // Without it keys come with the next line.
  } else {
    screen->input_ended_ = true;  // No keys.
  }
  screen->drawn_ = true;
  Write(kEnter);
  return screen;
}

Screen::~Screen() {
  if (drawn_) Write(kLeave);
  if (before_) (void)::tcsetattr(STDIN_FILENO, TCSANOW, &*before_);
}

Screen::Size Screen::size() const {
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0) return {};
  return {.columns = size.ws_col, .lines = size.ws_row};
}

void Screen::Draw(const std::string& text) {
  const size_t lines = size().lines;
  std::string drawing = "\033[H";
  size_t begin = 0;
  for (size_t line = 0; line < lines && begin < text.size(); ++line) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    if (line != 0) drawing += "\r\n";
    drawing += text.substr(begin, end - begin) + "\033[K";
    begin = end + 1;
  }
  Write(drawing + "\033[J");
}

Screen::Event Screen::Wait(std::chrono::steady_clock::time_point deadline) {
  using std::chrono::milliseconds;
  for (;;) {
    const auto left = std::chrono::ceil<milliseconds>(deadline - std::chrono::steady_clock::now()).count();
    pollfd entries[] = {{.fd = signals_.get(), .events = POLLIN, .revents = 0},
                        {.fd = input_ended_ ? -1 : STDIN_FILENO, .events = POLLIN, .revents = 0}};
    const int ready = ::poll(entries, std::size(entries), static_cast<int>(std::clamp<int64_t>(left, 0, 3'600'000)));
    if (ready == 0 && left <= 0) return Event::kTime;
    if (ready <= 0) continue;
    signalfd_siginfo signal{};
    if (entries[0].revents != 0 && ::read(signals_.get(), &signal, sizeof signal) == sizeof signal) {
      return signal.ssi_signo == SIGWINCH ? Event::kResized : Event::kEnd;
    }
    if (entries[1].revents == 0) continue;
    if (::read(STDIN_FILENO, &key_, 1) == 1) return Event::kKey;
    input_ended_ = true;
  }
}

}  // namespace tier::tierctl

// The terminal as one screen that is drawn again and again, and its keys.
//
// Plain ANSI sequences on the alternate screen, as every terminal of the last decades knows them; the terminal is as it
// was when this ends, also by a signal. One at a time, one thread.
#pragma once

#include <termios.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "proto/mapping.h"
#include "proto/result.h"

namespace tier::tierctl {

class Screen {
 public:
  struct Size {
    size_t columns = 80;
    size_t lines = 24;
  };
  enum class Event { kTime, kKey, kResized, kEnd };

  // Blocks SIGINT, SIGTERM, SIGHUP and SIGWINCH for this thread, and for those that it starts from now on: so before
  // any thread is started. IO_ERROR: standard output is no terminal that can be used so.
  static Result<std::unique_ptr<Screen>> Open();
  ~Screen();
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  Size size() const;
  // Lines, each ended by '\n' and no wider than the screen. Only as many as fit.
  void Draw(const std::string& text);
  // Waits for a key, another size or a signal to end, until `deadline`. A key stands in key().
  Event Wait(std::chrono::steady_clock::time_point deadline);
  char key() const { return key_; }

 private:
  Screen() = default;

  std::optional<termios> before_;  // Of standard input, where that is a terminal too.
  bool drawn_ = false;
  bool input_ended_ = false;
  proto::FileDescriptor signals_;
  char key_ = 0;
};

}  // namespace tier::tierctl

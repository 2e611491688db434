// EnginePosts: closures for the engine thread that must run: in this order, however full its mailbox is. The thread of
// `io`.
#pragma once

#include <chrono>
#include <deque>
#include <functional>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "daemon/base/mailbox.h"

namespace tier::session {

inline constexpr auto kPostRetry = std::chrono::milliseconds(1);  // When the mailbox is full.

class EnginePosts {
 public:
  EnginePosts(boost::asio::io_context& io, base::Mailbox& mailbox) : mailbox_(mailbox), timer_(io) {}
  // Runs `closure` on the engine thread, after those posted before it.
  void Post(std::function<void()> closure);

 private:
  void PostLate();

  base::Mailbox& mailbox_;
  boost::asio::steady_timer timer_;
  std::deque<std::function<void()>> late_;  // Those for which there was no room yet. Who posts bounds them.
};

}  // namespace tier::session

#include "daemon/session/engine_posts.h"

#include <utility>

namespace tier::session {

void EnginePosts::Post(std::function<void()> closure) {
  late_.push_back(std::move(closure));
  if (late_.size() == 1) PostLate();
}

void EnginePosts::PostLate() {
  for (; !late_.empty(); late_.pop_front()) {
    if (mailbox_.TryPost(late_.front())) continue;
    timer_.expires_after(kPostRetry);
    timer_.async_wait([this](const boost::system::error_code& error) {
      if (!error) PostLate();
    });
    return;
  }
}

}  // namespace tier::session

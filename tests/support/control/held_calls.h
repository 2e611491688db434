// Calls that a test keeps inside the daemon until it lets all of them go.
#pragma once

#include <future>
#include <semaphore>

namespace tier::test {

class HeldCalls {
 public:
  void Enter() {
    entered_.release();
    go_future_.wait();
  }
  void WaitForOne() { entered_.acquire(); }
  void LetGo() { go_.set_value(); }

 private:
  std::counting_semaphore<> entered_{0};
  std::promise<void> go_;
  std::shared_future<void> go_future_ = go_.get_future().share();
};

}  // namespace tier::test

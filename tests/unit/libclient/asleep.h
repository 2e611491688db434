// Whether another thread of this process has fallen asleep in the kernel, for tests that are about waking it.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

namespace tier::session_fake {

inline std::string LineOf(pid_t thread, const char* file) {
  std::ifstream stream("/proc/self/task/" + std::to_string(thread) + "/" + file);
  std::string line;
  std::getline(stream, line);
  return line;
}

inline bool IsAsleep(pid_t thread) {
  const std::string stat = LineOf(thread, "stat");
  const size_t name_end = stat.rfind(')');
  return name_end != std::string::npos && stat.size() > name_end + 2 && stat[name_end + 2] == 'S';
}

// Checks again and again, a million times at most: a thread that never sleeps fails the test instead of hanging it.
inline bool FallsAsleep(pid_t thread) {
  for (int i = 0; i < 1'000'000; ++i) {
    if (IsAsleep(thread)) return true;
    std::this_thread::yield();
  }
  return false;
}

// The threads of this process that have this name.
inline std::vector<pid_t> ThreadsNamed(const std::string& name) {
  std::vector<pid_t> threads;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
    const pid_t thread = std::stoi(entry.path().filename());
    if (LineOf(thread, "comm") == name) threads.push_back(thread);
  }
  return threads;
}

}  // namespace tier::session_fake

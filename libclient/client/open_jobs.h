// OpenJobs: which jobs the clients of this process have open, and with which tokens. A program that connects twice
// under one job name, such as a notebook cell that is run again, joins its own job: libtier has the job's token, though
// no caller passed it.
//
// Threads: any. A forked child has no client, so it begins with an empty list; the list and the lock of its parent are
// left alone. Invariant: one entry for each client between its tier_connect and its tier_close.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "proto/mutex.h"

namespace tier::client {

struct OpenJob {
  std::string socket;
  std::string name;
  std::string token;
  bool operator==(const OpenJob&) const = default;
};

class OpenJobs {
 public:
  // The list of this process. Never destroyed: clients may be closed at exit.
  static OpenJobs& OfProcess();

  void Add(const OpenJob& job);
  void Remove(const OpenJob& job);  // One entry.
  // The last opened job of that name behind one of these sockets. Its token is empty when there is none.
  OpenJob Find(std::span<const std::string> sockets, const std::string& name) const;

 private:
  mutable Mutex mutex_;
  std::vector<OpenJob> jobs_ TIER_GUARDED_BY(mutex_);  // In the order in which they were opened.
};

}  // namespace tier::client

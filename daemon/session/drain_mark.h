// DrainMark: a file in the socket directory while an administrator has the node drained, so that after a crash, in the
// middle of maintenance, the next daemon is drained too. A reboot takes it away with the directory (/run), and so does
// an orderly stop. It has no content. Any thread.
#pragma once

#include <string>
#include <utility>

#include "proto/result.h"

namespace tier::session {

class DrainMark {
 public:
  // Empty: nothing outlives the daemon, and no call does anything.
  explicit DrainMark(const std::string& directory) : path_(directory.empty() ? "" : directory + "/drained") {}

  bool present() const;
  Status Set() const;
  void Remove() const;

 private:
  const std::string path_;
};

}  // namespace tier::session

// The NUMA nodes of the host that have memory, and from which of them a window is to come.
//
// A window comes from the node that was configured, and from no other; else rather from the one that its owner's client
// is near to. What is made ahead of need is spread over all nodes. Engine thread only; to read the nodes, any thread.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "daemon/memory/window_source.h"

namespace tier::memory {

struct NodeChoice {
  int node = kAnyNode;
  bool only = false;  // No page may come from another node.
};

// Numbers of the nodes with memory, ascending, as sysfs has them. Empty: it does not tell. `host_root`: where sys lies.
std::vector<int> ReadMemoryNodes(const std::string& host_root);

class NumaNodes {
 public:
  // `configured`: the node for all windows, or kAnyNode. `with_memory`: ascending.
  NumaNodes(int configured, std::vector<int> with_memory);

  // For a window of a client near to `wished`, which is any number.
  NodeChoice For(int wished) const;
  // For the next window that is made ahead of need.
  NodeChoice ForStock();
  // The host has several: where a window lies is worth telling.
  bool several() const { return nodes_.size() > 1; }

 private:
  bool chosen() const { return configured_ == kAnyNode && several(); }  // For each window.

  int configured_;
  std::vector<int> nodes_;
  size_t next_ = 0;  // In nodes_, for what is made ahead.
};

}  // namespace tier::memory

// HostSampler: reads the host's memory (host_memory.h) on a worker thread, since the kernel may take milliseconds for
// it. `workers` should have a thread that populates no memory: the kernel stops such threads for seconds while a
// control group is above its memory.high. Engine thread only; what the task shares lies behind one mutex that is never
// held across a system call.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "daemon/base/workers.h"
#include "daemon/memory/host_memory.h"

namespace tier::memory {

class HostSampler {
 public:
  // `on_sampled` is called by a worker after Take has something; it must not block, and must stay callable for as long
  // as the workers live. May be null.
  HostSampler(std::string root, base::Workers* workers, std::function<void()> on_sampled);

  // Asks for a reading, where none is under way. A full queue of the workers is no error: the next call asks again.
  void Start();
  bool under_way() const { return under_way_; }
  // True: `reading` is one that was asked for; all zero where the host cannot be read.
  bool Take(HostReading* reading);

 private:
  struct Shared;

  base::Workers* workers_;
  std::shared_ptr<Shared> shared_;
  bool under_way_ = false;
};

}  // namespace tier::memory

// Trace: jobs on one machine, each with the tensors of one model, that create and free them in any order; a job ends
// with all that it has, and one with another model comes. Drawn from a seed, the same for every allocator; how much
// lives at one time is counted as it was asked for, whether or not an allocator refuses it.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

namespace tier::churn {

struct TraceOptions {
  uint64_t seed = 1;
  uint64_t events = 1'000'000;  // Creations and frees.
  uint64_t peak_bytes = 0;      // At most so much lives at one time …
  uint32_t jobs = 5;
  uint32_t job_percent = 22;  // … and of one job at most this part of it.
  bool odd_sizes = false;     // Every other job has tensors of sizes of which no number fills blocks.
};

struct Event {
  uint64_t tensor = 0;    // The number of the creation.
  uint64_t bytes = 0;     // 0: it is freed.
  uint32_t job = 0;       // Whose it is. A job that comes when another one has ended has a number of its own.
  bool ends_job = false;  // It was the last one of a job that ends.
};

class Trace {
 public:
  explicit Trace(const TraceOptions& options);
  // False: the trace has ended.
  bool Next(Event* event);

 private:
  struct Tensor {
    uint64_t number = 0;
    uint64_t bytes = 0;
  };
  struct Job {
    uint32_t number = 0;
    uint64_t live_bytes = 0;
    std::vector<uint64_t> sizes;  // Of all that it could create.
    std::vector<Tensor> live;
  };
  void StartModel(Job* job);
  Event Create(Job* job, uint64_t bytes);
  Event FreeOneOf(Job* job);
  Event EndMore();
  uint64_t Draw(uint64_t below) { return random_() % below; }

  TraceOptions options_;
  std::mt19937_64 random_;
  std::vector<Job> jobs_;
  Job* ending_ = nullptr;  // Frees all that it has.
  Job* creating_ = nullptr;
  uint64_t wanted_bytes_ = 0;  // What that one creates once there is room.
  uint64_t live_bytes_ = 0;
  uint64_t created_ = 0;
  uint32_t jobs_begun_ = 0;
  uint64_t done_ = 0;
};

}  // namespace tier::churn

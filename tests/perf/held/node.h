// A node with simulated memory: the engine as a daemon has it, in an arena of any size whose windows have no bytes, and
// with SSD devices that keep none. It says what jobs hold of the arena for what they asked, and answers their requests.
// Single-threaded; seconds for a TiB.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "daemon/memory/arena_sizing.h"
#include "daemon/tiering/engine.h"
#include "tests/support/tiering/fake_windows.h"
#include "tests/support/tiering/null_ports.h"

namespace tier::held {

struct NodeOptions {
  uint64_t arena_bytes = 0;
  uint32_t page_size = kPageSize;  // Of block windows.
  std::vector<uint32_t> devices;   // The blocks of each SSD device. None: RAM alone.
  // Null: transfers end at once, and read whatever is asked for. Outlives the node.
  storage::TransferPort* transfers = nullptr;
  bool moves = false;  // Pieces can be moved in RAM.
};

class Node {
 public:
  explicit Node(const NodeOptions& options);

  // A job of user `uid` with so many sessions.
  void Open(uint32_t job, uint32_t uid, uint32_t sessions, uint64_t guarantee_bytes = 0);
  // A tensor by one of the job's sessions, sealed. False: it was refused.
  bool Put(uint32_t job, uint32_t session, uint64_t tensor, uint64_t bytes);
  // Acquires all of it, and releases it again. Anything but OK: it cannot be read.
  [[nodiscard]] Code Read(uint32_t job, uint32_t session, uint64_t tensor);
  // The same, and keeps the lease: in `leases`, for Release.
  [[nodiscard]] Code Lease(uint32_t job, uint32_t session, uint64_t tensor, std::vector<proto::RequestItem>* leases);
  void Release(uint32_t job, uint32_t session, const std::vector<proto::RequestItem>& leases);
  void FreeTensor(uint32_t job, uint32_t session, uint64_t tensor);
  void EndJob(uint32_t job);       // As with the death of its only session, the first.
  void Pass(base::Duration time);  // A turn after so long.
  void Settle();                   // Turns until nothing is left to do, for an hour of its time at most.
  // The turns that a daemon has while so many bytes are populated: at 10 GB/s, with 50 µs a turn.
  void TurnsFor(uint64_t bytes);
  // Why the last request was refused.
  const std::string& refusal() const { return sink_.detail; }

  tiering::JobCounters Figures(uint32_t job) const { return engine_->Counters(tiering::JobId{job}); }
  tiering::EngineSnapshot Snapshot() const { return engine_->Snapshot(); }
  void CheckInvariants() const { engine_->CheckInvariants(); }
  uint64_t window_count() const { return windows_.window_count(); }
  const memory::ArenaSizes& sizes() const { return sizes_; }

 private:
  // The answer to a request, and the leases in it.
  class Sink final : public tiering::ReplySink {
   public:
    void OnReply(tiering::SessionId session, const tiering::Reply& reply) override;
    void OnWindow(tiering::SessionId, const memory::WindowShape&) override {}
    void OnWindowReturn(tiering::SessionId session, WindowIndex window) override {
      asked_back.emplace_back(session, window);
    }
    void OnSessionEnded(tiering::SessionId, Code, const std::string&) override {}

    std::vector<proto::RequestItem> leases;
    std::vector<std::pair<tiering::SessionId, WindowIndex>> asked_back;
    Code code = Code::kOk;
    std::string detail;
    uint64_t replies = 0;
  };

  Code Ask(tiering::SessionId session, proto::Op op, std::span<const proto::RequestItem> items);
  bool Turn();  // Whether the engine made progress.

  memory::ArenaSizes sizes_;
  memory::testing::FakeWindowSource windows_;
  storage::ExtentStore extents_;
  tiering::testing::InstantTransfers instant_transfers_;
  tiering::testing::InstantCopies copies_;
  Sink sink_;
  std::unique_ptr<tiering::Engine> engine_;
  uint64_t sequence_ = 0;
  base::TimePoint now_;
};

}  // namespace tier::held

// A node with simulated memory: the engine as a daemon has it, in an arena of any size whose windows have no bytes. It
// says what jobs hold of the arena for what they asked. Single-threaded; seconds for a TiB.
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

class Node {
 public:
  // `page_size`: of block windows.
  Node(uint64_t arena_bytes, uint32_t page_size);

  // A job of user `uid` with so many sessions.
  void Open(uint32_t job, uint32_t uid, uint32_t sessions, uint64_t guarantee_bytes = 0);
  // A tensor by one of the job's sessions, sealed. False: it was refused.
  bool Put(uint32_t job, uint32_t session, uint64_t tensor, uint64_t bytes);
  void FreeTensor(uint32_t job, uint32_t session, uint64_t tensor);
  void Settle();  // Turns until nothing is left to do.

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
    uint64_t replies = 0;
  };

  Code Ask(tiering::SessionId session, proto::Op op, std::span<const proto::RequestItem> items);
  void Turn();

  memory::ArenaSizes sizes_;
  memory::testing::FakeWindowSource windows_;
  storage::ExtentStore extents_;
  tiering::testing::InstantTransfers transfers_;
  Sink sink_;
  std::unique_ptr<tiering::Engine> engine_;
  uint64_t sequence_ = 0;
  base::TimePoint now_;
};

}  // namespace tier::held

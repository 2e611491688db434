// SimClient: one attached process of a simulation: what it asked, what it holds, and what it does next by chance.
//
// It plays by the rules (touches only what it leases) but is otherwise as awkward as allowed: overlapping requests,
// batches, leases held across others, creations by ranges, frees under the feet of neighbours. Hostile requests are
// sent beside.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "daemon/tiering/engine.h"
#include "tests/sim/model.h"
#include "tests/sim/plan.h"

namespace tier::tiering::sim {

struct HeldLease {
  uint64_t id = 0;
  TensorPtr tensor;
  std::vector<Patch> patches;
  bool write = false;
  bool create = false;
  bool touched = false;  // It has begun to write.
  uint32_t seed = 0;     // What it writes.
};

struct PendingRequest {
  proto::Op op = proto::Op::kNone;
  uint32_t flags = 0;
  std::vector<TensorPtr> tensors;  // By item.
  std::vector<proto::RequestItem> items;
  base::TimePoint deadline;
  bool duplicate = false;                           // A create of a name that is taken.
  bool hostile = false;                             // Any code is right.
  bool torn = false;                                // Names a tensor that was torn before.
  std::vector<std::map<uint64_t, uint64_t>> swaps;  // By item: TensorModel::swaps when it was sent.
  TensorPtr replaces;                               // A create in the place of this one.
  uint64_t turn = 0;                                // When it was sent.
};

// What a client needs of its world.
struct Surroundings {
  const Plan& plan;
  Chance& chance;
  Engine& engine;
  ModelTable& model;
  const base::TimePoint& now;
  const uint64_t& turns;
  std::function<std::byte*(uint32_t window, uint64_t offset)> address;
  std::function<void(const std::string&)> fail;  // Ends the run with this finding.
  const bool& punched;  // A window was taken away at some time: anything in RAM only may be torn.
  uint32_t& next_seed;
  uint64_t& next_swap;
  uint64_t& next_tensor;
};

class SimClient {
 public:
  SimClient(Surroundings& surroundings, SessionId session, uint64_t job)
      : world_(surroundings), session_(session), job_(job) {}

  void Act();
  void OnReply(const Reply& reply);
  // Its process is gone: what it was writing is nobody's.
  void Die();
  // Requests that should have been answered by now.
  void CheckDeadlines() const;
  void ReleaseAll();

  SessionId session() const { return session_; }
  uint64_t job() const { return job_; }
  size_t pending_count() const { return pending_.size(); }
  uint64_t answered() const { return answered_; }
  uint64_t granted() const { return granted_; }

 private:
  void Send(PendingRequest request);
  void Create();
  void CreateDuplicate();
  void Replace();
  void Replaced(const PendingRequest& request);
  void Doubt(const PendingRequest& request);
  void Acquire(bool write);
  void GrowCreation();
  void ReleaseSome();
  void Release(size_t index, uint32_t flags);
  uint32_t PartOfASwap(const HeldLease& lease, proto::RequestItem* item);
  void Change(const HeldLease& lease);
  void CheckNoSwap(const PendingRequest& request, size_t index);
  void Free();
  void Name(proto::Op op);
  void Step();
  void Intern();
  void Tear();
  void Hostile();
  TensorPtr PickTensor(uint32_t* flags);
  void Seal(const HeldLease& lease);
  void Abandon(const HeldLease& lease);
  void TakeLeases(const PendingRequest& request, const Reply& reply);
  void VerifyRead(const HeldLease& lease, const char* when);
  void OnRefusal(const PendingRequest& request, const Reply& reply);
  bool Explained(const PendingRequest& request, const Reply& reply) const;
  bool ExplainedByTensor(const TensorModel& tensor, Code code) const;
  uint64_t RandomSize();

  Surroundings& world_;
  SessionId session_;
  uint64_t job_;
  uint64_t sequence_ = 0;
  uint64_t answered_ = 0;
  uint64_t granted_ = 0;
  std::vector<HeldLease> leases_;
  std::map<uint64_t, PendingRequest> pending_;
};

}  // namespace tier::tiering::sim

// SimClient: one attached process of a simulation: what it asked, what it holds, and what it does next by chance.
//
// It plays by the rules (touches only what it leases) but is otherwise as awkward as allowed: overlapping requests,
// batches, leases held across others, creations by ranges, frees under the feet of neighbours. Hostile requests are
// sent beside.
//
// It speaks through a Link, so its requests and answers lie in rings for a while. The model follows the engine's order:
// what a request changes counts from the moment in which the engine is given it, and what is answered from the moment
// of the answer. The client acts on an answer once its channel has delivered it, and then compares it with what the
// engine said.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "daemon/tiering/engine.h"
#include "tests/sim/link.h"
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
  uint64_t request = 0;  // Sequence of the request that was granted it.
  std::vector<proto::SpanRecord> spans;
  bool delivered = false;  // The client knows of it.
};

struct PendingRequest {
  proto::Op op = proto::Op::kNone;
  uint32_t flags = 0;
  std::vector<TensorPtr> tensors;  // By item.
  std::vector<proto::RequestItem> items;
  std::string text = {};  // Of kIntern.
  base::Duration timeout{};
  base::TimePoint deadline;  // From the moment in which it was sent, then from that in which the engine was given it.
  bool duplicate = false;    // A create of a name that is taken.
  bool hostile = false;      // Any code is right.
  bool torn = false;         // Names a tensor that was torn before.
  bool early = false;        // Names one that was coming.
  std::vector<std::map<uint64_t, uint64_t>> swaps;  // By item: TensorModel::swaps when it was sent.
  TensorPtr replaces;                               // A create in the place of this one.
  bool submitted = false;                           // The engine was given it …
  uint64_t turn = 0;                                // … after so many turns.
  std::function<void()> effects;                    // What it changes in the model then.
  std::optional<HeldLease> released;                // By this request.
};

// An answer of the engine's that the channel has not delivered.
struct ExpectedAnswer {
  Code code = Code::kOk;
  uint64_t value = 0;
  std::vector<proto::SpanRecord> spans;
  std::string detail;
  std::optional<proto::TensorRecord> tensor;
  base::TimePoint given;
};

// What a client needs of its world.
struct Surroundings {
  const Plan& plan;
  Chance& chance;
  ModelTable& model;
  const base::TimePoint& now;
  const uint64_t& turns;
  std::function<std::byte*(uint32_t window, uint64_t offset)> address;
  std::function<void(const std::string&)> fail;  // Ends the run with this finding.
  std::function<bool()> failed;
  std::function<void()> step;  // Somebody sleeps: the world goes on.
  std::function<void(SessionId session, WindowIndex window)> window_returned;
  const bool& punched;  // A window was taken away at some time: anything in RAM only may be torn.
  ContentTable& contents;
  uint32_t& next_seed;
  uint64_t& next_swap;
  uint64_t& next_tensor;
  bool& somebody_sleeps;
};

class SimClient {
 public:
  SimClient(Surroundings& surroundings, SessionId session, AttachedSession attached, const LinkOptions& options);

  void Act();
  // Takes in what has come: packets of its socket, answers on its ring.
  void Listen();
  // The engine was given a request of it, or has answered one.
  void OnSubmit(uint64_t sequence);
  void OnReply(const Reply& reply);
  Link& link() { return link_; }
  // Its process is gone: what it was writing is nobody's.
  void Die();
  // Requests that should have been answered, and answers that should have been delivered by now.
  void CheckDeadlines();
  void ReleaseAll();
  // Whether it has sent what no libtier sends: its session may be ended for it.
  bool broke_protocol() const { return broke_protocol_; }
  // Whether the engine was given all that it has sent.
  bool heard() const;
  uint64_t some_lease() const { return leases_.empty() ? 0 : leases_.front().id; }

  SessionId session() const { return session_; }
  uint64_t job() const { return job_; }
  // Requests and answers on their way.
  bool awaits_delivery() const { return !expected_.empty(); }  // Of answers that the engine gave.
  size_t pending_count() const { return pending_.size() + expected_.size() + release_failures_.size(); }
  uint64_t answered() const { return answered_; }
  uint64_t granted() const { return granted_; }

 private:
  void Send(PendingRequest request);
  bool Put(const client::Submission& submission, bool detached);
  void Sleep(uint64_t sequence);
  void ServePacket();
  void Expect(const PendingRequest& request, const Reply& reply);
  void TakeAnswers();
  void Compare(uint64_t sequence, const client::Pending& answer);
  void TakeFailures();
  void TakeLease(HeldLease* lease);
  bool Maps(const proto::SpanRecord& span);
  void GiveLease(const HeldLease& lease);
  bool HasUnsubmitted(const TensorPtr& tensor) const;
  bool MayRelease(const HeldLease& lease) const;
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
  void OnReleased(const HeldLease& lease, uint32_t flags);
  void OnRewritten(const HeldLease& lease, uint32_t flags);
  void OnTorn(TensorModel& tensor, const proto::RequestItem& item);
  void OnAccepted(TensorModel& tensor);
  void FinishChanges();
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
  void CheckContent(const HeldLease& lease, uint64_t content);
  void TakeLeases(const PendingRequest& request, const Reply& reply);
  void VerifyRead(const HeldLease& lease, const char* when);
  void FreeRefused(const TensorPtr& tensor);
  void OnRefusal(const PendingRequest& request, const Reply& reply);
  bool Explained(const PendingRequest& request, const Reply& reply) const;
  bool ExplainedByTensor(const TensorModel& tensor, Code code) const;
  uint64_t RandomSize();

  Surroundings& world_;
  SessionId session_;
  uint64_t job_;
  SimWaiter waiter_;
  Link link_;
  uint64_t sequence_ = 0;  // Of the last request sent.
  bool dead_ = false;
  bool asleep_ = false;
  bool broke_protocol_ = false;
  uint64_t answered_ = 0;
  uint64_t granted_ = 0;
  std::vector<HeldLease> leases_;
  std::map<uint64_t, PendingRequest> pending_;       // Not answered by the engine.
  std::map<uint64_t, client::Pending*> on_channel_;  // Not delivered; null: a release, of which only failures are told.
  std::map<uint64_t, ExpectedAnswer> expected_;      // Answered by the engine and not delivered.
  std::deque<std::string> release_failures_;         // Not taken from the channel.
  base::TimePoint late_check_;                       // When it last looked for answers that are late.
};

}  // namespace tier::tiering::sim

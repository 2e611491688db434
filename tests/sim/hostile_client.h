// HostileClient: a process that writes whatever it likes into its session region: flipped bytes, impossible positions,
// messages that are published in part, more requests than it has credits for, leases of others. It has a job and a uid
// of its own, and the model knows nothing of it: it may do itself any harm, and nobody else may notice.
//
// Half of them speak through libtier's Channel and flip bytes beneath it, so the channel meets its own region damaged;
// the others write their rings by hand.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tests/sim/link.h"
#include "tests/sim/plan.h"

namespace tier::tiering::sim {

class HostileClient {
 public:
  // `some_lease`: the id of a lease that somebody holds.
  HostileClient(const base::TimePoint& now, Chance& chance, std::function<uint64_t()> some_lease,
                AttachedSession attached, const LinkOptions& options);

  void Act();
  Link& link() { return link_; }
  // Its process has had enough, perhaps in the middle of a message.
  bool wants_to_die() const { return wants_to_die_; }

 private:
  void Ask();
  void Flip(uint64_t first, uint64_t bytes);
  void FlipSomewhere();
  void ServePackets();
  void WriteByHand();
  void Publish(const std::vector<proto::RequestEntry>& entries, size_t count);
  std::vector<proto::RequestEntry> Message();
  proto::RequestItem Item();

  Chance& chance_;
  std::function<uint64_t()> some_lease_;
  SimWaiter waiter_;
  Link link_;
  const bool by_hand_;
  bool wants_to_die_ = false;
  proto::RingProducer requests_;  // By hand.
  proto::RingConsumer completions_;
  uint64_t sequence_ = 0;
  std::vector<client::Pending*> pending_;  // Through the channel.
};

}  // namespace tier::tiering::sim

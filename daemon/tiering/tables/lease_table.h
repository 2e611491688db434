// LeaseTable: which session may touch which bytes. A lease id has an index and a salt, so that a forged, stale or
// foreign id finds nothing. No id is given twice: an index that has used its last salt is never given out again. That
// happens after 2^32 leases of one index, and costs one record each time.
//
// Engine thread only; no allocation in steady state. Leases of a session form a list, whose head is in the session.
#pragma once

#include <cstdint>

#include "daemon/tiering/tables/slab.h"
#include "daemon/tiering/tables/tensor.h"

namespace tier::tiering {

enum class LeaseIndex : uint32_t {};
inline constexpr LeaseIndex kNoLease{UINT32_MAX};
constexpr uint32_t Value(LeaseIndex index) { return static_cast<uint32_t>(index); }

enum class LeaseKind : uint8_t { kNone, kRead, kWrite, kCreate };

struct Lease {
  uint64_t offset = 0;  // Bytes of the tensor.
  uint64_t length = 0;
  TensorIndex tensor = kNoTensor;
  uint32_t salt = 1;
  uint32_t first_piece = 0;
  uint32_t piece_count = 0;
  LeaseIndex next = kNoLease;  // Of the same session.
  LeaseIndex previous = kNoLease;
  uint16_t session = 0;  // Index.
  LeaseKind kind = LeaseKind::kNone;
  bool discard = false;      // Granted without the old bytes.
  uint32_t publication = 0;  // How many turns had been published when it was granted.

  bool exclusive() const { return kind == LeaseKind::kWrite || kind == LeaseKind::kCreate; }
};

static_assert(sizeof(Lease) == 48);

class LeaseTable {
 public:
  LeaseIndex Allocate() { return leases_.Allocate(); }
  void Free(LeaseIndex index) {
    Lease& lease = leases_.Edit(index);
    TIER_CHECK(lease.kind != LeaseKind::kNone, "lease {} ended twice", Value(index));
    lease.kind = LeaseKind::kNone;
    if (lease.salt == UINT32_MAX) {
      ++retired_;
      return;
    }
    ++lease.salt;
    leases_.Free(index);
  }
  const Lease& operator[](LeaseIndex index) const { return leases_[index]; }
  Lease& Edit(LeaseIndex index) { return leases_.Edit(index); }

  // The id that clients see; never 0.
  uint64_t IdOf(LeaseIndex index) const { return uint64_t{leases_[index].salt} << 32 | (uint64_t{Value(index)} + 1); }
  // The live lease of this id if that session holds it, else kNoLease.
  LeaseIndex Find(uint64_t id, uint16_t session) const {
    const auto number = static_cast<uint32_t>(id);
    if (number == 0 || number > leases_.capacity()) return kNoLease;
    const LeaseIndex index{number - 1};
    const Lease& lease = leases_[index];
    const bool found = lease.kind != LeaseKind::kNone && lease.salt == id >> 32 && lease.session == session;
    return found ? index : kNoLease;
  }
  uint32_t used() const { return leases_.used() - retired_; }
  uint64_t bytes() const { return leases_.bytes(); }
  bool can_shrink() const { return leases_.can_shrink(); }
  bool ShrinkOne() { return leases_.ShrinkOne(); }
  void CheckInvariants() const {
    leases_.CheckInvariants();
    uint32_t live = 0;
    for (uint32_t i = 0; i < leases_.capacity(); ++i) live += leases_[LeaseIndex{i}].kind == LeaseKind::kNone ? 0 : 1;
    TIER_CHECK(live == used(), "{} leases of {}", live, used());
  }

 private:
  Slab<Lease, LeaseIndex, 4096> leases_;
  uint32_t retired_ = 0;  // Indices that are used up.
};

}  // namespace tier::tiering

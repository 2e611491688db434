// MetadataCharge: what a user is charged for one record, or for records of one kind, whose cost changes. It stands
// where the record does. Only MetadataAccount::Recharge changes it, so that it and the account's sums never differ.
//
// Engine thread only. REQUIRES: the bytes are 0 when the charge is moved or destroyed while its account is open.
#pragma once

#include <cstdint>

#include "daemon/tiering/api/snapshot.h"

namespace tier::tiering {

template <MetadataKind kKind>
class MetadataCharge {
 public:
  uint64_t bytes() const { return bytes_; }

 private:
  friend class MetadataAccount;
  uint64_t bytes_ = 0;
};

}  // namespace tier::tiering

// SessionRecord: what of an attached client process is not rebuilt from other records. Engine thread only.
#pragma once

#include <cstdint>

#include "daemon/tiering/api/request.h"
#include "daemon/tiering/tables/lease_table.h"

namespace tier::tiering {

struct SessionRecord {
  SessionId id{};
  JobIndex job = kNoJob;
  LeaseIndex leases = kNoLease;  // Head of its list, newest first.
  uint32_t lease_count = 0;
  uint32_t creating_count = 0;  // Shared tensors it creates that are not visible yet.
  uint64_t leased_bytes = 0;
  uint64_t step = 0;
  TensorIndex tensors = kNoTensor;  // Head of its namespace.
};

}  // namespace tier::tiering

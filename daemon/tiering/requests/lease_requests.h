// The requests about leases: create, acquire, release, free. Engine thread only.
#pragma once

#include "daemon/tiering/tables/tables.h"

namespace tier::tiering {

void SubmitCreate(Tables& tables, SessionState& session, const Request& request);
void SubmitAcquire(Tables& tables, SessionState& session, const Request& request);
void SubmitRelease(Tables& tables, SessionState& session, const Request& request);
void SubmitFree(Tables& tables, SessionState& session, const Request& request);

}  // namespace tier::tiering

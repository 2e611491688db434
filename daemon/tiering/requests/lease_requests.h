// The requests about leases: create, acquire, release, free. Engine thread only.
#pragma once

#include "daemon/tiering/tables/core.h"

namespace tier::tiering {

void SubmitCreate(Core& core, SessionState& session, const Request& request);
void SubmitAcquire(Core& core, SessionState& session, const Request& request);
void SubmitRelease(Core& core, SessionState& session, const Request& request);
void SubmitFree(Core& core, SessionState& session, const Request& request);

}  // namespace tier::tiering

// Submit: where requests enter, and the requests that grant nothing. Any field of a request may hold any value. Each
// request is answered exactly once, here or by requests/waiting. Engine thread only.
#pragma once

#include "daemon/tiering/tables/tables.h"

namespace tier::tiering {

void SubmitRequest(Tables& tables, SessionState& session, const Request& request);
// Flushes the tensors that the job's sessions have in common, for the daemon itself (Engine::FlushJob).
void SubmitJobFlush(Tables& tables, JobState& job, uint64_t sequence, uint32_t timeout_ms);

}  // namespace tier::tiering

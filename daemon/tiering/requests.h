// Requests: what a session asked, checked field by field (any field may hold any value) and turned into work on the
// tables. Engine thread only. Each request is answered exactly once, now or by waiting.h.
#pragma once

#include "daemon/tiering/core.h"

namespace tier::tiering {

inline constexpr size_t kFlushTensorsMax = 1u << 22;

void SubmitRequest(Core& core, SessionState& session, const Request& request);

// The parts, by what they are about.
void SubmitCreate(Core& core, SessionState& session, const Request& request);
void SubmitAcquire(Core& core, SessionState& session, const Request& request);
void SubmitRelease(Core& core, SessionState& session, const Request& request);
void SubmitFree(Core& core, SessionState& session, const Request& request);
void SubmitPrefetch(Core& core, SessionState& session, const Request& request);
void SubmitFlush(Core& core, SessionState& session, const Request& request);             // And persist.
void SubmitJobFlush(Core& core, JobState& job, uint64_t sequence, uint32_t timeout_ms);  // Engine::FlushJob.
void SubmitDrop(Core& core, SessionState& session, const Request& request);
void SubmitAccept(Core& core, SessionState& session, const Request& request);
void SubmitTear(Core& core, SessionState& session, const Request& request);
void SubmitStat(Core& core, SessionState& session, const Request& request);
void SubmitIntern(Core& core, SessionState& session, const Request& request);
void SubmitStep(Core& core, SessionState& session, const Request& request);

// The range that an item names in a tensor of that size; no length: to its end. False: it reaches beyond.
bool SetRange(const proto::RequestItem& asked, uint64_t size, WaitItem* item);
// Finds what each item names and checks its range; fills core.items. False: refused, and answered.
bool ResolveItems(Core& core, SessionState& session, const Request& request, bool ranges);
void Refuse(Core& core, SessionState& session, const Request& request, uint64_t item, Refusal refusal);

}  // namespace tier::tiering

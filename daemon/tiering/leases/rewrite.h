// Rewrite: a tensor that is written anew in place by ranges, each sealed before the next is granted (a swap-out). Until
// the last one, what others can name holds new bytes beside old ones, and at times no lease says so. Engine thread
// only.
//
// A session that ends before its rewrites do leaves their ranges TORN, and no manifest is made of a tensor meanwhile.
// A tensor that is being created needs none of this: nobody sees it before its last range.
#pragma once

#include <optional>
#include <unordered_set>

#include "daemon/tiering/api/request.h"
#include "daemon/tiering/tables/core.h"

namespace tier::tiering {

// Takes note of what the release of that lease says of its rewrite: begun, going on, or ended with it. A refusal: it
// says what cannot be, and nothing was noted.
std::optional<Refusal> NoteRewrite(Core& core, SessionState& session, LeaseSlot slot, const proto::RequestItem& item,
                                   uint32_t flags);
// The session tore the range itself: rewrites within it are ended.
void EndRewrites(SessionState& session, const WaitItem& torn);
// What stands is one whole, whoever had begun to rewrite it: all of it was sealed at once, or accepted.
void EndAllRewrites(Core& core, TensorSlot slot);
// The session ends: what it leaves half rewritten is torn, at once, whatever its size.
void TearRewrites(Core& core, SessionState& session);
bool BeingRewritten(const Core& core, TensorRef tensor);
// All of those of the job, by slot.
std::unordered_set<uint32_t> RewrittenTensors(const Core& core, const JobState& job);

}  // namespace tier::tiering

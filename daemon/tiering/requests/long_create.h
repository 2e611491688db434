// Long create: a create of more than kItemsPerTurnMax tensors, a part of them in each turn, so that what others ask
// meanwhile does not wait for all of it. The session's next requests come after it. Engine thread only.
//
// Each part is granted at once, and the answer tells of all. Where a part would have to wait, those before it are taken
// back, turn by turn as well, and the request waits as a shorter one does, holding nothing: two requests never hold
// half of what each needs.
#pragma once

#include "daemon/tiering/tables/tables.h"

namespace tier::tiering {

// Units of work of its next part.
uint32_t CostOfPart(const CreateWait& wait);
Outcome AdvanceCreate(Tables& tables, Waiter& waiter);

}  // namespace tier::tiering

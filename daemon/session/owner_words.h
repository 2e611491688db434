// Owners by name in sentences for people: "the quota of user 4026531840" is "the quota of owner pod-a", and
// "4026531840/train" is "pod-a/train".
//
// The idea: parts of the daemon below know users by number alone. So their refusals are put into words where they leave
// the daemon, once for each way out. Numbers of owners are no one's else (owner_table.h), and stay where no owner has
// them.
//
// Thread-safe, as OwnerTable is.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "daemon/session/owner_table.h"

namespace tier::session {

// `reader`: the one owner whose name who reads this may learn, its own; none: every name, as for administrators.
// `owners` null: there are none.
std::string NameOwners(std::string text, const OwnerTable* owners, std::optional<uint32_t> reader);

}  // namespace tier::session

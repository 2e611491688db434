// NamedPlaces: what a daemon that died at this moment would leave named: extents and RAM in the committed index,
// extents in manifests that are synced or may be when the machine comes back. No write may go to such an extent
// (design: extents are write-once), no read to such RAM. For the simulator and the scripted world.
#pragma once

#include <optional>
#include <string>

#include "tests/support/storage/fake_index.h"
#include "tests/support/storage/fake_transfer.h"

namespace tier::tiering::testing {

// A transfer under way, or just being submitted, that overwrites what something names: which, and who names it. An
// index that is full, and so says of RAM what is no longer true, is not asked about RAM.
std::optional<std::string> FindOverwrite(const storage::testing::FakeTransferPort& transfers,
                                         const storage::testing::FakeIndex& index,
                                         const storage::testing::FakeManifestStore& manifests);

}  // namespace tier::tiering::testing

// NamedPlaces: what a daemon that died at this moment would leave named: extents in the committed index, extents in
// manifests that are synced or may be when the machine comes back. No write may go there (design: extents are
// write-once). For the simulator and the scripted world.
#pragma once

#include <optional>
#include <string>

#include "tests/support/storage/fake_index.h"
#include "tests/support/storage/fake_transfer.h"

namespace tier::tiering::testing {

// A write under way, or just being submitted, to pages that something names: which, and who names them.
std::optional<std::string> FindOverwrite(const storage::testing::FakeTransferPort& transfers,
                                         const storage::testing::FakeIndex& index,
                                         const storage::testing::FakeManifestStore& manifests);

}  // namespace tier::tiering::testing

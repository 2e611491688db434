// TransferCheck: compares each transfer with what the engine's tables said at the end of a turn, and with all
// manifests. For the simulator and the scripted world. Single-threaded.
//
//   A write must not go to an extent that a piece has at the end of this turn, had at the end of the turn before, or
//   that a manifest names, committed or waiting: a turn reuses no extent that it freed itself.
//   A read must not go to RAM that belongs to another piece at the end of this turn.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "daemon/tiering/api/snapshot.h"
#include "tests/support/storage/fake_manifest_store.h"
#include "tests/support/storage/fake_transfer.h"

namespace tier::tiering::testing {

class TransferCheck {
 public:
  // Each answers with the first transfer that breaks a rule, and whose place it would overwrite.

  // The port is about to submit what the turn started. `places`: Engine::NamedPlaces at this moment.
  std::optional<std::string> AtSubmit(const std::vector<PiecePlace>& places,
                                      const storage::testing::FakeTransferPort& transfers,
                                      const storage::testing::FakeManifestStore& manifests) const;
  // The turn has ended. Transfers of earlier turns are compared too, and the next turn's writes with `places`.
  std::optional<std::string> AfterTurn(std::vector<PiecePlace> places,
                                       const storage::testing::FakeTransferPort& transfers,
                                       const storage::testing::FakeManifestStore& manifests);

 private:
  std::vector<PiecePlace> last_turn_;
};

}  // namespace tier::tiering::testing

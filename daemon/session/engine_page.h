// EnginePageOwner: the one page that tells every client whether the engine sleeps (proto/ring.h). The daemon keeps the
// only writable mapping there will ever be: F_SEAL_FUTURE_WRITE refuses others, so all clients may share the memfd.
#pragma once

#include <cstdint>

#include "proto/mapping.h"
#include "proto/ring.h"

namespace tier::session {

class EnginePageOwner {
 public:
  static Result<EnginePageOwner> Make(uint64_t epoch);

  // Engine thread. Any but proto::kAwake is followed by a full fence: what is read after it was published before a
  // client could miss it.
  void SetSleeping(uint32_t sleeping);
  int descriptor() const { return descriptor_.get(); }  // To hand to clients; stays owned here.

 private:
  EnginePageOwner(proto::FileDescriptor descriptor, proto::Mapping mapping)
      : descriptor_(std::move(descriptor)), mapping_(std::move(mapping)) {}
  proto::EnginePage* page() const { return reinterpret_cast<proto::EnginePage*>(mapping_.data()); }

  proto::FileDescriptor descriptor_;
  proto::Mapping mapping_;
};

}  // namespace tier::session

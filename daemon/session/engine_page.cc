#include "daemon/session/engine_page.h"

#include <fcntl.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include <fmt/format.h>

#include "daemon/base/check.h"

namespace tier::session {

static_assert(sizeof(proto::EnginePage) <= kPageSize);

Result<EnginePageOwner> EnginePageOwner::Make(uint64_t epoch) {
  auto descriptor = proto::CreateMemoryFile("tierd-engine", kPageSize, false);
  if (!descriptor) return std::unexpected(std::move(descriptor.error()));
  auto mapping = proto::Mapping::Map(descriptor->get(), 0, kPageSize, proto::Access::kReadWrite);
  if (!mapping) return std::unexpected(std::move(mapping.error()));
  auto* page = new (mapping->data()) proto::EnginePage{};
  page->magic = proto::kEngineMagic;
  page->epoch = epoch;
  // Only now: the mapping above stays writable, none made later will be.
  constexpr int kSeals = F_SEAL_FUTURE_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  if (::fcntl(descriptor->get(), F_ADD_SEALS, kSeals) != 0) {
    return Fail(Code::kIoError,
                fmt::format("cannot seal the engine page: {}; tierd needs Linux 5.1", std::strerror(errno)));
  }
  return EnginePageOwner(std::move(*descriptor), std::move(*mapping));
}

void EnginePageOwner::SetSleeping(uint32_t sleeping) {
  TIER_CHECK(page() != nullptr && page()->magic == proto::kEngineMagic, "the engine page is not ours");
  page()->sleeping.store(sleeping, std::memory_order_release);
  if (sleeping != proto::kAwake) std::atomic_thread_fence(std::memory_order_seq_cst);
}

}  // namespace tier::session

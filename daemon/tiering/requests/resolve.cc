// See resolve.h.
#include "daemon/tiering/requests/resolve.h"

#include <string_view>

#include <fmt/format.h>

#include "daemon/tiering/pieces/catalog.h"
#include "daemon/tiering/requests/answers.h"

namespace tier::tiering {
using proto::RequestItem;

Refusal BadRange(const RequestItem& asked, uint64_t size) {
  return {Code::kInvalid,
          fmt::format("bytes {} + {} do not lie in tensor {:#x} of {} bytes", asked.offset, asked.length, asked.tensor,
                      size),
          {.tensor = asked.tensor, .requested = asked.offset, .available = asked.length, .limit = size}};
}

namespace {

// The tensor has another size than the request names.
Refusal OtherSize(const RequestItem& asked, uint64_t size) {
  return {Code::kInvalid,
          fmt::format("tensor {:#x} has {} bytes, not the {} of the request: give the right size, or ask for a part",
                      asked.tensor, size, asked.value),
          {.tensor = asked.tensor, .requested = asked.value, .limit = size}};
}

// The caller may have meant the other of the two namespaces that it sees, where it has the same id.
Refusal Absent(const Tables& tables, const SessionState& session, uint64_t id, bool shared) {
  const bool elsewhere = FindTensor(tables, session, id, !shared) != kNoTensor;
  const std::string_view of_job = "; its job has a shared one of this key: pass shared=True (in C: TIER_SHARED)";
  const std::string_view of_session =
      "; the session has one of its own of this key: leave out shared=True (TIER_SHARED)";
  return {Code::kNotFound,
          fmt::format("no tensor {:#x} in the {} namespace{}", id, shared ? "shared" : "session's",
                      !elsewhere ? "" : (shared ? of_session : of_job)),
          {.tensor = id}};
}

}  // namespace

bool ResolveItems(Tables& tables, SessionState& session, const Request& request, bool ranges) {
  tables.scratch.items.clear();
  const bool shared = IsShared(request);
  for (size_t i = 0; i < request.items.size(); ++i) {
    const RequestItem& asked = request.items[i];
    const TensorIndex index = FindTensor(tables, session, asked.tensor, shared);
    if (index == kNoTensor) {
      Refuse(tables, session, request, i, Absent(tables, session, asked.tensor, shared));
      return false;
    }
    const Tensor& tensor = tables.tensors[index];
    if (request.op == proto::Op::kAcquire && asked.value != 0 && asked.value != tensor.size) {
      Refuse(tables, session, request, i, OtherSize(asked, tensor.size));
      return false;
    }
    WaitItem item{.tensor = {index, tensor.salt}, .id = asked.tensor};
    const RequestItem whole{.tensor = asked.tensor};
    if (!SetRange(ranges ? asked : whole, tensor.size, &item)) {
      Refuse(tables, session, request, i, BadRange(asked, tensor.size));
      return false;
    }
    tables.scratch.items.push_back(item);
  }
  return true;
}

}  // namespace tier::tiering

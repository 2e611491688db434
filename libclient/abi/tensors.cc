// Calls on whole tensors: free, prefetch, step, persist, flush, drop, accept, intern, and what the daemon knows of one.
#include <vector>

#include "libclient/abi/failure.h"
#include "libclient/abi/handle.h"
#include "libclient/swap/request_handle.h"

namespace tier::abi {
namespace {

using proto::Op;

struct TensorList {
  tier_client* client;
  const uint64_t* tensors;
  size_t count;
  uint32_t flags;
};

Status CheckList(const char* call, Op op, const TensorList& list) {
  const bool reports = op != Op::kFree && op != Op::kDrop;
  const uint32_t allowed = TIER_SHARED | (op == Op::kFree ? TIER_NO_WAIT_OWN | TIER_NO_WAIT : 0);
  if (auto ok = (reports ? Begin : BeginAlive)(list.client, call, list.flags, allowed); !ok) return ok;
  if (list.count > 0 && list.tensors == nullptr) {
    return Fail(Code::kInvalid, std::string(call) + " got no tensors for a count of " + std::to_string(list.count));
  }
  return {};
}

std::vector<proto::RequestItem> ItemsOf(std::span<const uint64_t> tensors) {
  std::vector<proto::RequestItem> items(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) items[i].tensor = tensors[i];
  return items;
}

// Any number of items, as many a request as fit, each behind the swaps of what it names. Stops at the first refusal.
Status AskInParts(tier_client* client, Op op, uint32_t flags, std::span<const proto::RequestItem> items) {
  do {
    const auto part = items.first(std::min<size_t>(items.size(), proto::kItemsPerRequestMax));
    client::Submission submission{.op = op, .flags = flags, .items = part};
    const bool hint = op == Op::kPrefetch;
    if (auto free = hint ? Status() : client->scheduler->WaitForTurn(&submission); !free) return free;
    if (auto ok = client->session->AskStatus(submission); !ok) return ok;
    items = items.subspan(part.size());
  } while (!items.empty());
  return {};
}

Status Each(const char* call, Op op, const TensorList& list) {
  if (auto ok = CheckList(call, op, list); !ok) return ok;
  // Free and accept of nothing is nothing; flush, drop and persist of nothing means everything.
  const bool none_is_all = op == Op::kFlush || op == Op::kDrop || op == Op::kPersist;
  if (list.count == 0 && !none_is_all) return {};
  return AskInParts(list.client, op, list.flags, ItemsOf({list.tensors, list.count}));
}

Status Persist(const TensorList& list) {
  if (list.count > proto::kItemsPerRequestMax) {
    return Fail(Code::kInvalid, "persist is one manifest: at most " + std::to_string(proto::kItemsPerRequestMax) +
                                    " tensors, or none for all of the job; got " + std::to_string(list.count));
  }
  return Each("persist", Op::kPersist, list);
}

Status Start(const char* call, Op op, const TensorList& list, tier_op** handle) {
  if (handle == nullptr) return Fail(Code::kInvalid, "a started call needs a place for its operation");
  *handle = nullptr;
  if (list.count > proto::kItemsPerRequestMax || (op == Op::kFree && list.count == 0)) {
    return Fail(Code::kInvalid, std::string(call) + " starts at most " + std::to_string(proto::kItemsPerRequestMax) +
                                    " tensors at a time, a free at least one; got " + std::to_string(list.count));
  }
  if (auto ok = CheckList(call, op, list); !ok) return ok;
  const auto items = ItemsOf({list.tensors, list.count});
  auto started = swap::StartRequest(list.client->scheduler, {.op = op, .flags = list.flags, .items = items}, {});
  if (!started) return std::unexpected(started.error());
  *handle = new tier_op{list.client->session, std::move(*started)};
  return {};
}

Status Prefetch(tier_client* client, std::span<const tier_range> ranges, uint32_t flags) {
  if (auto ok = BeginAlive(client, "prefetch", flags, TIER_SHARED); !ok) return ok;
  if (ranges.empty()) return {};
  std::vector<proto::RequestItem> items;
  items.reserve(ranges.size());
  for (const tier_range& range : ranges) {
    // What is on its way out is in RAM, or not known to the daemon yet.
    if (!client->scheduler->HasSwap(range.tensor, flags))
      items.push_back({range.tensor, range.offset, range.length, 0});
  }
  if (items.empty()) return {};
  return AskInParts(client, Op::kPrefetch, flags, items);
}

// Well-formed enough for the daemon, which ends the session of a client that sends anything else: no NUL, UTF-8.
bool IsPlainText(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const auto byte = [&](size_t at) { return at < text.size() ? static_cast<unsigned char>(text[at]) : 0u; };
    const unsigned first = byte(i);
    const size_t length = first < 0x80   ? 1
                          : first < 0xc2 ? 0
                          : first < 0xe0 ? 2
                          : first < 0xf0 ? 3
                          : first < 0xf5 ? 4
                                         : 0;
    if (first == 0 || length == 0) return false;
    for (size_t k = 1; k < length; ++k) {
      if ((byte(i + k) & 0xc0) != 0x80) return false;
    }
    const unsigned second = byte(i + 1);
    if ((first == 0xe0 && second < 0xa0) || (first == 0xed && second > 0x9f)) return false;
    if ((first == 0xf0 && second < 0x90) || (first == 0xf4 && second > 0x8f)) return false;
    i += length;
  }
  return true;
}

Status Intern(tier_client* client, const char* key, size_t length, uint64_t* id) {
  if (auto ok = Begin(client, "intern"); !ok) return ok;
  if (key == nullptr || id == nullptr || length == 0 || length > proto::kKeyLengthMax) {
    return Fail(Code::kInvalid,
                "a key has 1 to " + std::to_string(proto::kKeyLengthMax) + " bytes, got " + std::to_string(length));
  }
  const std::string_view text(key, length);
  if (!IsPlainText(text)) return Fail(Code::kInvalid, "a key is UTF-8 text without NUL bytes");
  auto pending = client->session->Ask({.op = Op::kIntern, .text = text});
  if (!pending) return std::unexpected(pending.error());
  auto status = (*pending)->ToStatus();
  *id = status ? (*pending)->value() : 0;
  client->session->channel().Finish(*pending);
  return status;
}

Status Tensor(tier_client* client, uint64_t tensor, uint32_t flags, tier_tensor_view* view) {
  if (auto ok = Begin(client, "tier_tensor", flags, TIER_SHARED); !ok) return ok;
  const proto::RequestItem item{.tensor = tensor};
  client::Submission submission{.op = Op::kStat, .flags = flags, .items = {&item, 1}};
  if (auto free = client->scheduler->WaitForTurn(&submission); !free) return free;
  auto pending = client->session->Ask(submission);
  if (!pending) return std::unexpected(pending.error());
  const auto record = (*pending)->Tensor();
  const uint64_t state = record ? (*pending)->value() : 0;
  client->session->channel().Finish(*pending);
  if (!record) return std::unexpected(record.error());
  return WriteView<tier_tensor_view>({0, record->size, record->generation, record->ram_bytes, record->ssd_bytes,
                                      (state & proto::kTensorSealed) != 0, (state & proto::kTensorTorn) != 0},
                                     view);
}

}  // namespace
}  // namespace tier::abi

using tier::abi::Guarded;
using tier::proto::Op;

extern "C" {

int tier_free(tier_client* client, uint64_t tensor, uint32_t flags) {
  return tier_free_batch(client, &tensor, 1, flags);
}

int tier_free_batch(tier_client* client, const uint64_t* tensors, size_t count, uint32_t flags) {
  return Guarded([&] { return tier::abi::Each("free", Op::kFree, {client, tensors, count, flags}); });
}

int tier_prefetch(tier_client* client, const tier_range* ranges, size_t count, uint32_t flags) {
  return Guarded([&]() -> tier::Status {
    if (count > 0 && ranges == nullptr) return tier::Fail(tier::Code::kInvalid, "tier_prefetch got no ranges");
    return tier::abi::Prefetch(client, {ranges, count}, flags);
  });
}

int tier_accept(tier_client* client, uint64_t tensor, uint32_t flags) {
  return Guarded([&] { return tier::abi::Each("accept", Op::kAccept, {client, &tensor, 1, flags}); });
}

int tier_step(tier_client* client, uint64_t step) {
  return Guarded([&]() -> tier::Status {
    if (auto ok = tier::abi::BeginAlive(client, "step"); !ok) return ok;
    return client->session->AskStatus({.op = Op::kStep, .argument = step});
  });
}

int tier_persist(tier_client* client, const uint64_t* tensors, size_t count, uint32_t flags) {
  return Guarded([&] { return tier::abi::Persist({client, tensors, count, flags}); });
}

int tier_flush(tier_client* client, const uint64_t* tensors, size_t count, uint32_t flags) {
  return Guarded([&] { return tier::abi::Each("flush", Op::kFlush, {client, tensors, count, flags}); });
}

int tier_drop(tier_client* client, const uint64_t* tensors, size_t count, uint32_t flags) {
  return Guarded([&] { return tier::abi::Each("drop", Op::kDrop, {client, tensors, count, flags}); });
}

int tier_free_start(tier_client* client, const uint64_t* tensors, size_t count, uint32_t flags, tier_op** op) {
  return Guarded([&] { return tier::abi::Start("free", Op::kFree, {client, tensors, count, flags}, op); });
}

int tier_flush_start(tier_client* client, const uint64_t* tensors, size_t count, uint32_t flags, tier_op** op) {
  return Guarded([&] { return tier::abi::Start("flush", Op::kFlush, {client, tensors, count, flags}, op); });
}

int tier_persist_start(tier_client* client, const uint64_t* tensors, size_t count, uint32_t flags, tier_op** op) {
  return Guarded([&] { return tier::abi::Start("persist", Op::kPersist, {client, tensors, count, flags}, op); });
}

int tier_intern(tier_client* client, const char* key, size_t length, uint64_t* id) {
  return Guarded([&] { return tier::abi::Intern(client, key, length, id); });
}

int tier_tensor(tier_client* client, uint64_t tensor, uint32_t flags, tier_tensor_view* view) {
  return Guarded([&] { return tier::abi::Tensor(client, tensor, flags, view); });
}

}  // extern "C"

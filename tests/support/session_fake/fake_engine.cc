// What the fake does with requests: tensors in memory, granted at once to every client.
#include <stdexcept>

#include "tests/support/session_fake/fake_client.h"

namespace tier::session_fake {

using proto::Op;

void FakeDaemon::TakeRequests(Client& client) {
  uint64_t drained = 0;
  [[maybe_unused]] const ssize_t got = ::read(client.doorbell.get(), &drained, sizeof drained);
  uint32_t ready = 0;
  while (client.requests->Ready(&ready) && ready > 0) {
    proto::RequestEntry first;
    client.requests->Peek(&first, 1);
    std::vector<proto::RequestEntry> entries(first.header.entries);
    client.requests->Peek(entries.data(), first.header.entries);
    client.requests->Consume(first.header.entries);
    Request request{first.header, {}, {}};
    if (first.header.op == static_cast<uint16_t>(Op::kIntern)) {
      request.text.assign(reinterpret_cast<const char*>(entries.data() + 1), first.header.item_count);
    } else {
      const auto* const items = &entries.front().first;
      request.items.assign(items, items + first.header.item_count);
    }
    counters_.requests[first.header.op]++;
    HandleRequest(client, std::move(request));
  }
}

void FakeDaemon::HandleRequest(Client& client, Request request) {
  const Op op = static_cast<Op>(request.header.op);
  const auto hold = holding_.find(op);
  if (hold != holding_.end() && hold->second == 0) {
    client.held.push_back(std::move(request));
    held_count_++;
    return;
  }
  if (hold != holding_.end()) --hold->second;
  const auto refusal = refusals_.find(op);
  const bool passes = refusal == refusals_.end() || refusal->second.skip-- > 0;
  if (passes) return Publish(client, request.header, Execute(request));
  const Answer answer = refusal->second.answer;
  refusals_.erase(refusal);
  Publish(client, request.header, answer);
}

FakeDaemon::Answer FakeDaemon::Execute(const Request& request) {
  const auto missing = [](uint64_t id) { return Answer{Code::kNotFound, 0, {}, "no tensor " + std::to_string(id)}; };
  switch (static_cast<Op>(request.header.op)) {
    case Op::kCreate: return Grant(request, true);
    case Op::kAcquire:
      if ((request.header.flags & proto::kFlagContiguous) != 0) counters_.contiguous++;
      RewriteIfDue();
      return Grant(request, false);
    case Op::kRelease: return Release(request);
    case Op::kFree: return Free(request);
    case Op::kTear: {
      const auto found = tensors_.find(request.items[0].tensor);
      if (found == tensors_.end()) return missing(request.items[0].tensor);
      found->second.torn = true;
      return {};
    }
    case Op::kPersist: return {Code::kDenied, 0, {}, "a fake keeps nothing"};
    case Op::kIntern: return {Code::kOk, keys_.try_emplace(request.text, keys_.size() + 1).first->second, {}, {}};
    case Op::kStat: {
      const auto found = tensors_.find(request.items[0].tensor);
      if (found == tensors_.end()) return missing(request.items[0].tensor);
      proto::CompletionRecord record{};
      record.tensor = {found->second.size, found->second.generation, found->second.size, 0};
      const uint64_t state =
          (found->second.unsealed.empty() ? proto::kTensorSealed : 0) | (found->second.torn ? proto::kTensorTorn : 0);
      return {Code::kOk, state, {record}, {}};
    }
    default: return {};
  }
}

void FakeDaemon::RewriteIfDue() {
  if (rewriting_.count == 0 || rewriting_.skip-- > 0) return;
  rewriting_.skip = 0;
  --rewriting_.count;
  Tensor& tensor = tensors_.at(rewriting_.tensor);
  if (rewriting_.replaces) tensor.serial = next_serial_++;
  if (!rewriting_.replaces) ++tensor.generation;
  tensor.content = ++last_content_;
  for (uint64_t at = 0; at < tensor.size; at += kBlockSize) {
    const uint64_t place = tensor.blocks[at / kBlockSize];
    const auto bytes = std::span(rewriting_.content).subspan(at, std::min(kBlockSize, tensor.size - at));
    const int window = windows_[place / options_.window_size].get();
    const auto offset = static_cast<off_t>(place % options_.window_size);
    if (::pwrite(window, bytes.data(), bytes.size(), offset) < 0) throw std::runtime_error("a rewrite failed");
  }
}

bool FakeDaemon::CreateTensor(const proto::RequestItem& item) {
  Tensor tensor{.size = item.value, .serial = next_serial_++};
  for (uint64_t at = 0; at < item.value; at += kBlockSize) {
    if (free_blocks_.empty()) {
      for (const uint64_t block : tensor.blocks) free_blocks_.push_back(block);
      return false;
    }
    tensor.blocks.push_back(free_blocks_.back());
    free_blocks_.pop_back();
  }
  tensor.unsealed[0] = item.value;
  tensors_[item.tensor] = std::move(tensor);
  return true;
}

FakeDaemon::Answer FakeDaemon::Grant(const Request& request, bool create) {
  Answer answer;
  for (uint32_t i = 0; i < request.items.size(); ++i) {
    const auto& item = request.items[i];
    const bool replace = create && (request.header.flags & proto::kFlagReplace) != 0;
    const uint64_t blocks = free_blocks_.size() + (replace ? tensors_[item.tensor].blocks.size() : 0);
    if (replace && blocks * kBlockSize < item.value) return {Code::kNoSpace, 0, {}, "it would never fit"};
    if (replace) (void)Free({request.header, {{.tensor = item.tensor}}, {}});
    if (create && tensors_.contains(item.tensor)) return {Code::kAlreadyExists, 0, {}, "it exists"};
    if (create && !CreateTensor(item)) return {Code::kNoMemory, 0, {}, "the fake is full"};
    const auto found = tensors_.find(item.tensor);
    if (found == tensors_.end()) return {Code::kNotFound, 0, {}, "no tensor " + std::to_string(item.tensor)};
    Tensor& tensor = found->second;
    if (!create && item.value != 0 && item.value != tensor.size)
      return {Code::kInvalid, 0, {}, "it has " + std::to_string(tensor.size) + " bytes"};
    if (item.offset >= tensor.size || item.length > tensor.size - item.offset)
      return {Code::kInvalid, 0, {}, "beyond its end"};
    const bool write = create || (request.header.flags & proto::kFlagWrite) != 0;
    const Lease lease{item.tensor, item.offset, item.length == 0 ? tensor.size - item.offset : item.length, write,
                      tensor.serial};
    if (write) ++tensor.generation;
    if (write) tensor.content = ++last_content_;
    if (i == 0) answer.value = tensor.content;
    const uint64_t id = next_lease_++;
    leases_[id] = lease;
    leases_open_++;
    AppendSpans(tensor, id, i, lease, answer);
  }
  return answer;
}

void FakeDaemon::AppendSpans(const Tensor& tensor, uint64_t lease, uint32_t item, const Lease& range, Answer& answer) {
  for (uint64_t at = range.offset; at < range.offset + range.length;) {
    const uint64_t within = at % kBlockSize;
    const uint64_t length = std::min(kBlockSize - within, range.offset + range.length - at);
    const uint64_t place = tensor.blocks[at / kBlockSize] + within;
    proto::CompletionRecord record{};
    record.span = {lease, static_cast<uint32_t>(place / options_.window_size), item, place % options_.window_size,
                   length};
    answer.records.push_back(record);
    at += length;
  }
}

FakeDaemon::Answer FakeDaemon::Release(const Request& request) {
  for (const auto& item : request.items) {
    const auto found = leases_.find(item.value);
    if (found == leases_.end()) return {Code::kStale, 0, {}, "no lease " + std::to_string(item.value)};
    const Lease lease = found->second;
    leases_.erase(found);
    leases_open_--;
    const auto tensor = tensors_.find(lease.tensor);
    if (tensor == tensors_.end() || tensor->second.serial != lease.serial) continue;  // Freed, or replaced.
    const bool untouched = (request.header.flags & proto::kFlagUntouched) != 0;
    const bool abandon = untouched || (request.header.flags & proto::kFlagAbandon) != 0;
    if (abandon) counters_.abandoned++;
    if (untouched) counters_.untouched++;
    if (abandon && lease.write && !tensor->second.unsealed.empty()) {
      (void)Free({request.header, {{.tensor = lease.tensor}}, {}});  // Nobody has seen it, and nobody will.
      continue;
    }
    if (abandon && !untouched && lease.write) tensor->second.torn = true;
    // The last range to be written ends the creation: enough for a fake, whose clients write front to back.
    if (lease.write && !abandon && lease.offset + lease.length == tensor->second.size) tensor->second.unsealed.clear();
    if ((request.header.flags & proto::kFlagFreeAfter) != 0)
      (void)Free({request.header, {{.tensor = lease.tensor}}, {}});
  }
  return {};
}

FakeDaemon::Answer FakeDaemon::Free(const Request& request) {
  for (const auto& item : request.items) {
    const auto found = tensors_.find(item.tensor);
    if (found == tensors_.end()) return {Code::kNotFound, 0, {}, "no tensor " + std::to_string(item.tensor)};
    for (const uint64_t block : found->second.blocks) free_blocks_.push_back(block);
    tensors_.erase(found);
  }
  return {};
}

void FakeDaemon::Publish(Client& client, const proto::RequestHeader& request, const Answer& answer) {
  const auto records = static_cast<uint32_t>(answer.records.size());
  const bool refused = answer.code != Code::kOk;
  const uint32_t count =
      refused ? proto::EntriesForText(static_cast<uint32_t>(answer.detail.size())) : proto::EntriesForRecords(records);
  std::vector<proto::CompletionEntry> entries(count);
  entries[0].header = {request.sequence,
                       static_cast<uint16_t>(answer.code),
                       static_cast<uint16_t>(count),
                       0,
                       refused ? 1 : records,
                       static_cast<uint32_t>(answer.detail.size()),
                       answer.value};
  if (refused) {
    std::memcpy(static_cast<void*>(entries.data() + 1), answer.detail.data(), answer.detail.size());
  } else if (records > 0) {
    std::memcpy(static_cast<void*>(&entries[0].first), answer.records.data(),
                records * sizeof(proto::CompletionRecord));
  }
  const Op op = static_cast<Op>(request.op);
  if (distortion_ && (op == Op::kCreate || op == Op::kAcquire)) std::exchange(distortion_, nullptr)(entries);
  PublishEntries(client, entries);
}

void FakeDaemon::PublishEntries(Client& client, const std::vector<proto::CompletionEntry>& entries) {
  client.completions->Stage(entries.data(), static_cast<uint32_t>(entries.size()));
  if (!resuming_) client.PublishStaged();
}

}  // namespace tier::session_fake

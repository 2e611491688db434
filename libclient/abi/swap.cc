// tier_swap_out, tier_swap_in, and waiting for operations.
#include "libclient/abi/failure.h"
#include "libclient/abi/handle.h"
#include "libclient/swap/swap_handle.h"

namespace tier::abi {
namespace {

using swap::CopyRequest;
using swap::Direction;

struct SwapCall {
  tier_client* client;
  uint64_t tensor;
  std::byte* memory;
  uint64_t size;
  const tier_copy_options* options;
};

static_assert(TIER_BYTES == static_cast<int>(copy::ElementType::kBytes) &&
              TIER_FP32 == static_cast<int>(copy::ElementType::kFp32));
static_assert(TIER_BF16 == static_cast<int>(copy::ElementType::kBf16) &&
              TIER_FP16 == static_cast<int>(copy::ElementType::kFp16));

Result<CopyRequest> RequestFrom(Direction direction, const SwapCall& call) {
  tier_copy_options options = TIER_COPY_OPTIONS_INIT;
  if (auto ok = ReadOptions(call.options, &options); !ok) return std::unexpected(ok.error());
  uint32_t allowed = TIER_SHARED | TIER_DISCARD | TIER_NO_WAIT | TIER_NO_WAIT_OWN;
  if (direction == Direction::kIn) allowed |= TIER_FREE_AFTER;
  if (direction == Direction::kOut && options.whole != 0) allowed |= TIER_SHARDED | TIER_TRANSIENT;
  if (auto ok = CheckFlags("a swap", options.flags, allowed); !ok) return std::unexpected(ok.error());
  for (const int type : {options.memory_type, options.tensor_type}) {
    if (type < TIER_BYTES || type > TIER_FP16) {
      return Fail(Code::kInvalid,
                  "element type " + std::to_string(type) + " is none of TIER_BYTES, _FP32, _BF16, _FP16");
    }
  }
  return CopyRequest{.direction = direction,
                     .tensor = call.tensor,
                     .flags = options.flags,
                     .memory = call.memory,
                     .size = call.size,
                     .memory_type = static_cast<copy::ElementType>(options.memory_type),
                     .tensor_type = static_cast<copy::ElementType>(options.tensor_type),
                     .check_finite = options.check_finite != 0,
                     .sum_squares = options.sum_squares != 0,
                     .offset = options.offset,
                     .whole = options.whole != 0,
                     .timeout_ms = options.timeout_ms,
                     .stream = options.stream};
}

Status Swap(Direction direction, const SwapCall& call, tier_op** op) {
  if (op == nullptr) return Fail(Code::kInvalid, "a swap needs a place for its operation");
  *op = nullptr;
  if (auto ok = Begin(call.client, "a swap"); !ok) return ok;
  auto request = RequestFrom(direction, call);
  if (!request) return std::unexpected(request.error());
  auto started = swap::StartSwap(call.client->scheduler, *request);
  if (!started) return std::unexpected(started.error());
  *op = new tier_op{call.client->session, std::move(*started)};
  return {};
}

client::Clock::time_point DeadlineAfter(uint32_t timeout_ms) {
  if (timeout_ms == 0) return client::Clock::time_point::max();
  return client::Clock::now() + std::chrono::milliseconds(timeout_ms);
}

Status Wait(tier_op* op, uint32_t timeout_ms, tier_copy_outcome* outcome) {
  if (op == nullptr) return Fail(Code::kInvalid, "the operation handle is NULL");
  if (op->forked()) return Fail(Code::kDisconnected, "this operation was started before fork(), by the parent process");
  if (outcome != nullptr) {  // Now: what has been taken is gone.
    if (auto fits = CheckView(outcome); !fits) return fits;
  }
  if (!op->operation->Wait(DeadlineAfter(timeout_ms))) {
    return Fail(Code::kTimeout, "the operation did not end within " + std::to_string(timeout_ms) + " ms; it goes on");
  }
  const std::unique_ptr<tier_op> freed(op);
  auto result = op->operation->Take();
  if (!result) return std::unexpected(result.error());
  if (outcome == nullptr) return {};
  FillView<tier_copy_outcome>({0, result->bytes, result->non_finite_count, result->sum_of_squares},
                              outcome->struct_size, outcome);
  return {};
}

}  // namespace
}  // namespace tier::abi

using tier::abi::Guarded;
using tier::swap::Direction;

extern "C" {

int tier_swap_out(tier_client* client, uint64_t tensor, const void* pointer, uint64_t size,
                  const tier_copy_options* options, tier_op** op) {
  // Only read from when swapping out; one struct serves both directions.
  auto* const memory = const_cast<std::byte*>(static_cast<const std::byte*>(pointer));
  return Guarded([&] { return tier::abi::Swap(Direction::kOut, {client, tensor, memory, size, options}, op); });
}

int tier_swap_in(tier_client* client, uint64_t tensor, void* pointer, uint64_t size, const tier_copy_options* options,
                 tier_op** op) {
  auto* const memory = static_cast<std::byte*>(pointer);
  return Guarded([&] { return tier::abi::Swap(Direction::kIn, {client, tensor, memory, size, options}, op); });
}

int tier_wait(tier_op* op, uint32_t timeout_ms, tier_copy_outcome* outcome) {
  return Guarded([&] { return tier::abi::Wait(op, timeout_ms, outcome); });
}

int tier_poll(tier_op* op, uint32_t timeout_ms) {
  if (op == nullptr || op->forked()) return 1;
  if (timeout_ms == 0) return op->operation->done() ? 1 : 0;
  int finished = 0;
  (void)Guarded([&] {
    finished = op->operation->Wait(tier::abi::DeadlineAfter(timeout_ms)) ? 1 : 0;
    return tier::Status{};
  });
  return finished;
}

int tier_done(const tier_op* op) {
  if (op == nullptr || op->forked()) return 1;
  return op->operation->done() ? 1 : 0;
}

void tier_cancel(tier_op* op) {
  if (op == nullptr || op->forked()) return;
  // The tier_wait that this wakes frees the handle while Cancel is still at work.
  const auto operation = op->operation;
  (void)Guarded([&] {
    operation->Cancel();
    return tier::Status{};
  });
}

}  // extern "C"

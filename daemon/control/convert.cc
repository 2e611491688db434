#include "daemon/control/convert.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "daemon/session/degraded.h"
#include "tier/v1/error_details.pb.h"

namespace tier::control {

grpc::StatusCode ToGrpcCode(Code code) {
  switch (code) {
    case Code::kOk: return grpc::StatusCode::OK;
    case Code::kInvalid: return grpc::StatusCode::INVALID_ARGUMENT;
    case Code::kNotFound: return grpc::StatusCode::NOT_FOUND;
    case Code::kAlreadyExists: return grpc::StatusCode::ALREADY_EXISTS;
    case Code::kDenied: return grpc::StatusCode::PERMISSION_DENIED;
    case Code::kNoMemory:
    case Code::kNoSpace: return grpc::StatusCode::RESOURCE_EXHAUSTED;
    case Code::kIoError:
    case Code::kCorrupt:
    case Code::kTorn: return grpc::StatusCode::DATA_LOSS;
    case Code::kStale:
    case Code::kWouldDeadlock: return grpc::StatusCode::FAILED_PRECONDITION;
    case Code::kDisconnected: return grpc::StatusCode::UNAVAILABLE;
    case Code::kRevoked: return grpc::StatusCode::ABORTED;
    case Code::kTimeout: return grpc::StatusCode::DEADLINE_EXCEEDED;
    case Code::kVersion: return grpc::StatusCode::UNIMPLEMENTED;
  }
  return grpc::StatusCode::UNKNOWN;
}

namespace {

// Cut between characters of UTF-8.
std::string Shortened(const std::string& text, size_t max) {
  if (text.size() <= max) return text;
  size_t end = max;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return text.substr(0, end) + "...";
}

// Of metadata gRPC clients take 8 KiB by default. The sentence is there twice, once with up to three bytes for one, and
// may quote a name of a request.
constexpr size_t kSentenceMax = 1500;

std::string ErrorDetails(Code code, const std::string& sentence) {
  v1::ErrorInfo reason;
  reason.set_reason(std::string(CodeName(code)));
  reason.set_domain("tierd");
  v1::RpcStatus status;
  status.set_code(ToGrpcCode(code));
  status.set_message(sentence);
  google::protobuf::Any* const detail = status.add_details();
  detail->set_type_url("type.googleapis.com/google.rpc.ErrorInfo");
  detail->set_value(reason.SerializeAsString());
  return status.SerializeAsString();
}

}  // namespace

grpc::Status ToStatus(const Error& error, grpc::ServerContextBase* context) {
  if (context != nullptr) context->AddTrailingMetadata(kCodeMetadataKey, std::string(CodeName(error.code)));
  const std::string sentence = Shortened(error.message, kSentenceMax);
  return grpc::Status(ToGrpcCode(error.code), sentence, ErrorDetails(error.code, sentence));
}

namespace {

// An unknown number stays one: ValidateOpenJob refuses it with the same words as the handshake's.
proto::OpenMode ModeOf(v1::OpenMode mode) {
  switch (mode) {
    case v1::OPEN_MODE_UNSPECIFIED:
    case v1::OPEN_MODE_ATTACH: return proto::OpenMode::kAttach;
    case v1::OPEN_MODE_CREATE: return proto::OpenMode::kCreate;
    case v1::OPEN_MODE_JOIN: return proto::OpenMode::kJoin;
    case v1::OPEN_MODE_RESUME: return proto::OpenMode::kResume;
    case v1::OPEN_MODE_RESUME_OR_CREATE: return proto::OpenMode::kResumeOrCreate;
    default: return proto::OpenMode{UINT16_MAX};
  }
}

// "io_uring" with the prefix "IO_MODE_" is IO_MODE_IO_URING; what has no enumerator is unspecified.
template <typename Enum>
Enum EnumOf(const std::string& prefix, const std::string& word) {
  std::string name = prefix;
  for (const char c : word) name += c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  Enum value{};
  const auto* known = google::protobuf::GetEnumDescriptor<Enum>()->FindValueByName(name);
  if (known != nullptr) value = static_cast<Enum>(known->number());
  return value;
}

constexpr int64_t kNanosecondsPerSecond = 1'000'000'000;
void SetTime(int64_t unix_time_ms, google::protobuf::Timestamp* time) {
  time->set_seconds(unix_time_ms / 1000);
  time->set_nanos(static_cast<int32_t>(unix_time_ms % 1000 * 1'000'000));
}

constexpr size_t kShownPathMax = 64;  // Of a path that is refused, in the sentence that says so.

}  // namespace

Result<std::chrono::milliseconds> DrainTimeoutOf(const v1::DrainRequest& message) {
  const int64_t seconds = message.timeout().seconds();
  const int64_t nanoseconds = message.timeout().nanos();
  if (seconds < 0 || nanoseconds < 0 || nanoseconds >= kNanosecondsPerSecond) {
    return Fail(Code::kInvalid, "the timeout is " + std::to_string(seconds) + " s and " + std::to_string(nanoseconds) +
                                    " ns: it must not be negative, and its nanoseconds be fewer than a second");
  }
  if (seconds == 0 && nanoseconds == 0) return kDrainTimeoutDefault;
  // In seconds: so many may be asked for that their milliseconds are no int64_t.
  if (seconds >= std::chrono::floor<std::chrono::seconds>(kDrainTimeoutMax).count()) return kDrainTimeoutMax;
  return std::chrono::ceil<std::chrono::milliseconds>(std::chrono::seconds(seconds) +
                                                      std::chrono::nanoseconds(nanoseconds));
}

Result<tiering::TermsChange> TermsChangeOf(const v1::SetJobRequest& message) {
  tiering::TermsChange change;
  const struct {
    std::string_view path;
    bool is_set;
    uint64_t value;
    std::optional<uint64_t>* term;
  } terms[] = {
      {"guarantee_bytes", message.has_guarantee_bytes(), message.guarantee_bytes(), &change.guarantee_bytes},
      {"limit_bytes", message.has_limit_bytes(), message.limit_bytes(), &change.limit_bytes},
      {"ssd_guarantee_bytes", message.has_ssd_guarantee_bytes(), message.ssd_guarantee_bytes(),
       &change.ssd_guarantee_bytes},
      {"ssd_limit_bytes", message.has_ssd_limit_bytes(), message.ssd_limit_bytes(), &change.ssd_limit_bytes},
  };
  if (!message.has_update_mask()) {
    for (const auto& term : terms) {
      if (term.is_set) *term.term = term.value;
    }
    return change;
  }
  for (const std::string& path : message.update_mask().paths()) {
    bool known = false;
    for (const auto& term : terms) {
      if (path != term.path && path != "*") continue;
      *term.term = term.value;
      known = true;
    }
    if (!known) {
      return Fail(Code::kInvalid, "update_mask has the path '" + Shortened(path, kShownPathMax) +
                                      "': it takes guarantee_bytes, limit_bytes, ssd_guarantee_bytes, ssd_limit_bytes "
                                      "or *");
    }
  }
  return change;
}

session::OpenJobRequest FromMessage(const v1::OpenJobRequest& message) {
  session::OpenJobRequest request;
  request.name = message.name();
  request.token = message.token();
  request.mode = ModeOf(message.mode());
  request.named = message.named();
  // proto3 cannot tell rank 0 from no rank: it counts only within a world.
  request.rank = message.world_size() > 0 ? message.rank() : -1;
  request.world_size = message.world_size();
  request.guarantee_bytes = message.guarantee_bytes();
  request.limit_bytes = message.limit_bytes();
  if (message.has_uid()) request.owner = message.uid();
  request.ssd_guarantee_bytes = message.ssd_guarantee_bytes();
  request.ssd_limit_bytes = message.ssd_limit_bytes();
  return request;
}

void ToMessage(const session::JobDescription& job, Tokens tokens, v1::Job* message) {
  message->set_id(job.id);
  message->set_name(job.name);
  message->set_uid(job.uid);
  message->set_owner(job.owner);
  message->set_reserved(job.reserved);
  message->set_named(job.named);
  message->set_world_size(job.world_size);
  for (const int32_t rank : job.ranks) message->add_ranks(rank);
  for (const session::JobSession& session : job.sessions) {
    v1::JobSession* const listed = message->add_sessions();
    listed->set_id(session.id);
    listed->set_rank(session.rank);
    listed->set_client_pid(session.client_pid);
  }
  if (tokens == Tokens::kWith) message->set_token(job.token);
  const tiering::JobCounters& c = job.counters;
  message->set_ram_bytes(c.ram_bytes);
  message->set_ssd_bytes(c.ssd_bytes);
  message->set_leased_bytes(c.leased_bytes);
  message->set_dirty_bytes(c.dirty_bytes);
  message->set_guarantee_bytes(c.own_guarantee_bytes);
  message->set_promised_bytes(c.guarantee_bytes);
  message->set_borrowed_bytes(c.pool.borrowed_bytes);
  message->set_owed_bytes(c.pool.owed_bytes);
  message->set_limit_bytes(c.limit_bytes);
  message->set_logical_bytes(c.logical_bytes);
  message->set_ssd_guarantee_bytes(c.ssd_guarantee_bytes);
  message->set_ssd_limit_bytes(c.ssd_limit_bytes);
  message->set_share_bytes(c.share_bytes);
  message->set_window_count(c.window_count);
  message->set_held_bytes(c.held_bytes);
  message->set_kept_bytes(c.kept_bytes);
  message->set_session_count(c.session_count);
  message->set_tensor_count(c.tensor_count);
  message->set_persisted(c.persisted);
  message->set_torn_count(c.torn_count);
  message->set_lease_count(c.lease_count);
  message->set_swap_out_bytes_total(c.swap_out_bytes);
  message->set_swap_in_bytes_total(c.swap_in_bytes);
  message->set_acquire_hits_total(c.acquire_hits);
  message->set_acquire_misses_total(c.acquire_misses);
  message->set_stall_seconds_total(static_cast<double>(c.stall_ns) * 1e-9);
  message->set_moved_bytes_total(c.moved_bytes);
}

void ToMessage(const session::UnopenedReservationDescription& unopened, v1::UnopenedReservation* message) {
  message->set_name(unopened.name);
  message->set_uid(unopened.uid);
  message->set_owner(unopened.owner);
  message->set_named(unopened.named);
  message->set_guarantee_bytes(unopened.terms.guarantee_bytes.value_or(0));
  message->set_limit_bytes(unopened.terms.limit_bytes.value_or(0));
  message->set_ssd_guarantee_bytes(unopened.terms.ssd_guarantee_bytes.value_or(0));
  message->set_ssd_limit_bytes(unopened.terms.ssd_limit_bytes.value_or(0));
  message->set_reason(unopened.why);
}

void ToMessage(const session::StoredManifestDescription& stored, v1::StoredManifest* message) {
  message->set_name(stored.name);
  message->set_uid(stored.uid);
  message->set_owner(stored.owner);
  message->set_ssd_bytes(stored.ssd_bytes);
  message->set_damage(stored.damage);
  for (const std::string& uuid : stored.lost_devices) message->add_lost_devices(uuid);
}

void ToMessage(const session::DaemonDescription& daemon, v1::NodeStatus* message) {
  message->set_version(daemon.version);
  message->set_epoch(daemon.epoch);
  message->set_pid(daemon.pid);
  const auto uptime = static_cast<int64_t>(daemon.uptime_seconds * static_cast<double>(kNanosecondsPerSecond));
  message->mutable_uptime()->set_seconds(uptime / kNanosecondsPerSecond);
  message->mutable_uptime()->set_nanos(static_cast<int32_t>(uptime % kNanosecondsPerSecond));
  message->set_io_mode(EnumOf<v1::IoMode>("IO_MODE_", daemon.io_mode));
  message->set_memory_mode(EnumOf<v1::MemoryMode>("MEMORY_MODE_", daemon.memory_mode));
  message->set_memory_mode_reason(daemon.memory_mode_reason);
  message->set_metrics_address(daemon.metrics_address);
  message->set_ssd_mode(EnumOf<v1::SsdMode>("SSD_MODE_", daemon.ssd_mode));
  message->set_ssd_mode_reason(daemon.ssd_mode_reason);
  message->set_spin_mode(EnumOf<v1::SpinMode>("SPIN_MODE_", daemon.spin_mode));
  message->set_huge_page_mode(EnumOf<v1::HugePageMode>("HUGE_PAGE_MODE_", daemon.huge_page_mode));
  message->set_draining(daemon.draining);
  for (auto& each : session::DegradedBy(daemon)) message->add_degraded_by(std::move(each.text));
  message->set_private_daemon(daemon.is_private);
  message->set_socket_directory(daemon.socket_directory);
  message->set_data_directory(daemon.data_directory);
  const tiering::EngineSnapshot& engine = daemon.engine;
  message->set_arena_bytes(engine.arena_bytes);
  message->set_arena_max_bytes(engine.arena_max_bytes);
  message->set_arena_stock_bytes(engine.stock_bytes);
  message->set_arena_free_bytes(engine.arena_free_bytes);
  message->set_window_size_max_bytes(engine.window_size_max);
  message->set_window_count(engine.window_count);
  message->set_window_size_min_bytes(engine.window_size_min);
  message->set_slot_window_count(engine.slot_window_count);
  message->set_lease_bound_bytes(engine.lease_bound_bytes);
  for (const tiering::CompactionFigures& figures : engine.compaction) {
    message->set_moves_total(message->moves_total() + figures.moves);
    message->set_moved_bytes_total(message->moved_bytes_total() + figures.bytes);
  }
  const auto& for_others = engine.compaction[static_cast<size_t>(tiering::CompactionCause::kWindow)];
  message->set_hand_over_moves_total(for_others.moves);
  message->set_hand_over_moved_bytes_total(for_others.bytes);
  message->set_hand_over_evicted_bytes_total(engine.hand_over.evicted_bytes);
  message->set_lent_bytes_total(engine.hand_over.lent_bytes);
  message->set_job_count(engine.jobs.size());
  message->set_session_count(engine.session_count);
  message->set_tensor_count(engine.tensor_count);
  message->set_torn_count(engine.torn_count);
  message->set_lease_count(engine.lease_count);
  message->set_waiting_count(engine.waiting_count);
  message->set_host_available_bytes(daemon.host_available_bytes);
  message->set_psi_memory_some_ratio(daemon.psi_memory_some_ratio);
  message->set_host_shortage(daemon.shortage.why);
  message->set_host_shortages_total(daemon.shortage.count);
  message->set_given_back_bytes_total(daemon.shortage.given_back_bytes);
  message->set_daemon_own_bytes(daemon.shortage.daemon_own_bytes);
  for (const session::DeviceDescription& device : daemon.devices) ToMessage(device, message->add_devices());
  for (const tiering::MissingDeviceView& device : engine.missing) ToMessage(device, message->add_missing_devices());
  message->set_index_failure(engine.index_failure);
}

void AddReloadFailure(const session::ReloadFailure& failure, bool for_administrator, v1::NodeStatus* message) {
  message->set_reload_failure(for_administrator ? failure.why : failure.for_others);
  SetTime(failure.unix_time_ms, message->mutable_reload_failure_time());
}

void ToMessage(const tiering::MissingDeviceView& device, v1::MissingDevice* message) {
  message->set_uuid(device.uuid);
  message->set_path(device.path);
  message->set_reason(device.reason);
  message->set_lost_job_count(device.lost_job_count);
}

namespace {

void ToMessage(const session::DeviceSmart& smart, v1::DeviceSmart* message) {
  for (size_t i = 0; i < storage::kSmartWarnings; ++i) {
    const auto warning = static_cast<storage::SmartWarning>(i);
    if (smart.figures.warns(warning)) message->add_warnings(SmartWarningName(warning));
  }
  if (smart.figures.temperature_kelvin != 0) message->set_temperature_celsius(smart.celsius());
  message->set_available_spare_ratio(smart.figures.available_spare / 100.0);
  message->set_spare_threshold_ratio(smart.figures.spare_threshold / 100.0);
  message->set_used_ratio(smart.figures.percentage_used / 100.0);
  message->set_media_errors_total(smart.figures.media_errors);
  message->set_written_bytes_total(smart.figures.written_bytes);
  message->mutable_read_time()->set_seconds(smart.read_time);
  message->set_stale(smart.stale);
}

}  // namespace

void ToMessage(const session::DeviceDescription& device, v1::Device* message) {
  message->set_index(device.index);
  message->set_path(device.path);
  message->set_uuid(device.uuid);
  message->set_block_device(device.block_device);
  message->set_draining(device.now.draining);
  message->set_capacity_bytes(device.now.space.capacity);
  message->set_free_bytes(device.now.space.free);
  message->set_live_bytes(device.now.space.live);
  message->set_pending_bytes(device.now.space.pending);
  message->set_quarantined_bytes(device.now.space.quarantined);
  message->set_read_bytes_total(device.now.traffic.read_bytes);
  message->set_written_bytes_total(device.now.traffic.written_bytes);
  message->set_errors_total(device.now.traffic.errors);
  message->set_inflight_count(static_cast<uint32_t>(device.now.traffic.inflight));
  message->set_corrupt_total(device.now.traffic.corrupt);
  message->set_window_faults_total(device.now.traffic.window_faults);
  message->set_state(EnumOf<v1::DeviceState>("DEVICE_STATE_", DeviceStateName(device.now.state)));
  message->set_state_reason(device.now.reason);
  message->set_doubtful_bytes(device.now.space.doubtful);
  message->set_drain_note(device.now.drain_note);
  message->set_failing(device.now.failing);
  message->set_drive_writes_per_day(device.drive_writes_per_day);
  const storage::LatencyFigures reads = device.now.latency.Of(storage::Direction::kRead);
  message->set_read_seconds_p50(reads.Quantile(0.5));
  message->set_read_seconds_p99(reads.Quantile(0.99));
  const storage::LatencyFigures writes = device.now.latency.Of(storage::Direction::kWrite);
  message->set_write_seconds_p50(writes.Quantile(0.5));
  message->set_write_seconds_p99(writes.Quantile(0.99));
  if (device.smart) ToMessage(*device.smart, message->mutable_smart());
}

namespace {

void ToMessage(const session::PoolOwner& owner, v1::PoolOwner* message) {
  switch (owner.kind) {
    case session::PoolOwnerKind::kJob: message->set_kind(v1::POOL_OWNER_KIND_JOB); break;
    case session::PoolOwnerKind::kOtherUsers: message->set_kind(v1::POOL_OWNER_KIND_OTHER_USERS); break;
    case session::PoolOwnerKind::kEnded: message->set_kind(v1::POOL_OWNER_KIND_ENDED); break;
  }
  message->set_job(owner.job);
  message->set_uid(owner.uid);
  const tiering::PoolFigures& has = owner.figures;
  message->set_held_bytes(has.held());
  message->set_requested_bytes(has.requested());
  message->set_waste_bytes(has.waste());
  message->set_free_bytes(has.free_bytes);
  message->set_largest_run_bytes(has.largest_run_bytes);
  message->set_borrowed_bytes(has.borrowed_bytes);
  message->set_owed_bytes(has.owed_bytes);
  message->set_returning_bytes(has.returning_bytes);
  message->set_kept_bytes(has.kept_bytes);
  message->set_held_block_bytes(has.held_bytes[static_cast<size_t>(WindowKind::kBlock)]);
  message->set_held_slot_bytes(has.held_bytes[static_cast<size_t>(WindowKind::kSlot)]);
  message->set_requested_block_bytes(has.requested_bytes[static_cast<size_t>(tiering::RamClass::kBlock)]);
  message->set_requested_tail_bytes(has.requested_bytes[static_cast<size_t>(tiering::RamClass::kTail)]);
  message->set_requested_slot_bytes(has.requested_bytes[static_cast<size_t>(tiering::RamClass::kSlot)]);
}

v1::PoolWindowCondition ConditionOf(tiering::PoolCondition condition) {
  switch (condition) {
    case tiering::PoolCondition::kMaking: return v1::POOL_WINDOW_CONDITION_MAKING;
    case tiering::PoolCondition::kReady: return v1::POOL_WINDOW_CONDITION_READY;
    case tiering::PoolCondition::kEmptying: return v1::POOL_WINDOW_CONDITION_EMPTYING;
    case tiering::PoolCondition::kReturning: return v1::POOL_WINDOW_CONDITION_RETURNING;
    case tiering::PoolCondition::kOverdue: return v1::POOL_WINDOW_CONDITION_OVERDUE;
    case tiering::PoolCondition::kClosing: return v1::POOL_WINDOW_CONDITION_CLOSING;
  }
  return v1::POOL_WINDOW_CONDITION_UNSPECIFIED;
}

void ToMessage(const session::PoolWindow& window, v1::PoolWindow* message) {
  const tiering::WindowView& now = window.now;
  const auto used = [&](tiering::RamClass piece) { return now.used_pages[static_cast<size_t>(piece)] * kPageSize; };
  message->set_index(Value(now.index));
  message->set_owner(window.owner);
  message->set_kind(now.kind == WindowKind::kBlock ? v1::POOL_WINDOW_KIND_BLOCK : v1::POOL_WINDOW_KIND_SLOT);
  message->set_condition(ConditionOf(now.condition));
  message->set_size_bytes(now.size);
  message->set_place_bytes(now.place);
  message->set_block_bytes(used(tiering::RamClass::kBlock));
  message->set_tail_bytes(used(tiering::RamClass::kTail));
  message->set_slot_bytes(used(tiering::RamClass::kSlot));
  if (now.node != memory::kAnyNode) message->set_numa_node(static_cast<uint32_t>(now.node));
}

}  // namespace

void ToMessage(const session::PoolDescription& pool, v1::GetPoolMapResponse* message) {
  message->set_arena_bytes(pool.arena_bytes);
  message->set_arena_max_bytes(pool.arena_max_bytes);
  message->set_arena_stock_bytes(pool.stock_bytes);
  message->set_kept_bytes(pool.kept_bytes);
  for (const session::PoolOwner& owner : pool.owners) ToMessage(owner, message->add_owners());
  for (const session::PoolWindow& window : pool.windows) ToMessage(window, message->add_windows());
}

void ToMessage(const tiering::TensorView& tensor, v1::Tensor* message) {
  message->set_space(tensor.space);
  message->set_id(tensor.tensor);
  message->set_key(tensor.key);
  message->set_size_bytes(tensor.size);
  message->set_generation(tensor.generation);
  message->set_ram_bytes(tensor.ram_bytes);
  message->set_ssd_bytes(tensor.ssd_bytes);
  message->set_lease_count(tensor.lease_count);
  message->set_piece_count(tensor.piece_count);
  message->set_sealed(tensor.sealed);
  message->set_torn(tensor.torn);
}

void ToMessage(const session::OwnerSocket& socket, v1::OwnerSocket* message) {
  message->set_owner(socket.owner);
  message->set_uid(socket.uid);
  message->set_directory(socket.directory);
  message->set_open(socket.open);
}

void ToMessage(const session::Event& event, v1::Event* message) {
  message->set_sequence(event.sequence);
  SetTime(event.unix_time_ms, message->mutable_event_time());
  message->set_kind(event.kind);
  message->set_job(event.job);
  message->set_message(event.message);
  if (event.uid) message->set_uid(*event.uid);
  message->set_owner(event.owner);
}

}  // namespace tier::control

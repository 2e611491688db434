// The C functions of tier/control.h. No exception passes them; every failure leaves its sentence in this thread's
// buffer.

#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <utility>

#include "libclient/abi/struct_size.h"
#include "libclient/control/channel.h"
#include "libclient/control/watch.h"
#include "tier/control.h"

using tier::Code;
using tier::Error;
using tier::abi::CheckView;
using tier::abi::FillView;
using tier::control_client::Channel;
using tier::control_client::WatchStream;
using Stub = tier::v1::ControlService::Stub;

struct tier_control {
  std::unique_ptr<Channel> channel;
};
struct tier_control_watch {
  std::unique_ptr<WatchStream> stream;
};

namespace {

thread_local std::string last_error;

int Refuse(const Error& error) {
  last_error = error.message;
  return static_cast<int>(error.code);
}
int Refuse(Code code, const char* message) { return Refuse(Error{code, message}); }

// Runs `body`, which returns a code, and turns exceptions into codes.
template <typename Body>
int Guarded(Body&& body) {
  try {
    last_error.clear();
    return body();
  } catch (const std::bad_alloc&) {
    return static_cast<int>(Code::kNoMemory);
  } catch (const std::exception& e) {
    return Refuse(Code::kInvalid, e.what());
  }
}

int Answer(const tier::Status& status) { return status ? TIER_OK : Refuse(status.error()); }

template <size_t kSize>
void CopyText(char (&target)[kSize], const std::string& source) {
  const size_t length = std::min(source.size(), kSize - 1);
  std::memcpy(target, source.data(), length);
  target[length] = '\0';
}

tier_control_job ToJob(const tier::v1::Job& message) {
  tier_control_job job{};
  job.id = message.id();
  CopyText(job.name, message.name());
  CopyText(job.token, message.token());
  job.uid = message.uid();
  job.named = message.named() ? 1 : 0;
  job.world_size = message.world_size();
  job.guarantee_bytes = message.guarantee_bytes();
  job.limit_bytes = message.limit_bytes();
  job.share_bytes = message.share_bytes();
  job.ram_bytes = message.ram_bytes();
  job.ssd_bytes = message.ssd_bytes();
  job.leased_bytes = message.leased_bytes();
  job.dirty_bytes = message.dirty_bytes();
  job.session_count = message.session_count();
  job.tensor_count = message.tensor_count();
  job.torn_count = message.torn_count();
  return job;
}

// `job` empty: of the node.
int AskDrain(const tier_control& control, const char* job, uint32_t timeout_ms) {
  tier::v1::DrainRequest request;
  request.set_job(job);
  request.mutable_timeout()->set_seconds(timeout_ms / 1000);
  request.mutable_timeout()->set_nanos(static_cast<int32_t>(timeout_ms % 1000 * 1'000'000));
  tier::v1::DrainResponse response;
  const std::chrono::milliseconds wait(timeout_ms == 0 ? 60'000 : timeout_ms);
  return Answer(control.channel->Call(&Stub::Drain, request, &response, wait + tier::control_client::kCallTimeout));
}

int StartWatch(tier_control* control, const tier::control_client::WatchOptions& options, tier_control_watch** watch) {
  if (control == nullptr || watch == nullptr) return Refuse(Code::kInvalid, "control and watch must not be NULL");
  *watch = nullptr;
  auto stream = WatchStream::Start(*control->channel, options);
  if (!stream) return Refuse(stream.error());
  *watch = new tier_control_watch{std::move(*stream)};
  return static_cast<int>(TIER_OK);
}

}  // namespace

extern "C" {

const char* tier_control_last_error(void) { return last_error.c_str(); }

int tier_control_connect(const char* socket, const char* token, tier_control** control) {
  return Guarded([&] {
    if (control == nullptr) return Refuse(Code::kInvalid, "control must not be NULL");
    *control = nullptr;
    auto channel = Channel::Connect(socket, token);
    if (!channel) return Refuse(channel.error());
    *control = new tier_control{std::move(*channel)};
    return static_cast<int>(TIER_OK);
  });
}

void tier_control_close(tier_control* control) { delete control; }

int tier_control_open_job(tier_control* control, const tier_control_open_options* options, tier_control_job* job) {
  return Guarded([&] {
    tier_control_open_options open = TIER_CONTROL_OPEN_OPTIONS_INIT;
    if (control == nullptr || job == nullptr) return Refuse(Code::kInvalid, "control and job must not be NULL");
    if (const auto read = tier::abi::ReadOptions(options, &open); !read) return Refuse(read.error());
    if (const auto fits = CheckView(job); !fits) return Refuse(fits.error());
    if (open.mode < TIER_MODE_ATTACH || open.mode > TIER_MODE_RESUME_OR_CREATE) {
      return Refuse(Code::kInvalid, "unknown mode");
    }
    tier::v1::OpenJobRequest request;
    if (open.name != nullptr) request.set_name(open.name);
    if (open.token != nullptr) request.set_token(open.token);
    // 0 is unspecified there: the modes of the C functions, in the same order, begin behind it.
    request.set_mode(static_cast<tier::v1::OpenMode>(open.mode + tier::v1::OPEN_MODE_ATTACH));
    request.set_named(open.named != 0);
    request.set_rank(open.rank);
    request.set_world_size(open.world_size);
    request.set_guarantee_bytes(open.guarantee_bytes);
    request.set_limit_bytes(open.limit_bytes);
    tier::v1::OpenJobResponse response;
    const auto status = control->channel->Call(&Stub::OpenJob, request, &response);
    if (!status) return Refuse(status.error());
    FillView(ToJob(response.job()), job->struct_size, job);
    return static_cast<int>(TIER_OK);
  });
}

int tier_control_close_job(tier_control* control, const char* name, int purge) {
  return Guarded([&] {
    if (control == nullptr || name == nullptr) return Refuse(Code::kInvalid, "control and name must not be NULL");
    tier::v1::CloseJobRequest request;
    request.set_name(name);
    request.set_purge(purge != 0);
    tier::v1::CloseJobResponse response;
    return Answer(control->channel->Call(&Stub::CloseJob, request, &response));
  });
}

int tier_control_set_job(tier_control* control, const char* name, const uint64_t* guarantee_bytes,
                         const uint64_t* limit_bytes, tier_control_job* job) {
  return Guarded([&] {
    if (control == nullptr || name == nullptr) return Refuse(Code::kInvalid, "control and name must not be NULL");
    if (job != nullptr) {
      if (const auto fits = CheckView(job); !fits) return Refuse(fits.error());
    }
    tier::v1::SetJobRequest request;
    request.set_name(name);
    if (guarantee_bytes != nullptr) request.set_guarantee_bytes(*guarantee_bytes);
    if (limit_bytes != nullptr) request.set_limit_bytes(*limit_bytes);
    tier::v1::SetJobResponse response;
    const auto status = control->channel->Call(&Stub::SetJob, request, &response);
    if (!status) return Refuse(status.error());
    if (job != nullptr) FillView(ToJob(response.job()), job->struct_size, job);
    return static_cast<int>(TIER_OK);
  });
}

int tier_control_list_jobs(tier_control* control, tier_control_job* jobs, size_t max, size_t* count) {
  return Guarded([&] {
    if (control == nullptr || count == nullptr || (jobs == nullptr && max > 0)) {
      return Refuse(Code::kInvalid, "control, count and (with max > 0) jobs must not be NULL");
    }
    if (max > 0) {
      if (const auto fits = CheckView(jobs); !fits) return Refuse(fits.error());
    }
    tier::v1::ListJobsResponse response;
    const auto status = control->channel->CallPages(&Stub::ListJobs, tier::v1::ListJobsRequest(), &response);
    if (!status) return Refuse(status.error());
    *count = static_cast<size_t>(response.jobs_size());
    // An array of the caller's version of the struct: its length is the stride, not ours.
    const size_t stride = max > 0 ? jobs->struct_size : 0;
    auto* next = reinterpret_cast<std::byte*>(jobs);
    for (size_t i = 0; i < std::min(max, *count); ++i, next += stride)
      FillView(ToJob(response.jobs(static_cast<int>(i))), stride, next);
    return static_cast<int>(TIER_OK);
  });
}

int tier_control_drain(tier_control* control, const char* name, uint32_t timeout_ms) {
  return Guarded([&] {
    if (control == nullptr || name == nullptr) return Refuse(Code::kInvalid, "control and name must not be NULL");
    // The daemon would take it for the whole node.
    if (*name == '\0') return Refuse(Code::kInvalid, "the name of the job is empty");
    return AskDrain(*control, name, timeout_ms);
  });
}

int tier_control_drain_node(tier_control* control, uint32_t timeout_ms) {
  return Guarded([&] {
    if (control == nullptr) return Refuse(Code::kInvalid, "control must not be NULL");
    return AskDrain(*control, "", timeout_ms);
  });
}

int tier_control_undrain(tier_control* control) {
  return Guarded([&] {
    if (control == nullptr) return Refuse(Code::kInvalid, "control must not be NULL");
    tier::v1::UndrainResponse response;
    return Answer(control->channel->Call(&Stub::Undrain, tier::v1::UndrainRequest(), &response));
  });
}

int tier_control_drain_device(tier_control* control, uint32_t device) {
  return Guarded([&] {
    if (control == nullptr) return Refuse(Code::kInvalid, "control must not be NULL");
    tier::v1::DrainDeviceRequest request;
    request.set_device(device);
    tier::v1::DrainDeviceResponse response;
    return Answer(control->channel->Call(&Stub::DrainDevice, request, &response));
  });
}

int tier_control_watch_start(tier_control* control, tier_control_watch** watch) {
  return Guarded([&] { return StartWatch(control, {}, watch); });
}

int tier_control_watch_since(tier_control* control, uint64_t since, tier_control_watch** watch) {
  return Guarded([&] { return StartWatch(control, {.since = since}, watch); });
}

int tier_control_watch_next(tier_control_watch* watch, uint32_t timeout_ms, tier_control_event* event) {
  return Guarded([&] {
    if (watch == nullptr || event == nullptr) return Refuse(Code::kInvalid, "watch and event must not be NULL");
    if (const auto fits = CheckView(event); !fits) return Refuse(fits.error());
    const auto next = watch->stream->Next(std::chrono::milliseconds(timeout_ms));
    if (!next) return Refuse(next.error());
    tier_control_event full{};
    full.sequence = next->sequence();
    full.unix_time_ms = next->event_time().seconds() * 1000 + next->event_time().nanos() / 1'000'000;
    CopyText(full.kind, next->kind());
    CopyText(full.job, next->job());
    CopyText(full.message, next->message());
    full.has_uid = next->has_uid() ? 1 : 0;
    full.uid = next->uid();
    CopyText(full.owner, next->owner());
    FillView(full, event->struct_size, event);
    return static_cast<int>(TIER_OK);
  });
}

void tier_control_watch_stop(tier_control_watch* watch) { delete watch; }

}  // extern "C"

#include "daemon/control/control_service.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>

#include "daemon/control/convert.h"
#include "daemon/control/convert_quotas.h"
#include "daemon/control/convert_settings.h"
#include "daemon/control/convert_stalls.h"
#include "daemon/control/page_token.h"
#include "daemon/control/watch_reactor.h"

namespace tier::control {

grpc::Status ControlService::Refusal(const Error& error, grpc::ServerContextBase* context) const {
  return ToStatus({error.code, api_.NameOwners(CallerOf(*context), error.message)}, context);
}

grpc::Status ControlService::AnswerOf(const Status& status, grpc::ServerContextBase* context) const {
  return status ? grpc::Status::OK : Refusal(status.error(), context);
}

session::Caller ControlService::CallerOf(const grpc::ServerContextBase& context) const {
  session::Caller caller{.uid = uid_, .admin = admin_, .token = {}};
  const auto& metadata = context.client_metadata();
  if (const auto token = metadata.find(kTokenMetadataKey); token != metadata.end()) {
    // Longer than any token is no token: cut, so that it is refused as a wrong one and never copied around whole.
    caller.token.assign(token->second.data(), std::min<size_t>(token->second.size(), proto::kTokenSize));
  }
  return caller;
}

grpc::Status ControlService::GetStatus(grpc::ServerContext* context, const v1::GetStatusRequest*,
                                       v1::GetStatusResponse* response) {
  const auto description = api_.Describe();
  if (!description) return Refusal(description.error(), context);
  ToMessage(*description, response->mutable_status());
  if (description->reload_failure) {
    AddReloadFailure(*description->reload_failure, CallerOf(*context).admin, response->mutable_status());
  }
  return grpc::Status::OK;
}

grpc::Status ControlService::OpenJob(grpc::ServerContext* context, const v1::OpenJobRequest* request,
                                     v1::OpenJobResponse* response) {
  session::OpenJobRequest open = FromMessage(*request);
  session::Caller caller = CallerOf(*context);
  if (open.token.empty()) open.token = caller.token;
  if (const auto valid = session::ValidateOpenJob(open); !valid) return Refusal(valid.error(), context);
  const auto job = api_.OpenJob(caller, open);
  if (!job) return Refusal(job.error(), context);
  ToMessage(*job, Tokens::kWith, response->mutable_job());
  return grpc::Status::OK;
}

grpc::Status ControlService::CloseJob(grpc::ServerContext* context, const v1::CloseJobRequest* request,
                                      v1::CloseJobResponse*) {
  return AnswerOf(api_.CloseJob(CallerOf(*context), request->name(),
                                {.purge = request->purge(), .unless_attached = request->unless_attached()}),
                  context);
}

grpc::Status ControlService::SetJob(grpc::ServerContext* context, const v1::SetJobRequest* request,
                                    v1::SetJobResponse* response) {
  const auto change = TermsChangeOf(*request);
  if (!change) return Refusal(change.error(), context);
  const auto job = api_.SetJob(CallerOf(*context), request->name(), *change);
  if (!job) return Refusal(job.error(), context);
  ToMessage(*job, Tokens::kWithout, response->mutable_job());
  return grpc::Status::OK;
}

grpc::Status ControlService::ListJobs(grpc::ServerContext* context, const v1::ListJobsRequest* request,
                                      v1::ListJobsResponse* response) {
  return AnswerOf(FillJobs(CallerOf(*context), *request, response), context);
}

tier::Status ControlService::FillJobs(const session::Caller& caller, const v1::ListJobsRequest& request,
                                      v1::ListJobsResponse* response) {
  using List = PagePlace::List;
  const auto size = PageSizeOf(request.page_size(), kJobsListedMax, kJobsListedMax);
  if (!size) return std::unexpected(size.error());
  Result<PagePlace> place = PagePlace{};
  if (!request.page_token().empty()) place = FromPageToken(api_.epoch(), request.page_token());
  if (place && place->list == List::kTensors) place = Fail(Code::kInvalid, "page_token is of a list of tensors");
  if (!place) return std::unexpected(place.error());
  size_t left = *size;
  if (place->list == List::kJobs) {
    const Tokens tokens = request.with_tokens() ? Tokens::kWith : Tokens::kWithout;
    const auto jobs = api_.ListJobs(caller);
    if (!jobs) return std::unexpected(jobs.error());
    for (const auto& job : *jobs) {
      if (job.id < place->number) continue;
      if (left == 0) {
        response->set_next_page_token(ToPageToken(api_.epoch(), {.list = List::kJobs, .number = job.id, .name = {}}));
        return {};
      }
      ToMessage(job, tokens, response->add_jobs());
      --left;
    }
  }
  if (place->list != List::kStoredManifests) {
    std::string last = place->list == List::kReservations ? place->name : std::string();
    const auto reservations = api_.ListUnopenedReservations(caller, last, left + 1);
    if (!reservations) return std::unexpected(reservations.error());
    for (const auto& unopened : *reservations) {
      if (left == 0) {
        response->set_next_page_token(
            ToPageToken(api_.epoch(), {.list = List::kReservations, .number = 0, .name = last}));
        return {};
      }
      ToMessage(unopened, response->add_unopened_reservations());
      last = unopened.QualifiedName();
      --left;
    }
  }
  std::string last = place->list == List::kStoredManifests ? place->name : std::string();
  const auto manifests = api_.ListStoredManifests(caller, last, left + 1);
  if (!manifests) return std::unexpected(manifests.error());
  for (const auto& stored : *manifests) {
    if (left == 0) {
      response->set_next_page_token(
          ToPageToken(api_.epoch(), {.list = List::kStoredManifests, .number = 0, .name = last}));
      return {};
    }
    ToMessage(stored, response->add_stored_manifests());
    last = stored.QualifiedName();
    --left;
  }
  return {};
}

grpc::Status ControlService::ListTensors(grpc::ServerContext* context, const v1::ListTensorsRequest* request,
                                         v1::ListTensorsResponse* response) {
  const auto size = PageSizeOf(request->page_size(), kTensorsListedDefault, kTensorsListedMax);
  if (!size) return Refusal(size.error(), context);
  PagePlace place{.list = PagePlace::List::kTensors, .number = 0, .name = request->job()};
  if (!request->page_token().empty()) {
    const auto given = FromPageToken(api_.epoch(), request->page_token());
    if (!given) return Refusal(given.error(), context);
    if (given->list != place.list || given->name != place.name || given->number > UINT32_MAX) {
      return Refusal({Code::kInvalid, "page_token is of another list than that of the tensors of " + place.name},
                     context);
    }
    place.number = given->number;
  }
  const auto page = api_.ListTensors(CallerOf(*context), request->job(), static_cast<uint32_t>(place.number), *size);
  if (!page) return Refusal(page.error(), context);
  for (const auto& tensor : page->tensors) ToMessage(tensor, response->add_tensors());
  place.number = page->next;
  if (page->next != 0) response->set_next_page_token(ToPageToken(api_.epoch(), place));
  return grpc::Status::OK;
}

grpc::Status ControlService::ListDevices(grpc::ServerContext* context, const v1::ListDevicesRequest*,
                                         v1::ListDevicesResponse* response) {
  const auto description = api_.Describe();
  if (!description) return Refusal(description.error(), context);
  for (const auto& device : description->devices) ToMessage(device, response->add_devices());
  for (const auto& device : description->engine.missing) ToMessage(device, response->add_missing());
  return grpc::Status::OK;
}

grpc::Status ControlService::GetPoolMap(grpc::ServerContext* context, const v1::GetPoolMapRequest*,
                                        v1::GetPoolMapResponse* response) {
  const auto pool = api_.DescribePool(CallerOf(*context));
  if (!pool) return Refusal(pool.error(), context);
  ToMessage(*pool, response);
  return grpc::Status::OK;
}

grpc::Status ControlService::ListQuotas(grpc::ServerContext* context, const v1::ListQuotasRequest*,
                                        v1::ListQuotasResponse* response) {
  const auto report = api_.ListQuotas(CallerOf(*context));
  if (!report) return Refusal(report.error(), context);
  ToMessage(*report, response);
  return grpc::Status::OK;
}

grpc::Status ControlService::SetQuota(grpc::ServerContext* context, const v1::SetQuotaRequest* request,
                                      v1::SetQuotaResponse*) {
  const auto target = QuotaTargetOf(request->level(), request->name());
  if (!target) return Refusal(target.error(), context);
  const auto fields = FromMessage(*request);
  if (!fields) return Refusal(fields.error(), context);
  return AnswerOf(api_.SetQuota(CallerOf(*context), *target, *fields), context);
}

grpc::Status ControlService::ClearQuota(grpc::ServerContext* context, const v1::ClearQuotaRequest* request,
                                        v1::ClearQuotaResponse*) {
  const auto target = QuotaTargetOf(request->level(), request->name());
  if (!target) return Refusal(target.error(), context);
  return AnswerOf(api_.ClearQuota(CallerOf(*context), *target), context);
}

grpc::Status ControlService::ListOptions(grpc::ServerContext* context, const v1::ListOptionsRequest*,
                                         v1::ListOptionsResponse* response) {
  const auto report = api_.ListOptions(CallerOf(*context));
  if (!report) return Refusal(report.error(), context);
  ToMessage(*report, response);
  return grpc::Status::OK;
}

grpc::Status ControlService::SetOption(grpc::ServerContext* context, const v1::SetOptionRequest* request,
                                       v1::SetOptionResponse* response) {
  const auto option = api_.SetOption(CallerOf(*context), request->name(), request->value());
  if (!option) return Refusal(option.error(), context);
  ToMessage(*option, response->mutable_option());
  return grpc::Status::OK;
}

grpc::Status ControlService::ListStalls(grpc::ServerContext* context, const v1::ListStallsRequest* request,
                                        v1::ListStallsResponse* response) {
  const auto report = api_.ListStalls(CallerOf(*context), request->job());
  if (!report) return Refusal(report.error(), context);
  ToMessage(*report, response);
  return grpc::Status::OK;
}

grpc::Status ControlService::OpenSocket(grpc::ServerContext* context, const v1::OpenSocketRequest* request,
                                        v1::OpenSocketResponse* response) {
  const auto socket = api_.OpenSocket(CallerOf(*context), request->owner());
  if (!socket) return Refusal(socket.error(), context);
  ToMessage(*socket, response->mutable_socket());
  return grpc::Status::OK;
}

grpc::Status ControlService::CloseSocket(grpc::ServerContext* context, const v1::CloseSocketRequest* request,
                                         v1::CloseSocketResponse*) {
  return AnswerOf(api_.CloseSocket(CallerOf(*context), request->owner(), request->purge()), context);
}

grpc::Status ControlService::ListSockets(grpc::ServerContext* context, const v1::ListSocketsRequest*,
                                         v1::ListSocketsResponse* response) {
  const auto sockets = api_.ListSockets(CallerOf(*context));
  if (!sockets) return Refusal(sockets.error(), context);
  for (const session::OwnerSocket& socket : *sockets) ToMessage(socket, response->add_sockets());
  return grpc::Status::OK;
}

grpc::Status ControlService::Drain(grpc::ServerContext* context, const v1::DrainRequest* request,
                                   v1::DrainResponse* response) {
  const auto timeout = DrainTimeoutOf(*request);
  if (!timeout) return Refusal(timeout.error(), context);
  if (drains_.fetch_add(1) >= kDrainsMax) {
    drains_.fetch_sub(1);
    return Refusal(Error{Code::kNoMemory, "uid " + std::to_string(uid_) + " drains " + std::to_string(kDrainsMax) +
                                              " times already, the limit: wait for one of these"},
                   context);
  }
  const auto drained = api_.Drain(CallerOf(*context), request->job(), *timeout);
  drains_.fetch_sub(1);
  if (!drained) return Refusal(drained.error(), context);
  response->set_stays_in_ram(drained->stays_in_ram);
  response->set_unmarked(drained->unmarked);
  return grpc::Status::OK;
}

grpc::Status ControlService::Undrain(grpc::ServerContext* context, const v1::UndrainRequest*, v1::UndrainResponse*) {
  return AnswerOf(api_.Undrain(CallerOf(*context)), context);
}

grpc::Status ControlService::DrainDevice(grpc::ServerContext* context, const v1::DrainDeviceRequest* request,
                                         v1::DrainDeviceResponse*) {
  if (request->device() > UINT16_MAX) {
    return Refusal(Error{Code::kNotFound, "no device " + std::to_string(request->device())}, context);
  }
  return AnswerOf(api_.DrainDevice(CallerOf(*context), static_cast<uint16_t>(request->device()), !request->undo()),
                  context);
}

grpc::Status ControlService::RetryDevice(grpc::ServerContext* context, const v1::RetryDeviceRequest* request,
                                         v1::RetryDeviceResponse*) {
  if (request->device() > UINT16_MAX) {
    return Refusal(Error{Code::kNotFound, "no device " + std::to_string(request->device())}, context);
  }
  return AnswerOf(api_.RetryDevice(CallerOf(*context), static_cast<uint16_t>(request->device())), context);
}

grpc::Status ControlService::PurgeDevice(grpc::ServerContext* context, const v1::PurgeDeviceRequest* request,
                                         v1::PurgeDeviceResponse* response) {
  auto jobs = api_.PurgeDevice(CallerOf(*context), request->uuid());
  if (!jobs) return Refusal(jobs.error(), context);
  for (std::string& job : *jobs) response->add_jobs(std::move(job));
  return grpc::Status::OK;
}

grpc::ServerWriteReactor<v1::WatchResponse>* ControlService::Watch(grpc::CallbackServerContext* context,
                                                                   const v1::WatchRequest* request) {
  return WatchReactor::Start(api_, CallerOf(*context), *request, context);
}

}  // namespace tier::control

// tier.v1.ControlService: each RPC is one call of session::ControlApi. One instance serves the connections of one
// identity (grpc_server.h), so `uid` and `admin` are what the kernel said, and only the token comes from the caller.
// Thread-safe: gRPC calls it from many threads; ControlApi carries each call to the engine thread.
#pragma once

#include <atomic>
#include <cstdint>

#include <grpcpp/grpcpp.h>

#include "daemon/session/control_api.h"
#include "tier/v1/control.grpc.pb.h"

namespace tier::control {

// Of one page: a message of gRPC has 4 MiB, the key of a tensor up to 1 KiB.
inline constexpr size_t kJobsListedMax = 1000;
inline constexpr size_t kTensorsListedDefault = 1000;
inline constexpr size_t kTensorsListedMax = 3000;
// At a time, of one identity: each holds one of its server's threads until it is done.
inline constexpr int kDrainsMax = 4;

class ControlService final : public v1::ControlService::WithCallbackMethod_Watch<v1::ControlService::Service> {
 public:
  ControlService(session::ControlApi& api, uint32_t uid, bool admin) : api_(api), uid_(uid), admin_(admin) {}

  grpc::Status GetStatus(grpc::ServerContext* context, const v1::GetStatusRequest* request,
                         v1::GetStatusResponse* response) override;
  grpc::Status OpenJob(grpc::ServerContext* context, const v1::OpenJobRequest* request,
                       v1::OpenJobResponse* response) override;
  grpc::Status CloseJob(grpc::ServerContext* context, const v1::CloseJobRequest* request,
                        v1::CloseJobResponse* response) override;
  grpc::Status SetJob(grpc::ServerContext* context, const v1::SetJobRequest* request,
                      v1::SetJobResponse* response) override;
  grpc::Status ListJobs(grpc::ServerContext* context, const v1::ListJobsRequest* request,
                        v1::ListJobsResponse* response) override;
  grpc::Status ListTensors(grpc::ServerContext* context, const v1::ListTensorsRequest* request,
                           v1::ListTensorsResponse* response) override;
  grpc::Status ListDevices(grpc::ServerContext* context, const v1::ListDevicesRequest* request,
                           v1::ListDevicesResponse* response) override;
  grpc::Status GetPoolMap(grpc::ServerContext* context, const v1::GetPoolMapRequest* request,
                          v1::GetPoolMapResponse* response) override;
  grpc::Status ListQuotas(grpc::ServerContext* context, const v1::ListQuotasRequest* request,
                          v1::ListQuotasResponse* response) override;
  grpc::Status SetQuota(grpc::ServerContext* context, const v1::SetQuotaRequest* request,
                        v1::SetQuotaResponse* response) override;
  grpc::Status ClearQuota(grpc::ServerContext* context, const v1::ClearQuotaRequest* request,
                          v1::ClearQuotaResponse* response) override;
  grpc::Status ListOptions(grpc::ServerContext* context, const v1::ListOptionsRequest* request,
                           v1::ListOptionsResponse* response) override;
  grpc::Status SetOption(grpc::ServerContext* context, const v1::SetOptionRequest* request,
                         v1::SetOptionResponse* response) override;
  grpc::Status ListStalls(grpc::ServerContext* context, const v1::ListStallsRequest* request,
                          v1::ListStallsResponse* response) override;
  grpc::Status OpenSocket(grpc::ServerContext* context, const v1::OpenSocketRequest* request,
                          v1::OpenSocketResponse* response) override;
  grpc::Status CloseSocket(grpc::ServerContext* context, const v1::CloseSocketRequest* request,
                           v1::CloseSocketResponse* response) override;
  grpc::Status ListSockets(grpc::ServerContext* context, const v1::ListSocketsRequest* request,
                           v1::ListSocketsResponse* response) override;
  grpc::Status Drain(grpc::ServerContext* context, const v1::DrainRequest* request,
                     v1::DrainResponse* response) override;
  grpc::Status Undrain(grpc::ServerContext* context, const v1::UndrainRequest* request,
                       v1::UndrainResponse* response) override;
  grpc::Status DrainDevice(grpc::ServerContext* context, const v1::DrainDeviceRequest* request,
                           v1::DrainDeviceResponse* response) override;
  grpc::Status RetryDevice(grpc::ServerContext* context, const v1::RetryDeviceRequest* request,
                           v1::RetryDeviceResponse* response) override;
  grpc::Status PurgeDevice(grpc::ServerContext* context, const v1::PurgeDeviceRequest* request,
                           v1::PurgeDeviceResponse* response) override;
  grpc::ServerWriteReactor<v1::WatchResponse>* Watch(grpc::CallbackServerContext* context,
                                                     const v1::WatchRequest* request) override;

 private:
  // Fills what the page has room for with jobs, and then with manifests. Fails as FromPageToken does.
  Status FillJobs(const session::Caller& caller, const v1::ListJobsRequest& request, v1::ListJobsResponse* response);
  session::Caller CallerOf(const grpc::ServerContextBase& context) const;
  // With owners by name.
  grpc::Status Refusal(const Error& error, grpc::ServerContextBase* context) const;
  grpc::Status AnswerOf(const Status& status, grpc::ServerContextBase* context) const;  // OK where there is no error.

  session::ControlApi& api_;
  const uint32_t uid_;
  const bool admin_;
  std::atomic<int> drains_{0};
};

}  // namespace tier::control

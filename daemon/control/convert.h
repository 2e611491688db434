// Between session::ControlApi's structs and tier.v1's messages, and from tier::Error to grpc::Status: the one place for
// both. Pure functions.
#pragma once

#include <chrono>
#include <cstdint>
#include <string_view>

#include <grpcpp/grpcpp.h>

#include "daemon/session/control_api.h"
#include "proto/result.h"
#include "tier/v1/control.pb.h"

namespace tier::control {

inline constexpr char kCodeMetadataKey[] = "tier-code";        // Trailing: "NO_MEMORY".
inline constexpr char kTokenMetadataKey[] = "tier-job-token";  // Leading, from the caller.

// The gRPC code that makes stock clients behave rightly (retry only what may succeed later).
grpc::StatusCode ToGrpcCode(Code code);
// Adds `tier-code` to the trailing metadata of `context`, if there is one. The details are a google.rpc.Status with an
// ErrorInfo, whose reason is the name of the code. A sentence that is too long for gRPC's metadata is cut.
grpc::Status ToStatus(const Error& error, grpc::ServerContextBase* context);

session::OpenJobRequest FromMessage(const v1::OpenJobRequest& message);
// INVALID: the mask names what is no term of a job.
Result<tiering::TermsChange> TermsChangeOf(const v1::SetJobRequest& message);
inline constexpr std::chrono::milliseconds kDrainTimeoutDefault{60'000};
inline constexpr std::chrono::milliseconds kDrainTimeoutMax{3'600'000};
// At most the maximum. INVALID: a negative one, or none that is valid.
Result<std::chrono::milliseconds> DrainTimeoutOf(const v1::DrainRequest& message);
// Who reads a token may join the job: it goes out only where it is asked for.
enum class Tokens : uint8_t { kWithout, kWith };
void ToMessage(const session::JobDescription& job, Tokens tokens, v1::Job* message);
void ToMessage(const session::StoredManifestDescription& stored, v1::StoredManifest* message);
void ToMessage(const session::UnopenedReservationDescription& unopened, v1::UnopenedReservation* message);
void ToMessage(const session::DaemonDescription& daemon, v1::NodeStatus* message);
void AddReloadFailure(const session::ReloadFailure& failure, bool for_administrator, v1::NodeStatus* message);
void ToMessage(const session::DeviceDescription& device, v1::Device* message);
void ToMessage(const tiering::MissingDeviceView& device, v1::MissingDevice* message);
void ToMessage(const session::PoolDescription& pool, v1::GetPoolMapResponse* message);
void ToMessage(const tiering::TensorView& tensor, v1::Tensor* message);
void ToMessage(const session::OwnerSocket& socket, v1::OwnerSocket* message);
void ToMessage(const session::Event& event, v1::Event* message);

}  // namespace tier::control

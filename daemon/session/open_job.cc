// ValidateOpenJob: the one check of what the handshake and gRPC may ask for when they open a job.
#include <algorithm>
#include <string_view>

#include <fmt/format.h>

#include "daemon/session/control_api.h"
#include "daemon/session/job_registry.h"
#include "daemon/session/token_source.h"
#include "daemon/tiering/api/options.h"

namespace tier::session {
namespace {

bool IsNameCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("._:/@-").find(c) != std::string_view::npos;
}

Status ValidateWorld(const OpenJobRequest& request) {
  if (request.world_size < 0 || request.world_size > kWorldSizeMax) {
    return Fail(Code::kInvalid,
                fmt::format("world_size is {}, allowed are 0 (none) to {}", request.world_size, kWorldSizeMax));
  }
  if (request.world_size == 0 && request.rank != -1) {
    return Fail(Code::kInvalid, fmt::format("rank is {} without a world_size; give both or neither", request.rank));
  }
  if (request.world_size > 0 && (request.rank < 0 || request.rank >= request.world_size)) {
    return Fail(Code::kInvalid, fmt::format("rank is {}, allowed are 0 to {}", request.rank, request.world_size - 1));
  }
  return {};
}

}  // namespace

Status ValidateOpenJob(const OpenJobRequest& request) {
  if (request.name.size() >= proto::kJobNameSize) {
    return Fail(Code::kInvalid, fmt::format("the job name has {} characters, at most {} are allowed",
                                            request.name.size(), proto::kJobNameSize - 1));
  }
  if (!std::all_of(request.name.begin(), request.name.end(), IsNameCharacter)) {
    return Fail(Code::kInvalid, "the job name may hold only letters, digits and . _ : / @ -");
  }
  if (!request.token.empty() && !IsToken(request.token)) {
    return Fail(Code::kInvalid, "the job token must be 64 hexadecimal digits");
  }
  if (!request.token.empty() && !request.launch.empty()) {
    return Fail(Code::kInvalid, "a job token and a launch were given; give one of them");
  }
  if (static_cast<uint16_t>(request.mode) > static_cast<uint16_t>(proto::OpenMode::kResumeOrCreate)) {
    return Fail(Code::kInvalid, fmt::format("mode is {}, allowed are 0 (attach), 1 (create), 2 (join), 3 (resume), 4 "
                                            "(resume_or_create)",
                                            static_cast<uint16_t>(request.mode)));
  }
  if (request.owner && (*request.owner == UINT32_MAX || request.name.empty())) {
    return Fail(Code::kInvalid, "a job for another user needs the uid of that user, 0 to 4294967294, and a name");
  }
  const bool needs_name = request.mode == proto::OpenMode::kJoin || request.resumes();
  if (needs_name && request.name.empty()) return Fail(Code::kInvalid, "join and resume need the job's name");
  if (request.named && request.name.empty()) return Fail(Code::kInvalid, "a named job needs a name");
  if (Status ram = tiering::CheckRamLimit(request.guarantee_bytes, request.limit_bytes); !ram) return ram;
  if (Status ssd = tiering::CheckSsdLimit(request.ssd_guarantee_bytes, request.ssd_limit_bytes); !ssd) return ssd;
  return ValidateWorld(request);
}

}  // namespace tier::session

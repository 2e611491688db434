// What FakeEngine was asked, and what it answers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "daemon/tiering/api/request.h"
#include "proto/ring.h"

namespace tier::session::testing {

struct SubmittedRequest {
  tiering::SessionId session{};
  uint64_t sequence = 0;
  proto::Op op = proto::Op::kNone;
  uint32_t flags = 0;
  uint32_t timeout_ms = 0;
  uint64_t argument = 0;
  std::vector<proto::RequestItem> items;
  std::string text;
};

// What the fake answers; spans are kept here for as long as the reply is in use.
struct ScriptedReply {
  Code code = Code::kOk;
  uint64_t value = 0;
  std::vector<proto::SpanRecord> spans;
  proto::ErrorRecord error{};
  std::string detail;
  std::optional<proto::TensorRecord> tensor;
};

}  // namespace tier::session::testing

#include "tools/tierctl/tensor_verbs.h"

#include <algorithm>
#include <charconv>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "tools/tierctl/ask.h"
#include "tools/tierctl/message_json.h"

namespace tier::tierctl {
namespace {

using Stub = v1::ControlService::Stub;

void PrintTensors(const v1::ListTensorsResponse& answer, bool truncated, const OutputOptions& output) {
  const auto& tensors = answer.tensors();
  const auto state = [](const v1::Tensor& t) { return t.torn() ? "torn" : t.sealed() ? "sealed" : "creating"; };
  fmt::print(
      "{}",
      RenderTable(
          {
              MakeColumn("TENSOR", tensors, false,
                         [](const v1::Tensor& t) { return t.key().empty() ? fmt::format("{:#x}", t.id()) : t.key(); }),
              MakeColumn("SPACE", tensors, false,
                         [](const v1::Tensor& t) { return t.space() == 0 ? "shared" : std::to_string(t.space()); }),
              MakeColumn("SIZE", tensors, true, [](const v1::Tensor& t) { return HumanBytes(t.size_bytes()); }),
              MakeColumn("GENERATION", tensors, true,
                         [](const v1::Tensor& t) { return std::to_string(t.generation()); }),
              MakeColumn("RAM", tensors, true, [](const v1::Tensor& t) { return HumanBytes(t.ram_bytes()); }),
              MakeColumn("SSD", tensors, true, [](const v1::Tensor& t) { return HumanBytes(t.ssd_bytes()); }),
              MakeColumn("LEASES", tensors, true, [](const v1::Tensor& t) { return std::to_string(t.lease_count()); }),
              MakeColumn("STATE", tensors, false, state),
          },
          output));
  if (truncated) fmt::print("{} more; ask for them with --max\n", output.unicode ? "…" : "...");
}

}  // namespace

bool KeepTorn(v1::ListTensorsResponse* answer, uint32_t max) {
  auto* const tensors = answer->mutable_tensors();
  const auto whole = [](const v1::Tensor& tensor) { return !tensor.torn(); };
  tensors->erase(std::remove_if(tensors->begin(), tensors->end(), whole), tensors->end());
  const bool more = std::cmp_greater(tensors->size(), max);
  if (more) tensors->erase(tensors->begin() + static_cast<int>(max), tensors->end());
  return more;
}

int ListTensors(const DaemonOptions& options, const std::string& job, const TensorsAsked& asked) {
  const auto max = static_cast<int32_t>(asked.max);
  v1::ListTensorsRequest request;
  request.set_job(job);
  if (!asked.torn) request.set_page_size(max);
  const auto more = [&](const v1::ListTensorsResponse& listed, v1::ListTensorsRequest* next) {
    if (asked.torn) return true;  // The torn ones may be the last of all.
    next->set_page_size(max - listed.tensors_size());
    return next->page_size() > 0;
  };
  const auto show = [&](v1::ListTensorsResponse answer) {
    const bool truncated = asked.torn ? KeepTorn(&answer, asked.max) : !answer.next_page_token().empty();
    if (options.output.json) {
      Json document = ToJson(answer);
      document.erase("next_page_token");
      document["truncated"] = truncated;
      PrintJson(document);
    } else if (asked.torn && answer.tensors().empty()) {
      fmt::print("no tensor is torn\n");
    } else {
      PrintTensors(answer, truncated, options.output);
    }
    return kExitOk;
  };
  return AskPages<v1::ListTensorsResponse>(options, &Stub::ListTensors, request, more, show);
}

int ShowTensor(const DaemonOptions& options, const std::string& job, const std::string& id_or_key) {
  uint64_t id = 0;
  const bool hexadecimal = id_or_key.starts_with("0x");
  const char* begin = id_or_key.data() + (hexadecimal ? 2 : 0);
  const char* end = id_or_key.data() + id_or_key.size();
  const auto [rest, error] = std::from_chars(begin, end, id, hexadecimal ? 16 : 10);
  const bool is_number = error == std::errc() && rest == end;
  v1::ListTensorsRequest request;
  request.set_job(job);
  const auto all = [](const v1::ListTensorsResponse&, v1::ListTensorsRequest*) { return true; };
  const auto show = [&](const v1::ListTensorsResponse& answer) {
    Json found = Json::array();
    for (const v1::Tensor& tensor : answer.tensors()) {
      if (tensor.key() == id_or_key || (is_number && tensor.id() == id)) found.push_back(ToJson(tensor));
    }
    if (found.empty()) {
      return Explain(Error{Code::kNotFound, fmt::format("no tensor {} in job {}", id_or_key, job)});
    }
    if (options.output.json) {
      PrintJson({{"tensors", found}});
      return kExitOk;
    }
    for (const Json& tensor : found) {
      std::vector<std::pair<std::string, std::string>> fields;
      for (const auto& [name, value] : tensor.items()) {
        fields.emplace_back(name, value.is_string() ? value.get<std::string>() : value.dump());
      }
      fmt::print("{}", RenderFields(fields, options.output));
    }
    return kExitOk;
  };
  return AskPages<v1::ListTensorsResponse>(options, &Stub::ListTensors, request, all, show);
}

}  // namespace tier::tierctl

#include "tools/tierctl/quota_verbs.h"

#include <charconv>
#include <cstdio>
#include <map>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tools/tierctl/ask.h"
#include "tools/tierctl/connection.h"
#include "tools/tierctl/message_json.h"
#include "tools/tierctl/printable.h"
#include "tools/tierctl/size_argument.h"
#include "tools/tierctl/socket_verbs.h"

namespace tier::tierctl {
namespace {

using Stub = v1::ControlService::Stub;

constexpr const char* kUnlimited = "unlimited";

// A cap on jobs is a count.
Result<uint64_t> CountArgument(const std::string& option, const std::string& text) {
  uint64_t count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (error == std::errc() && end == text.data() + text.size()) return count;
  return Fail(Code::kInvalid,
              fmt::format("{} \"{}\" is no count; write it like 4, or {}", option, Printable(text), kUnlimited));
}

Result<v1::QuotaLimit> ParseLimit(const std::string& option, const std::string& text, bool bytes) {
  v1::QuotaLimit limit;
  if (text == kUnlimited) {
    limit.set_unlimited(true);
    return limit;
  }
  const auto most = bytes ? SizeArgument(option, text, fmt::format("or {}", kUnlimited)) : CountArgument(option, text);
  if (!most) return std::unexpected(most.error());
  limit.set_most(*most);
  return limit;
}

template <typename Request>
std::optional<std::string> FillTarget(const QuotaWords& words, Request* request) {
  const std::map<std::string, v1::QuotaLevel> levels = {
      {"default", v1::QUOTA_LEVEL_DEFAULT}, {"group", v1::QUOTA_LEVEL_GROUP}, {"user", v1::QUOTA_LEVEL_USER}};
  const auto level = levels.find(words.level);
  if (level == levels.end()) {
    return fmt::format("a quota is of 'default', 'user NAME' or 'group NAME', not of '{}'", Printable(words.level));
  }
  const bool is_default = level->second == v1::QUOTA_LEVEL_DEFAULT;
  if (is_default && !words.name.empty())
    return fmt::format("the default quota has no name: '{}'", Printable(words.name));
  if (!is_default && words.name.empty()) return fmt::format("name the {}, or give its number", words.level);
  request->set_level(level->second);
  request->set_name(words.name);
  return std::nullopt;
}

std::string LimitText(bool present, const v1::QuotaLimit& limit, bool bytes) {
  if (!present) return "-";
  if (limit.unlimited()) return kUnlimited;
  return bytes ? HumanBytes(limit.most()) : std::to_string(limit.most());
}

struct Resource {
  const char* name;
  bool bytes;
  const v1::QuotaUsePart& (v1::QuotaUse::*part)() const;
};
constexpr Resource kResources[] = {{"RAM", true, &v1::QuotaUse::ram},
                                   {"SSD", true, &v1::QuotaUse::ssd},
                                   {"guarantee", true, &v1::QuotaUse::guarantee},
                                   {"jobs", false, &v1::QuotaUse::jobs}};

struct UseRow {
  std::string user;
  const Resource* resource;
  const v1::QuotaUsePart* part;
};

// `limits`: those that were set, for people.
int SayChanged(const DaemonOptions& options, const QuotaWords& words, const char* what, const std::string& limits) {
  const std::string whom = words.level + (words.name.empty() ? "" : " " + words.name);
  if (options.output.json) {
    PrintJson({{what, whom}});
  } else {
    fmt::print("{} the quota of {}{}{}\n", what, Printable(whom), limits.empty() ? "" : ": ", limits);
  }
  return kExitOk;
}

// "default", "user games", "user games (5)" where the quota has the number, "owner pod-a".
std::string WhomText(const v1::Quota& quota, const UserNames& names) {
  if (quota.level() == v1::QUOTA_LEVEL_DEFAULT) return "default";
  if (!quota.owner().empty()) return "owner " + quota.owner();
  const bool is_user = quota.level() == v1::QUOTA_LEVEL_USER;
  const auto id = NumberIn(quota.name());
  const std::string name = !id ? "" : is_user ? names.of_user(*id) : names.of_group(*id);
  return (is_user ? "user " : "group ") + (name.empty() ? quota.name() : fmt::format("{} ({})", name, *id));
}

int Refuse(const std::string& why) {
  fmt::print(stderr, "tierctl: {}\n", why);
  return kExitUsage;
}

}  // namespace

std::optional<std::string> FillRequest(const QuotaWords& words, v1::SetQuotaRequest* request) {
  if (auto wrong = FillTarget(words, request)) return wrong;
  const auto take = [](const std::string& text, const char* option, bool bytes,
                       v1::QuotaLimit* limit) -> std::optional<std::string> {
    const auto parsed = ParseLimit(option, text, bytes);
    if (!parsed) return parsed.error().message;
    *limit = *parsed;
    return std::nullopt;
  };
  std::optional<std::string> wrong;
  if (!words.ram.empty()) wrong = take(words.ram, "--ram", true, request->mutable_ram());
  if (!wrong && !words.ssd.empty()) wrong = take(words.ssd, "--ssd", true, request->mutable_ssd());
  if (!wrong && !words.guarantee.empty())
    wrong = take(words.guarantee, "--guarantee", true, request->mutable_guarantee());
  if (!wrong && !words.jobs.empty()) wrong = take(words.jobs, "--jobs", false, request->mutable_jobs());
  if (wrong) return wrong;
  if (words.ram.empty() && words.ssd.empty() && words.guarantee.empty() && words.jobs.empty())
    return "nothing to set; name --ram, --ssd, --guarantee or --jobs, or several";
  return std::nullopt;
}

std::optional<std::string> FillRequest(const QuotaWords& words, v1::ClearQuotaRequest* request) {
  return FillTarget(words, request);
}

std::string LimitsText(const v1::SetQuotaRequest& request) {
  std::vector<std::string> limits;
  const auto add = [&limits](const char* name, bool is_set, const v1::QuotaLimit& limit, bool bytes) {
    if (is_set) limits.push_back(fmt::format("{} {}", name, LimitText(true, limit, bytes)));
  };
  add("RAM", request.has_ram(), request.ram(), true);
  add("SSD", request.has_ssd(), request.ssd(), true);
  add("guarantee", request.has_guarantee(), request.guarantee(), true);
  add("jobs", request.has_jobs(), request.jobs(), false);
  return fmt::format("{}", fmt::join(limits, ", "));
}

std::string RenderUses(const v1::ListQuotasResponse& answer, const OutputOptions& output) {
  std::vector<UseRow> rows;
  for (const v1::QuotaUse& use : answer.uses()) {
    for (const Resource& resource : kResources)
      rows.push_back({UserText(use.uid(), use.owner()), &resource, &(use.*resource.part)()});
  }
  const auto used = [](const UseRow& row) {
    return row.resource->bytes ? HumanBytes(row.part->used()) : std::to_string(row.part->used());
  };
  const auto most = [](const UseRow& row) { return LimitText(true, row.part->limit(), row.resource->bytes); };
  return RenderTable(
      {
          MakeColumn("UID", rows, true, [](const UseRow& row) { return row.user; }),
          MakeColumn("OF", rows, false, [](const UseRow& row) { return std::string(row.resource->name); }),
          MakeColumn("USED", rows, true, used),
          MakeColumn("QUOTA", rows, true, most),
          MakeColumn("BY", rows, false,
                     [](const UseRow& row) { return row.part->origin().empty() ? "-" : row.part->origin(); }),
      },
      output);
}

std::string RenderQuotas(const v1::ListQuotasResponse& answer, const OutputOptions& output, const UserNames& names) {
  const auto& quotas = answer.quotas();
  const auto whom = [&names](const v1::Quota& quota) { return WhomText(quota, names); };
  return RenderTable(
      {
          MakeColumn("FOR", quotas, false, whom),
          MakeColumn("RAM", quotas, true, [](const v1::Quota& q) { return LimitText(q.has_ram(), q.ram(), true); }),
          MakeColumn("SSD", quotas, true, [](const v1::Quota& q) { return LimitText(q.has_ssd(), q.ssd(), true); }),
          MakeColumn("GUARANTEE", quotas, true,
                     [](const v1::Quota& q) { return LimitText(q.has_guarantee(), q.guarantee(), true); }),
          MakeColumn("JOBS", quotas, true, [](const v1::Quota& q) { return LimitText(q.has_jobs(), q.jobs(), false); }),
          MakeColumn("SET", quotas, false,
                     [](const v1::Quota& q) { return q.at_run_time() ? "at run time" : "in the configuration"; }),
      },
      output);
}

int ShowQuotas(const DaemonOptions& options) {
  return Ask<v1::ListQuotasResponse>(
      options, &Stub::ListQuotas, v1::ListQuotasRequest(), [&](const v1::ListQuotasResponse& answer) {
        options.output.json ? PrintJson(ToJson(answer)) : fmt::print("{}", RenderUses(answer, options.output));
        return kExitOk;
      });
}

// The daemon tells others of no quota: an empty table would say that there is none.
int ListQuotas(const DaemonOptions& options) {
  const auto channel = Connect(options);
  if (!channel) return Explain(channel.error());
  if (!IsForAdministrators(**channel)) {
    Error refused = AdministratorsOnly("list the quotas");
    refused.message += "; 'tierctl quota' shows what holds for you";
    return Explain(refused);
  }
  v1::ListQuotasResponse answer;
  if (const auto listed = (*channel)->Call(&Stub::ListQuotas, v1::ListQuotasRequest(), &answer); !listed)
    return Explain(listed.error());
  options.output.json ? PrintJson(ToJson(answer)) : fmt::print("{}", RenderQuotas(answer, options.output, {}));
  return kExitOk;
}

int SetQuota(const DaemonOptions& options, const QuotaWords& words) {
  v1::SetQuotaRequest request;
  if (const auto wrong = FillRequest(words, &request)) return Refuse(*wrong);
  return Ask<v1::SetQuotaResponse>(options, &Stub::SetQuota, request, [&](const v1::SetQuotaResponse&) {
    return SayChanged(options, words, "set", LimitsText(request));
  });
}

int ClearQuota(const DaemonOptions& options, const QuotaWords& words) {
  v1::ClearQuotaRequest request;
  if (const auto wrong = FillRequest(words, &request)) return Refuse(*wrong);
  return Ask<v1::ClearQuotaResponse>(options, &Stub::ClearQuota, request, [&](const v1::ClearQuotaResponse&) {
    return SayChanged(options, words, "cleared", "");
  });
}

}  // namespace tier::tierctl

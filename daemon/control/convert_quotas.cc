// See convert_quotas.h.
#include "daemon/control/convert_quotas.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "daemon/base/check.h"

namespace tier::control {
namespace {

using tiering::kUnlimited;
using tiering::QuotaLevel;

constexpr uint64_t kMostMax = uint64_t{1} << 50;  // As in the configuration; JSON can hold it.

Result<uint64_t> LimitOf(const char* name, const v1::QuotaLimit& limit) {
  if (limit.unlimited() && limit.most() != 0)
    return Fail(Code::kInvalid, fmt::format("{} is unlimited, and {}: give one of them", name, limit.most()));
  if (limit.unlimited()) return kUnlimited;
  if (limit.most() <= kMostMax) return limit.most();
  return Fail(Code::kInvalid, fmt::format("{} is {}, allowed are 0 to {}, or unlimited", name, limit.most(), kMostMax));
}

v1::QuotaLimit MessageOf(uint64_t most) {
  v1::QuotaLimit message;
  message.set_unlimited(most == kUnlimited);
  if (most != kUnlimited) message.set_most(most);
  return message;
}

v1::QuotaUsePart MessageOf(const session::QuotaUse::Part& part, const char* option, const std::string& owner) {
  v1::QuotaUsePart message;
  message.set_used(part.used);
  *message.mutable_limit() = MessageOf(part.limit.most);
  const bool said = part.limit.any() || part.limit.origin.level != QuotaLevel::kOption;
  if (said) message.set_origin(tiering::DescribeOrigin(part.limit.origin, option, owner));
  return message;
}

v1::QuotaLevel MessageOf(QuotaLevel level) {
  TIER_CHECK(level != QuotaLevel::kOption, "an option of level {} is no quota", static_cast<int>(level));
  if (level == QuotaLevel::kDefault) return v1::QUOTA_LEVEL_DEFAULT;
  return level == QuotaLevel::kUser ? v1::QUOTA_LEVEL_USER : v1::QUOTA_LEVEL_GROUP;
}

void ToMessage(const session::QuotaRow& row, v1::Quota* message) {
  message->set_level(MessageOf(row.level));
  message->set_name(row.name);
  message->set_owner(row.owner);
  message->set_at_run_time(row.at_run_time);
  if (row.fields.ram) *message->mutable_ram() = MessageOf(*row.fields.ram);
  if (row.fields.ssd) *message->mutable_ssd() = MessageOf(*row.fields.ssd);
  if (row.fields.guarantee) *message->mutable_guarantee() = MessageOf(*row.fields.guarantee);
  if (row.fields.jobs) *message->mutable_jobs() = MessageOf(*row.fields.jobs);
}

}  // namespace

Result<session::QuotaTarget> QuotaTargetOf(v1::QuotaLevel level, const std::string& name) {
  if (level == v1::QUOTA_LEVEL_DEFAULT) {
    if (name.empty()) return session::QuotaTarget{.level = QuotaLevel::kDefault, .name = {}};
    return Fail(Code::kInvalid, "the default quota has no name");
  }
  if (level != v1::QUOTA_LEVEL_USER && level != v1::QUOTA_LEVEL_GROUP) {
    return Fail(Code::kInvalid,
                fmt::format("level is {}, allowed are 1 (default), 2 (group) and 3 (user)", static_cast<int>(level)));
  }
  const auto is_bad = [](unsigned char c) { return c <= ' ' || c == 0x7f; };
  if (name.empty() || name.size() > kQuotaNameSizeMax || std::ranges::any_of(name, is_bad)) {
    return Fail(Code::kInvalid,
                fmt::format("the name of a user or group has 1 to {} characters, and no spaces", kQuotaNameSizeMax));
  }
  return session::QuotaTarget{.level = level == v1::QUOTA_LEVEL_USER ? QuotaLevel::kUser : QuotaLevel::kGroup,
                              .name = name};
}

Result<session::QuotaFields> FromMessage(const v1::SetQuotaRequest& message) {
  session::QuotaFields fields;
  Status taken;
  const auto take = [&taken](const char* name, bool present, const v1::QuotaLimit& limit,
                             std::optional<uint64_t>* field) {
    if (!present || !taken) return;
    const auto most = LimitOf(name, limit);
    most ? void(*field = *most) : void(taken = std::unexpected(most.error()));
  };
  take("ram", message.has_ram(), message.ram(), &fields.ram);
  take("ssd", message.has_ssd(), message.ssd(), &fields.ssd);
  take("guarantee", message.has_guarantee(), message.guarantee(), &fields.guarantee);
  take("jobs", message.has_jobs(), message.jobs(), &fields.jobs);
  if (!taken) return std::unexpected(taken.error());
  return fields;
}

void ToMessage(const session::QuotaReport& report, v1::ListQuotasResponse* message) {
  for (const session::QuotaRow& row : report.quotas) ToMessage(row, message->add_quotas());
  for (const session::QuotaUse& use : report.uses) {
    v1::QuotaUse* const to = message->add_uses();
    to->set_uid(use.uid);
    to->set_owner(use.owner);
    *to->mutable_ram() = MessageOf(use.ram, "", use.owner);
    *to->mutable_ssd() = MessageOf(use.ssd, "jobs.max_ssd_per_uid", use.owner);
    *to->mutable_guarantee() = MessageOf(use.guarantee, "", use.owner);
    *to->mutable_jobs() = MessageOf(use.jobs, "jobs.max_jobs_per_uid", use.owner);
  }
}

}  // namespace tier::control

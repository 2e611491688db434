// See quota_section.h.
#include "daemon/config/quota_section.h"

#include <algorithm>
#include <charconv>
#include <limits>

#include <fmt/format.h>

#include "daemon/base/edit_distance.h"
#include "daemon/base/format_bytes.h"
#include "daemon/config/quantity.h"
#include "daemon/session/owner_table.h"

namespace tier::config {
namespace {

constexpr uint64_t kQuotaBytesMax = uint64_t{1} << 50;  // As of other sizes.

std::string NameOf(const QuotaSetting& setting) {
  std::string name = "quota";
  for (const std::string& part : setting.path) name += "." + part.substr(0, kQuotaNameSizeMax);
  return name;
}

std::unexpected<Error> Wrong(const QuotaSetting& setting, std::string_view what) {
  return Fail(Code::kInvalid, fmt::format("option {}: {}", NameOf(setting), what));
}

// A number is an id, which must be one that the kernel gives to users and groups: the highest one means "none". That of
// an owner is no other owner's once its name is given up, which this file does not know.
Status CheckName(const QuotaSetting& setting, const std::string& name) {
  if (name.empty()) return Wrong(setting, "the name is empty");
  if (name.size() > kQuotaNameSizeMax) {
    return Wrong(setting,
                 fmt::format("the name has {} characters, at most {} are allowed", name.size(), kQuotaNameSizeMax));
  }
  const auto is_bad = [](unsigned char c) { return c <= ' ' || c == 0x7f || c == ':' || c == '/'; };
  if (std::ranges::any_of(name, is_bad)) return Wrong(setting, "a name has no spaces, control characters, ':' or '/'");
  if (name.find_first_not_of("0123456789") != std::string::npos) return {};
  uint32_t id = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), id);
  const bool whole = error == std::errc() && end == name.data() + name.size();
  if (whole && setting.path.front() == "user" && session::IsOwnerUid(id)) {
    return Wrong(setting, fmt::format("uids from {} to {} stand for owners of sockets: write the owner's name (tierctl "
                                      "socket list)",
                                      session::kOwnerUidFirst, session::kOwnerUidLast));
  }
  if (whole && id != std::numeric_limits<uint32_t>::max() && std::to_string(id) == name) return {};
  return Wrong(setting, "a number in place of a name must be an id of 0 to 4294967294, without leading zeros");
}

Result<uint64_t> BytesOf(const QuotaSetting& setting) {
  const auto* const number = std::get_if<int64_t>(&setting.value);
  const auto* const text = std::get_if<std::string>(&setting.value);
  if (text != nullptr && *text == session::kUnlimitedText) return tiering::kUnlimited;
  if ((number == nullptr && text == nullptr) || (number != nullptr && *number < 0) ||
      (text != nullptr && text->empty()))
    return Wrong(setting, "must be a size like \"64GiB\", a number of bytes (0: nothing), or \"unlimited\"");
  const auto size = number != nullptr ? Result<uint64_t>(static_cast<uint64_t>(*number)) : ParseSize(*text);
  if (!size) return Wrong(setting, size.error().message + "; or \"unlimited\"");
  if (*size <= kQuotaBytesMax) return *size;
  return Wrong(setting, fmt::format("{} bytes are out of range, allowed are 0 to {}, or \"unlimited\"", *size,
                                    base::FormatBytes(kQuotaBytesMax)));
}

Result<uint64_t> JobsOf(const QuotaSetting& setting) {
  const auto* const text = std::get_if<std::string>(&setting.value);
  if (text != nullptr && *text == session::kUnlimitedText) return tiering::kUnlimited;
  const auto* const number = std::get_if<int64_t>(&setting.value);
  if (number != nullptr && *number >= 0 && static_cast<uint64_t>(*number) <= session::kQuotaJobsMax)
    return static_cast<uint64_t>(*number);
  return Wrong(setting, fmt::format("must be a number of 0 (none) to {}, or \"unlimited\"", session::kQuotaJobsMax));
}

Status SetField(const QuotaSetting& setting, session::QuotaFields* fields) {
  const std::string& name = setting.path.back();
  const auto key = std::ranges::find(session::kQuotaFields, name, &session::NamedQuotaField::name);
  if (key == session::kQuotaFields.end()) {
    const auto nearest = std::ranges::min_element(session::kQuotaFields, {}, [&](const session::NamedQuotaField& k) {
      return base::EditDistance(name.substr(0, 64), k.name);
    });
    return Fail(Code::kInvalid, fmt::format("unknown option '{}'; a quota has ram, ssd, guarantee and jobs, the "
                                            "nearest is '{}'",
                                            NameOf(setting), nearest->name));
  }
  const auto value = key->name == "jobs" ? JobsOf(setting) : BytesOf(setting);
  if (!value) return std::unexpected(value.error());
  fields->*key->value = *value;
  if (fields->guarantee.value_or(0) != tiering::kUnlimited &&
      fields->guarantee.value_or(0) > fields->ram.value_or(tiering::kUnlimited)) {
    return Wrong(setting, fmt::format("guarantee of {} is above ram of {}", base::FormatBytes(*fields->guarantee),
                                      base::FormatBytes(*fields->ram)));
  }
  return {};
}

std::unexpected<Error> Misplaced(const QuotaSetting& setting) {
  return Fail(Code::kInvalid, fmt::format("'{}' is no quota: quotas stand in the sections [quota.default], "
                                          "[quota.user.\"NAME\"] and [quota.group.\"NAME\"]",
                                          NameOf(setting)));
}

}  // namespace

Status ApplyQuota(const QuotaSetting& setting, session::QuotaTable* quota) {
  const std::vector<std::string>& path = setting.path;
  const size_t values = setting.is_section ? 0 : 1;  // Parts of the path that name one.
  if (path.empty()) return setting.is_section ? Status() : Misplaced(setting);
  if (path[0] == "default") {
    if (path.size() != 1 + values) return Misplaced(setting);
    return setting.is_section ? Status() : SetField(setting, &quota->by_default);
  }
  if (path[0] != "user" && path[0] != "group") return Misplaced(setting);
  if (path.size() == 1 && setting.is_section) return {};
  if (path.size() != 2 + values) return Misplaced(setting);
  if (Status named = CheckName(setting, path[1]); !named) return named;
  if (setting.is_section) return {};
  auto& fields = path[0] == "user" ? quota->users : quota->groups;
  if (!fields.contains(path[1]) && quota->users.size() + quota->groups.size() >= session::kQuotasMax)
    return Wrong(setting, fmt::format("more than {} users and groups have quotas", session::kQuotasMax));
  return SetField(setting, &fields[path[1]]);
}

}  // namespace tier::config

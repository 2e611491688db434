// See owner_table.h.
#include "daemon/session/owner_table.h"

#include <algorithm>

#include <fmt/format.h>

#include "daemon/base/check.h"
#include "daemon/session/line_file.h"

namespace tier::session {
namespace {

constexpr LineFormat kFormat{.first_line = "tierd-owners 1", .noun = "owner", .bytes_max = kOwnerFileBytesMax};
constexpr std::string_view kOpen = "open";
constexpr std::string_view kClosed = "closed";

bool IsLetterOrDigit(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'); }
bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// "next 4026531842", once and before the owners.
bool ParseNext(const std::vector<std::string_view>& words, OwnerRecords* records) {
  const auto number = words.size() == 2 ? NumberOf<uint32_t>(words[1]) : std::nullopt;
  if (!number || *number <= kOwnerUidFirst || *number > kOwnerUidLast + 1) return false;
  if (records->next != kOwnerUidFirst) return false;
  records->next = *number;
  return true;
}

// "owner pod-a 4026531840 open"
bool ParseOwner(const std::vector<std::string_view>& words, OwnerRecords* records) {
  if (words.size() != 4 || !CheckOwnerName(words[1])) return false;
  const auto uid = NumberOf<uint32_t>(words[2]);
  if (!uid || !IsOwnerUid(*uid) || *uid >= records->next || (words[3] != kOpen && words[3] != kClosed)) return false;
  const auto has_it = [&uid](const auto& owner) { return owner.second.uid == *uid; };
  if (records->owners.size() >= kOwnersMax || std::ranges::any_of(records->owners, has_it)) return false;
  return records->owners.emplace(words[1], OwnerEntry{.uid = *uid, .open = words[3] == kOpen}).second;
}

bool ParseLine(std::string_view line, OwnerRecords* records) {
  const std::vector<std::string_view> words = SplitWords(line);
  if (words.front() == "next") return ParseNext(words, records);
  return words.front() == "owner" && ParseOwner(words, records);
}

std::unexpected<Error> NoOwner(const std::string& name) {
  return Fail(Code::kNotFound,
              fmt::format("no socket has the owner '{}' (tierctl socket list)", name.substr(0, kOwnerNameSizeMax)));
}

}  // namespace

Status CheckOwnerName(std::string_view name) {
  if (name.empty() || name.size() > kOwnerNameSizeMax) {
    return Fail(Code::kInvalid, fmt::format("the name of an owner has 1 to {} characters, and this one {}",
                                            kOwnerNameSizeMax, name.size()));
  }
  const auto is_bad = [](char c) { return !IsLetterOrDigit(c) && c != '-' && c != '_' && c != '.'; };
  if (std::ranges::any_of(name, is_bad) || !IsLetterOrDigit(name.front())) {
    return Fail(Code::kInvalid,
                "the name of an owner has letters, digits, '-', '_' and '.' only, and begins with a letter or a digit");
  }
  if (std::ranges::all_of(name, IsDigit))
    return Fail(Code::kInvalid, "the name of an owner is no number: a number is a uid");
  return {};
}

Error OwnerUidRefusal(uint32_t uid) {
  return {Code::kDenied, fmt::format("uids from {} on stand for owners of sockets (tierctl socket list), and this "
                                     "process has uid {}: run it as another user",
                                     kOwnerUidFirst, uid)};
}

Error NoOwnerRefusal(uint32_t uid) {
  return {Code::kDenied, fmt::format("uid {} stands for the owner of a socket, and no owner has it any more: its name "
                                     "was given up (tierctl socket list); open another socket (tierctl socket open)",
                                     uid)};
}

std::string FormatOwners(const OwnerRecords& records) {
  std::string lines;
  if (records.next != kOwnerUidFirst) lines += fmt::format("next {}\n", records.next);
  for (const auto& [name, owner] : records.owners) {
    TIER_CHECK(owner.uid < records.next, "owner {} has the number {} before it is given", name, owner.uid);
    lines += fmt::format("owner {} {} {}\n", name, owner.uid, owner.open ? kOpen : kClosed);
  }
  return FormatLines(kFormat, lines);
}

Result<OwnerRecords> ParseOwners(std::string_view text) {
  OwnerRecords records;
  const Status parsed = ParseLines(kFormat, text, [&](std::string_view line) { return ParseLine(line, &records); });
  if (!parsed) return std::unexpected(parsed.error());
  return records;
}

Result<OwnerRecords> LoadOwners(const std::string& path) {
  const auto text = ReadLineFile(kFormat, path);
  if (!text) return std::unexpected(text.error());
  if (!*text) return OwnerRecords{};
  auto records = ParseOwners(**text);
  if (records) return records;
  return Fail(records.error().code,
              fmt::format("the owners of sockets cannot be read from {}: {}; restore the file: without it their jobs "
                          "and what these persisted belong to no owner",
                          path, records.error().message));
}

Status OwnerTable::MayOpen(const std::string& name) const {
  const auto uid = UidFor(name);
  return uid ? Status() : std::unexpected(uid.error());
}

Result<uint32_t> OwnerTable::UidFor(const std::string& name) const {
  if (Status named = CheckOwnerName(name); !named) return std::unexpected(named.error());
  if (file_.empty()) {
    return Fail(Code::kDenied,
                "this daemon keeps nothing, also no owners of sockets: set daemon.data_directory to a directory on a "
                "local disk");
  }
  const MutexLock lock(mutex_);
  if (const auto known = records_.owners.find(name); known != records_.owners.end()) return known->second.uid;
  if (records_.owners.size() >= kOwnersMax) {
    return Fail(Code::kNoMemory, fmt::format("there are {} owners of sockets, the limit: remove those that are not "
                                             "needed (tierctl socket close --owner NAME --purge)",
                                             records_.owners.size()));
  }
  if (const auto free = FreeNumber()) return *free;
  return Fail(Code::kNoMemory, fmt::format("no number is left for an owner: each up to {} is in use", kOwnerUidLast));
}

// At most as many steps as there are owners and excluded numbers.
std::optional<uint32_t> OwnerTable::FreeNumber() const {
  const auto lowest = [](uint32_t from, const std::set<uint32_t>& taken) -> std::optional<uint32_t> {
    while (from <= kOwnerUidLast && taken.contains(from)) ++from;
    return from <= kOwnerUidLast ? std::optional(from) : std::nullopt;
  };
  if (const auto never_given = lowest(records_.next, excluded_)) return never_given;
  std::set<uint32_t> taken = excluded_;
  for (const auto& [name, owner] : records_.owners) taken.insert(owner.uid);
  return lowest(kOwnerUidFirst, taken);
}

Result<uint32_t> OwnerTable::Open(const std::string& name) {
  const MutexLock writing(writing_);
  const auto uid = UidFor(name);
  if (!uid) return uid;
  OwnerRecords next = Records();
  OwnerEntry& owner = next.owners.try_emplace(name, OwnerEntry{.uid = *uid, .open = false}).first->second;
  TIER_CHECK(owner.uid == *uid && IsOwnerUid(*uid), "owner {} has the number {}, and gets {}", name, owner.uid, *uid);
  if (owner.open) return uid;
  owner.open = true;
  next.next = std::max(next.next, *uid + 1);
  if (Status saved = Replace(next); !saved) return std::unexpected(saved.error());
  return uid;
}

Status OwnerTable::Close(const std::string& name) {
  const MutexLock writing(writing_);
  OwnerRecords next = Records();
  const auto known = next.owners.find(name);
  if (known == next.owners.end()) return NoOwner(name);
  if (!known->second.open) return {};
  known->second.open = false;
  return Replace(next);
}

// Who was this owner may be connected still, and events and quotas may name its number until the daemon ends.
Status OwnerTable::Remove(const std::string& name) {
  const MutexLock writing(writing_);
  OwnerRecords next = Records();
  const auto gone = next.owners.extract(name);
  if (gone.empty()) return NoOwner(name);
  if (Status saved = Replace(next); !saved) return saved;
  Exclude(gone.mapped().uid);
  return {};
}

void OwnerTable::Exclude(uint32_t uid) {
  const MutexLock lock(mutex_);
  if (IsOwnerUid(uid)) excluded_.insert(uid);
}

void OwnerTable::Suspend(uint32_t uid) {
  const MutexLock lock(mutex_);
  suspended_.insert(uid);
}

void OwnerTable::EndSuspension(uint32_t uid) {
  const MutexLock lock(mutex_);
  suspended_.erase(uid);
}

bool OwnerTable::IsOwner(uint32_t uid) const {
  const MutexLock lock(mutex_);
  const auto has_it = [uid](const auto& owner) { return owner.second.uid == uid; };
  return !suspended_.contains(uid) && std::ranges::any_of(records_.owners, has_it);
}

std::optional<uint32_t> OwnerTable::UidOf(std::string_view name) const {
  const MutexLock lock(mutex_);
  const auto known = records_.owners.find(name);
  return known == records_.owners.end() ? std::nullopt : std::optional(known->second.uid);
}

std::string OwnerTable::NameOf(uint32_t uid) const {
  if (!IsOwnerUid(uid)) return {};
  const MutexLock lock(mutex_);
  const auto has_it = [uid](const auto& owner) { return owner.second.uid == uid; };
  const auto known = std::ranges::find_if(records_.owners, has_it);
  return known == records_.owners.end() ? std::string() : known->first;
}

std::vector<std::pair<std::string, OwnerEntry>> OwnerTable::List() const {
  const MutexLock lock(mutex_);
  return {records_.owners.begin(), records_.owners.end()};
}

OwnerRecords OwnerTable::Records() const {
  const MutexLock lock(mutex_);
  return records_;
}

Status OwnerTable::Replace(const OwnerRecords& next) {
  TIER_CHECK(!file_.empty() && next.owners.size() <= kOwnersMax, "{} owners for '{}'", next.owners.size(), file_);
  if (Status saved = ReplaceLineFile(file_, FormatOwners(next)); !saved) return saved;
  const MutexLock lock(mutex_);
  records_ = next;
  return {};
}

UserEntry OwnerDirectory::FindUser(uint32_t uid) {
  if (!IsOwnerUid(uid)) return system_.FindUser(uid);
  return {.name = owners_.NameOf(uid), .groups = {}};
}

Result<uint32_t> OwnerDirectory::FindUserId(const std::string& name) {
  const auto owner = owners_.UidOf(name);
  return owner ? *owner : system_.FindUserId(name);
}

}  // namespace tier::session

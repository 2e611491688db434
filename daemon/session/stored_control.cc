// See stored_control.h.
#include "daemon/session/stored_control.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "daemon/base/check.h"
#include "daemon/base/counted.h"
#include "daemon/session/owner_words.h"

namespace tier::session {

namespace {

Status StillAttached(const Job& job) {
  return Fail(Code::kDenied,
              fmt::format("job '{}' of uid {} has {} attached, and closing it ends what these run: stop them first, or "
                          "close it all the same (tierctl job remove --force)",
                          job.name, job.uid, base::Counted(job.members.size(), "process", "processes")));
}

}  // namespace

Status StoredControl::Close(const Caller& caller, const std::string& name, const JobClosing& closing) {
  return parts_.calls.Ask<void>([this, caller, name, closing]() -> Status {
    const bool purge = closing.purge;
    const auto job = parts_.jobs.registry().FindFor(caller, name);
    if (!job && job.error().code != Code::kNotFound) return std::unexpected(job.error());
    if (!job || purge) {
      const std::vector<StoredManifestDescription> stored = Named(caller, name);
      const bool dropped = !job && DropReservation(caller, name);
      if (dropped && (stored.empty() || !purge)) return {};
      if (!job) return RemoveStored(caller, name, stored, purge, job.error());
      if (Status clear = CheckPurge(**job, name, stored); !clear) return clear;
    }
    if (closing.unless_attached && !(*job)->members.empty()) return StillAttached(**job);
    (void)parts_.jobs.DropReservation((*job)->uid, (*job)->name);  // Of one that is being resumed.
    parts_.jobs.Close((*job)->id,
                      fmt::format("closed by request of uid {} (by tierctl job remove, or close_job)", caller.uid),
                      purge);
    return {};
  });
}

// One that could not be opened is no job of the registry.
bool StoredControl::DropReservation(const Caller& caller, const std::string& name) {
  if (!JobRegistry::MaySeeOf(caller, caller.uid)) return false;
  const auto qualified = QualifiedFor(caller, name);
  if (qualified && parts_.jobs.DropReservation(qualified->first, qualified->second)) return true;
  return (!qualified || !caller.admin) && parts_.jobs.DropReservation(caller.uid, name);
}

// A purge of a live job must not delete what another user, or an earlier run, has persisted under the same name.
Status StoredControl::CheckPurge(const Job& job, const std::string& name,
                                 const std::vector<StoredManifestDescription>& stored) {
  const std::string key = job.EngineKey();
  const auto is_owners = [&job](const StoredManifestDescription& each) { return each.uid == job.uid; };
  if (name != key && !std::ranges::all_of(stored, is_owners)) {
    return Fail(Code::kInvalid,
                fmt::format("several owners have a job '{0}', live or persisted: write uid/{0}", job.name));
  }
  const auto earlier =
      parts_.jobs.engine().StoredManifests(key, 1);  // Also where the caller, a token's holder, may not list it.
  if (earlier.empty() || earlier.front().key != key) return {};
  return Fail(Code::kInvalid,
              fmt::format("job '{}' is live, and what is persisted under its name is an earlier run's: remove the live "
                          "one first, without --purge, or wait until it has ended",
                          job.name));
}

Status StoredControl::RemoveStored(const Caller& caller, const std::string& name,
                                   const std::vector<StoredManifestDescription>& stored, bool purge,
                                   const Error& absent) {
  if (stored.size() > 1) {
    return Fail(Code::kInvalid, fmt::format("{} owners have a job '{}': write uid/{}", stored.size(), name, name));
  }
  if (!purge && !stored.empty()) {
    return Fail(Code::kNotFound, fmt::format("job '{}' is not open; only tierctl job remove --purge deletes what it "
                                             "persisted",
                                             name));
  }
  if (!purge || !JobRegistry::MaySeeOf(caller, caller.uid)) return std::unexpected(absent);
  // One that is not listed may be closing, or on its way out already: the engine knows.
  std::pair owner(caller.uid, name);
  if (const auto qualified = QualifiedFor(caller, name)) owner = *qualified;
  if (!stored.empty()) owner = {stored.front().uid, stored.front().name};
  return parts_.jobs.DeleteStoredManifest(owner.first, owner.second, fmt::format("by request of uid {}", caller.uid));
}

std::vector<StoredManifestDescription> StoredControl::For(const Caller& caller, size_t max) {
  if (!JobRegistry::MaySeeOf(caller, caller.uid)) return {};
  const std::string prefix = caller.admin ? std::string() : fmt::format("{}/", caller.uid);
  std::vector<StoredManifestDescription> visible;
  for (const tiering::StoredManifest& stored : parts_.jobs.engine().StoredManifests(prefix, max)) {
    const auto owner = ParseQualifiedName(stored.key);
    if (!owner) continue;
    visible.push_back({.uid = owner->first,
                       .owner = {},
                       .name = owner->second,
                       .ssd_bytes = stored.ssd_bytes,
                       .damage = stored.damage,
                       .lost_devices = stored.lost_devices});
  }
  TIER_CHECK(visible.size() <= max, "{} manifests where {} were asked for", visible.size(), max);
  return visible;
}

// "uid/name" names one, of an administrator none that another user has called so; a name alone may be that of several.
std::vector<StoredManifestDescription> StoredControl::Named(const Caller& caller, const std::string& name) {
  const auto qualified = ParseQualifiedName(name);
  std::vector<StoredManifestDescription> named;
  for (StoredManifestDescription& stored : For(caller, SIZE_MAX)) {
    if (qualified && std::pair(stored.uid, stored.name) == *qualified) return {std::move(stored)};
    if (stored.name == name && !(caller.admin && qualified)) named.push_back(std::move(stored));
  }
  return named;
}

Result<std::vector<StoredManifestDescription>> StoredControl::List(const Caller& caller, const std::string& after,
                                                                   size_t max) {
  using Stored = std::vector<StoredManifestDescription>;
  auto stored = parts_.calls.Ask<Stored>([this, caller]() -> Result<Stored> { return For(caller, SIZE_MAX); });
  if (!stored) return stored;
  std::erase_if(*stored, [&after](const StoredManifestDescription& each) { return each.QualifiedName() <= after; });
  if (stored->size() > max) stored->resize(max);
  for (StoredManifestDescription& each : *stored) each.owner = OwnerOf(each.uid);
  return stored;
}

Result<std::vector<UnopenedReservationDescription>> StoredControl::ListUnopened(const Caller& caller,
                                                                                const std::string& after, size_t max) {
  using Unopened = std::vector<UnopenedReservationDescription>;
  const auto last = ParseQualifiedName(after);
  auto unopened = parts_.calls.Ask<Unopened>([this, caller, last, max]() -> Result<Unopened> {
    Unopened visible;
    parts_.jobs.unopened().ForEach([&](const Reservation& each, const std::string& why) {
      if (visible.size() == max || !JobRegistry::MaySeeOf(caller, each.uid)) return;
      if (last && std::pair(each.uid, each.name) <= *last) return;
      visible.push_back({.uid = each.uid,
                         .owner = {},
                         .name = each.name,
                         .named = each.named,
                         .terms = {.guarantee_bytes = each.terms.guarantee_bytes,
                                   .limit_bytes = each.terms.limit_bytes,
                                   .ssd_guarantee_bytes = each.terms.ssd_guarantee_bytes,
                                   .ssd_limit_bytes = each.terms.ssd_limit_bytes},
                         .why = why});
    });
    return visible;
  });
  if (!unopened) return unopened;
  const auto reader = caller.admin ? std::nullopt : std::optional(caller.uid);
  for (UnopenedReservationDescription& each : *unopened) {
    each.owner = OwnerOf(each.uid);
    each.why = NameOwners(std::move(each.why), parts_.owners, reader);
  }
  return unopened;
}

}  // namespace tier::session

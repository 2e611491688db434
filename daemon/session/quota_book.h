// QuotaBook: which quota holds for which user. The table of the configuration lies below the quotas that were set at
// run time, which stand in a file of the data directory.
//
// Each field is decided by itself: by the user's quota, else by the most generous one of its groups, else by the
// default, else by the options jobs.max_ssd_per_uid and jobs.max_jobs_per_uid. On each level what was set at run time
// comes before the configuration. A user's groups are those of the user database, not those of the process that
// connects: a process that leaves a group must gain nothing by it.
//
// Thread-safe. QuotaOf never waits for the user database or a disk; Learn, Set and Clear do, so they are not for the
// engine thread, nor for one that serves sockets. Where no quota names a group, or a user by name, no user is looked
// up.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/session/quota_table.h"
#include "daemon/session/user_directory.h"
#include "proto/mutex.h"
#include "proto/result.h"

namespace tier::session {

inline constexpr base::Duration kUserEntryLifetime = std::chrono::seconds(60);
inline constexpr base::Duration kUserEntryRetry = std::chrono::seconds(5);  // After a lookup that failed.
inline constexpr size_t kUserEntriesMax = 4096;  // Users that are known; then the one that was looked up first goes.

struct QuotaBookOptions {
  QuotaTable table;
  tiering::QuotaLimit ssd;   // jobs.max_ssd_per_uid
  tiering::QuotaLimit jobs;  // jobs.max_jobs_per_uid
  std::string file;          // Of the quotas set at run time; empty: none can be set.
};

class QuotaBook {
 public:
  // `stored`: what `options.file` has.
  QuotaBook(QuotaBookOptions options, QuotaOverrides stored, UserDirectory& users, const base::Clock& clock)
      : file_(std::move(options.file)),
        users_(users),
        clock_(clock),
        ssd_(options.ssd),
        jobs_(options.jobs),
        table_(std::move(options.table)),
        overrides_(std::move(stored)) {}

  // By what was learnt of the user last. One that was never learnt has no name and no groups.
  ResolvedQuota QuotaOf(uint32_t uid) const TIER_EXCLUDES(mutex_);
  enum class Known : uint8_t { kNow, kStale, kNot };
  Known KnowsUser(uint32_t uid) const TIER_EXCLUDES(mutex_);
  // Looks the user up where what is known is older than kUserEntryLifetime.
  void Learn(uint32_t uid) TIER_EXCLUDES(mutex_);

  // What jobs.max_ssd_per_uid and jobs.max_jobs_per_uid say now. True: it is something else than before.
  bool SetOptions(const tiering::QuotaLimit& ssd, const tiering::QuotaLimit& jobs) TIER_EXCLUDES(mutex_);
  // The configuration was read again. True: it has other quotas than before.
  bool SetTable(QuotaTable table) TIER_EXCLUDES(mutex_);
  // The same user or group by its number, as refusals name it. Errors are those of Set.
  Result<QuotaTarget> Numbered(const QuotaTarget& target);
  // Fields without a value stay as they are. INVALID, NOT_FOUND (no such user, group or owner), TIMEOUT (the user
  // database does not answer), DENIED where the daemon keeps nothing, and SaveQuotas' errors; then nothing has changed.
  Status Set(const QuotaTarget& target, const QuotaFields& fields) TIER_EXCLUDES(mutex_, writing_);
  // What was set at run time is no more, and the configuration decides. NOT_FOUND: nothing was.
  Status Clear(const QuotaTarget& target) TIER_EXCLUDES(mutex_, writing_);
  std::vector<QuotaRow> List() const TIER_EXCLUDES(mutex_);
  // Users and groups of the configuration that the system does not know, as "quota.user.alice". Blocks.
  std::vector<std::string> ListUnknown() TIER_EXCLUDES(mutex_);

 private:
  struct KnownUser {
    UserEntry entry;
    base::TimePoint at;
  };
  using Field = std::optional<uint64_t> QuotaFields::*;

  bool NeedsUsers() const TIER_REQUIRES(mutex_);
  tiering::QuotaLimit Resolve(uint32_t uid, const UserEntry& user, Field field, const tiering::QuotaLimit& option) const
      TIER_REQUIRES(mutex_);
  std::optional<tiering::QuotaLimit> OfUser(uint32_t uid, const UserEntry& user, Field field) const
      TIER_REQUIRES(mutex_);
  std::optional<tiering::QuotaLimit> OfGroup(const UserGroup& group, Field field) const TIER_REQUIRES(mutex_);
  Result<uint32_t> IdOf(const QuotaTarget& target);
  Status CheckOwner(const QuotaTarget& target, uint32_t id);
  Status Replace(const QuotaOverrides& next) TIER_REQUIRES(writing_) TIER_EXCLUDES(mutex_);
  QuotaOverrides Overrides() const TIER_EXCLUDES(mutex_);

  const std::string file_;
  UserDirectory& users_;
  const base::Clock& clock_;
  Mutex writing_;  // One change at a time; taken before mutex_, and held while the file is written.
  mutable Mutex mutex_;
  tiering::QuotaLimit ssd_ TIER_GUARDED_BY(mutex_);
  tiering::QuotaLimit jobs_ TIER_GUARDED_BY(mutex_);
  QuotaTable table_ TIER_GUARDED_BY(mutex_);
  QuotaOverrides overrides_ TIER_GUARDED_BY(mutex_);
  std::map<uint32_t, KnownUser> known_ TIER_GUARDED_BY(mutex_);
};

}  // namespace tier::session

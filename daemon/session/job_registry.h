// JobRegistry: which jobs there are, whose they are, and who may join them. Names, owners, tokens and ranks live here;
// shares and tensors are the engine's.
//
// The idea: opening is two steps. Admit decides and changes nothing; Commit, called once the engine has agreed too,
// makes it so. A job is known by (uid, name); its token speaks for its owner.
//
// Rules: create refuses a live job. Join and a second attach need the token, or the launch that the job was opened by.
// Resume needs a named job without sessions; a further rank may resume a job that a rank with the same token or launch
// has resumed, once. Resume-or-create is a resume, but where nothing is persisted the job is new. A rank is present
// once. Every rank of a world names the same size; when all ranks have left, the next one names a new size. A named job
// without sessions accepts its owner's next run, with that run's token or launch and world. While it waits for the run
// that a launcher opened it for, it accepts only processes with its token, or with neither token nor launch.
// A job that an administrator reserved for a user waits for that user's first run, which the kernel's word for its uid
// admits: in any mode, and with a token or launch of its own or none. From its first process on it is a job like any
// other. One that is not named serves a single run: it cannot be resumed, and who resumes or creates gets a named job
// with its terms in its place. Nothing is reserved over a job that is open. The overflow uid stands for every user whom
// the kernel cannot name here, so it owns nothing without a token.
//
// A launch is what the environment of all ranks of one torchrun or Slurm step has in common. Other users can guess it,
// so it is compared only among processes of one uid, and a token never follows from it: tokens are random.
// Invariants: a uid that has as many jobs as it may opens no other; a session is in exactly one job. Engine thread
// only.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "daemon/base/time.h"
#include "daemon/session/control_api.h"
#include "daemon/session/token_source.h"

namespace tier::session {

inline constexpr uint32_t kOverflowUid = 65534;
inline constexpr uint32_t kUnknownUid = ~0u;
inline constexpr int32_t kWorldSizeMax = 1 << 20;
// A job that was opened without a session waits this long for its first one: an ephemeral job is closed then, a named
// one is open to other runs.
inline constexpr base::Duration kUnattachedJobLifetime = std::chrono::seconds(60);

// "1000/name": the key of a job, and what admins write where several owners use one name.
std::optional<std::pair<uint32_t, std::string>> ParseQualifiedName(const std::string& text);
// Whose job the caller means by such a name: an administrator that of each user, others their own. Empty: it is none of
// these.
std::optional<std::pair<uint32_t, std::string>> QualifiedFor(const Caller& caller, const std::string& name);

struct JobRegistryOptions {
  uint32_t jobs_per_uid_max = 64;
  bool persistent = true;  // False: the daemon keeps nothing; named jobs and resume are DENIED.
  bool has_ssd = true;     // False: a named job opens and cannot persist, and its event says so.
  std::optional<uint32_t>
      only_uid;  // A private daemon's own user: others, root among them, are DENIED, whatever the file modes.
};

struct Member {
  tiering::SessionId session{};
  int32_t rank = -1;
  int32_t client_pid = 0;  // 0: it cannot be seen from here.
};

struct Job {
  tiering::JobId id{};
  uint32_t uid = 0;
  std::string name;
  std::string token;
  std::string launch;  // Of the run that opened it; empty if that run had a token, or no launcher.
  bool named = false;
  bool reserved = false;  // An administrator opened it for its owner, whose first run has not come yet.
  int32_t world_size = 0;
  std::vector<Member> members;
  bool from_manifest = false;                    // It was opened with what it had persisted.
  bool resumed = false;                          // Its run asked for what was persisted …
  std::vector<int32_t> resumed_ranks;            // … and these ranks of it have come since.
  std::optional<base::TimePoint> expires;        // Ephemeral and never attached.
  std::optional<base::TimePoint> awaited_until;  // Named, opened without a session, and not attached since.
  std::string EngineKey() const;                 // "uid/name".
};

// What Admit decided.
struct Admission {
  Job job;               // As it will be: new, or what is there, with the token and the world of its next run.
  bool created = false;  // The engine must open it before Commit.
  bool resume = false;   // … with its manifest. Of a resume-or-create the caller finds out whether there is one.
};

class JobRegistry {
 public:
  JobRegistry(const JobRegistryOptions& options, TokenSource& tokens) : options_(options), tokens_(tokens) {}

  // May this uid open this job now? REQUIRES: ValidateOpenJob(request). Changes nothing but the count of ids.
  // `jobs_max`: of the uid; none: jobs_per_uid_max.
  Result<Admission> Admit(uint32_t uid, const OpenJobRequest& request, base::TimePoint now,
                          std::optional<tiering::QuotaLimit> jobs_max = std::nullopt);
  // Makes an admission true. With a session: it is a member from now on. Without: a new ephemeral job expires, a named
  // one without members awaits its run.
  // REQUIRES: nothing was committed or removed since Admit.
  const Job& Commit(const Admission& admission, const OpenJobRequest& request,
                    std::optional<tiering::SessionId> session, base::TimePoint now);

  // Takes a session out of its job. Returns the job if it must be closed now (ephemeral, its last session).
  std::optional<tiering::JobId> Leave(tiering::JobId job, tiering::SessionId session);
  void Remove(tiering::JobId job);
  // Jobs whose time without a session is over.
  std::vector<tiering::JobId> Expired(base::TimePoint now) const;
  std::optional<base::TimePoint> NextExpiry() const;

  const Job* Find(tiering::JobId job) const;
  const Job* FindOwned(uint32_t uid, const std::string& name) const;  // Null, as above: there is none.
  size_t CountOf(uint32_t uid) const;                                 // Jobs that the uid owns.
  uint64_t reserved_version() const { return reserved_version_; }     // Rises with each change of which are reserved.
  // The job that `caller` means by `name` and may control: its owner, a holder of its token, an admin. What an admin
  // writes as "uid/name" is that uid's job, and never one that another user has called so. NOT_FOUND also for another
  // user's job: its name is private.
  Result<const Job*> FindFor(const Caller& caller, const std::string& name) const;
  static bool MaySee(const Caller& caller, const Job& job) { return MaySee(caller, job.uid, job.token); }
  static bool MaySee(const Caller& caller, uint32_t uid, const std::string& token);
  // What has no token: an admin and its owner may.
  static bool MaySeeOf(const Caller& caller, uint32_t uid);
  const std::map<tiering::JobId, Job>& jobs() const { return jobs_; }
  bool has_ssd() const { return options_.has_ssd; }

 private:
  static bool IsOfSameRun(const Job& job, const OpenJobRequest& request);
  static bool StartedByAttach(const Job& job, const OpenJobRequest& request);
  static bool MayResume(const Job& job, const OpenJobRequest& request);
  Result<Admission> AdmitNew(uint32_t uid, const OpenJobRequest& request, bool resume,
                             const tiering::QuotaLimit& jobs_max);
  static Status CheckMode(const Job& job, const OpenJobRequest& request);
  static bool AdmitsFirstRun(const Job& job, const OpenJobRequest& request);
  static bool IsOpenToOwner(const Job& job, const OpenJobRequest& request);
  static bool BeginsNewRun(const Job& job, const OpenJobRequest& request, base::TimePoint now);
  Status CheckToken(const Job& job, const OpenJobRequest& request) const;
  Status CheckWorld(const Job& job, const OpenJobRequest& request) const;
  void SetExpiry(Job* job, std::optional<base::TimePoint> expires);
  Result<const Job*> NoJobOf(uint32_t uid, const std::string& name) const;

  const JobRegistryOptions options_;
  TokenSource& tokens_;
  uint64_t last_id_ = 0;
  uint64_t reserved_version_ = 0;
  std::map<tiering::JobId, Job> jobs_;
  std::map<std::pair<uint32_t, std::string>, tiering::JobId> by_name_;
  std::set<std::pair<base::TimePoint, tiering::JobId>> expiries_;  // Of the jobs that expire.
};

}  // namespace tier::session

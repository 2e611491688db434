// UserQuotas: keeps the quotas of the running daemon up to date: asks the user database on a thread of its own, takes
// over what the configuration says, and tells the engine. Main thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>

#include <boost/asio/io_context.hpp>

#include "daemon/base/workers.h"
#include "daemon/engine_side.h"
#include "daemon/session/engine_posts.h"

namespace tier {

// Of "quota.user.alice", as QuotaBook::ListUnknown names it.
std::string UnknownQuotaText(const std::string& name);

class UserQuotas {
 public:
  UserQuotas(boost::asio::io_context& io, EngineSide& engine)
      : io_(io), engine_(engine), posts_(io, engine.mailbox()) {}

  // True: what quotas need of this user is known. Else `then` is called once it is, on the main thread.
  bool LearnUser(uint32_t uid, std::function<void()> then);
  // The configuration says so now: quotas, jobs.max_ssd_per_uid and jobs.max_jobs_per_uid. `done`: they hold, for jobs
  // that are open too; called at once where they are as before, else on the engine's thread.
  void TakeOver(const config::Config& config, std::function<void()> done);
  // The engine has what an administrator changed once it takes calls again; administrators who watch are told `what`.
  void ApplyChange(const std::string& what);
  // Logs which users and groups of the configuration the system does not know.
  void WarnOfUnknown();

 private:
  bool PostToNames(base::Workers::Task task);
  void Apply(std::function<void()> done);
  void LearnAndApply(const std::set<uint32_t>& owners, std::function<void()> done);

  boost::asio::io_context& io_;
  EngineSide& engine_;
  session::EnginePosts posts_;
  std::unique_ptr<base::Workers> names_;  // One thread, which asks the user database. Null: none was needed yet.
};

}  // namespace tier

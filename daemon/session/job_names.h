// JobNames: "pod-a/train" of an owner, and "alice/train" of a user of the system, as administrators write them beside
// "uid/train".
//
// The idea: names of jobs may contain '/', and any user may call a job "alice/train". So the job of the owner or user
// goes before one that is called so, as that of "uid/train" does: else another user's job would get what an
// administrator meant for alice's.
//
// Any thread but the engine's: it may wait for the user database, and does so only for a name with a '/' whose first
// part is neither a number nor an owner.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "daemon/session/job_registry.h"
#include "daemon/session/owner_table.h"
#include "daemon/session/user_directory.h"

namespace tier::session {

class JobNames {
 public:
  // Whether this user has a job of this name that is not open: persisted, or reserved.
  using Keeps = std::function<Result<bool>(uint32_t uid, const std::string& name)>;

  // Null: there are no owners; the system's users are not known.
  JobNames(const OwnerTable* owners, UserDirectory* users, Keeps keeps)
      : owners_(owners), users_(users), keeps_(std::move(keeps)) {}

  // What `ask(name)` answers for the name with the number of its owner. Where that is NOT_FOUND, and the owner keeps no
  // such job: what it answers for the name as it is. TIMEOUT: the user database does not say whose job is meant.
  template <typename Ask>
  auto Find(const Caller& caller, const std::string& name, Ask&& ask) const -> decltype(ask(name)) {
    if (!caller.admin) return ask(name);
    const auto numbered = WithNumber(name);
    if (!numbered) return std::unexpected(numbered.error());
    if (!*numbered) return ask(name);
    auto of_owner = ask(**numbered);
    if (of_owner || of_owner.error().code != Code::kNotFound) return of_owner;
    const auto kept = IsKept(**numbered);
    if (!kept) return std::unexpected(kept.error());
    return *kept ? std::move(of_owner) : ask(name);  // That error has the name as it was written.
  }
  // "1001/train" for "alice/train". None: it begins with no name of an owner or user. TIMEOUT: the user database does
  // not answer.
  Result<std::optional<std::string>> WithNumber(const std::string& name) const;

 private:
  Result<bool> IsKept(const std::string& numbered) const;
  Result<std::optional<uint32_t>> UidOf(const std::string& owner) const;

  const OwnerTable* const owners_;
  UserDirectory* const users_;
  const Keeps keeps_;
};

}  // namespace tier::session

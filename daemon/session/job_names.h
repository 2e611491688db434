// JobNames: "pod-a/train" of an owner, and "alice/train" of a user of the system, as administrators write them beside
// "uid/train".
//
// The idea: names of jobs may contain '/', and any user may call a job "alice/train". So of an administrator such a
// name means the job of the owner or user alone, as "uid/train" does: else another user's job would get what was meant
// for alice's. "1001/alice/train" is the one that uid 1001 has called so.
//
// Any thread but the engine's: it may wait for the user database, and does so only for a name with a '/' whose first
// part is neither a number nor an owner.
#pragma once

#include <optional>
#include <string>

#include "daemon/session/job_registry.h"
#include "daemon/session/owner_table.h"
#include "daemon/session/user_directory.h"

namespace tier::session {

class JobNames {
 public:
  // Null: there are no owners; the system's users are not known.
  JobNames(const OwnerTable* owners, UserDirectory* users) : owners_(owners), users_(users) {}

  // What `ask(name)` answers for the name with the number of its owner, where it begins with one; an error has the name
  // as it was written. TIMEOUT: the user database does not say whose job is meant.
  template <typename Ask>
  auto Find(const Caller& caller, const std::string& name, Ask&& ask) const -> decltype(ask(name)) {
    if (!caller.admin) return ask(name);
    const auto numbered = WithNumber(name);
    if (!numbered) return std::unexpected(numbered.error());
    if (!*numbered) return ask(name);
    auto of_owner = ask(**numbered);
    if (of_owner) return of_owner;
    return Fail(of_owner.error().code, AsWritten(of_owner.error().message, **numbered, name));
  }
  // "1001/train" for "alice/train". None: it begins with no name of an owner or user. TIMEOUT: the user database does
  // not answer.
  Result<std::optional<std::string>> WithNumber(const std::string& name) const;

 private:
  static std::string AsWritten(std::string message, const std::string& numbered, const std::string& name);
  Result<std::optional<uint32_t>> UidOf(const std::string& owner) const;

  const OwnerTable* const owners_;
  UserDirectory* const users_;
};

}  // namespace tier::session

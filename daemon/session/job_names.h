// JobNames: "pod-a/train" of an owner, and "alice/train" of a user of the system, as administrators write them beside
// "uid/train".
//
// Any thread but the engine's: it may wait for the user database, and does so only where no job has the name as it is
// and no owner its first part.
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

  // What `ask(name)` answers. Where that is NOT_FOUND: what it answers for the name with the number of its owner.
  template <typename Ask>
  auto Find(const Caller& caller, const std::string& name, Ask&& ask) const {
    auto answer = ask(name);
    if (!IsAbsent(answer) || !caller.admin) return answer;
    const auto numbered = WithNumber(name);
    if (!numbered) return answer;
    auto of_owner = ask(*numbered);
    return IsAbsent(of_owner) ? answer : of_owner;  // The error has the name as it was written.
  }
  // "1001/train" for "alice/train". None: it begins with no name of an owner or user, or the database does not answer.
  std::optional<std::string> WithNumber(const std::string& name) const;

 private:
  template <typename Answer>
  static bool IsAbsent(const Answer& answer) {
    return !answer && answer.error().code == Code::kNotFound;
  }

  std::optional<uint32_t> UidOf(const std::string& owner) const;

  const OwnerTable* const owners_;
  UserDirectory* const users_;
};

}  // namespace tier::session

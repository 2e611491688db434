// UserDirectory: who the system says that users and groups are (getpwuid_r and the like). These calls may ask a server
// of the network and take seconds, so no thread that others wait for makes them. Thread-safe.
#pragma once

#include <grp.h>
#include <pwd.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "proto/result.h"

namespace tier::session {

struct UserGroup {
  uint32_t id = 0;
  std::string name;  // Empty: the system knows none.
};

struct UserEntry {
  std::string name;  // Empty: the system knows no such user, and no groups of it.
  std::vector<UserGroup> groups;
  bool failed = false;  // The system could not answer: this says nothing of the user.
};

// NOT_FOUND.
std::unexpected<Error> NoUser(const std::string& name);
std::unexpected<Error> NoGroup(const std::string& name);

class UserDirectory {
 public:
  virtual ~UserDirectory() = default;
  virtual UserEntry FindUser(uint32_t uid) = 0;
  // NOT_FOUND: the system says that there is none. TIMEOUT: it does not say, as a server does not answer.
  virtual Result<uint32_t> FindUserId(const std::string& name) = 0;
  virtual Result<uint32_t> FindGroupId(const std::string& name) = 0;
};

// The C library's; tests have others.
struct UserDatabaseCalls {
  int (*find_user)(const char* name, passwd* entry, char* buffer, size_t size, passwd** found) = ::getpwnam_r;
  int (*find_group)(const char* name, group* entry, char* buffer, size_t size, group** found) = ::getgrnam_r;
};

class SystemUserDirectory final : public UserDirectory {
 public:
  explicit SystemUserDirectory(const UserDatabaseCalls& calls = {}) : calls_(calls) {}
  UserEntry FindUser(uint32_t uid) override;
  Result<uint32_t> FindUserId(const std::string& name) override;
  Result<uint32_t> FindGroupId(const std::string& name) override;

 private:
  const UserDatabaseCalls calls_;
};

}  // namespace tier::session

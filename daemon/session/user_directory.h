// UserDirectory: who the system says that users and groups are (getpwuid_r and the like). These calls may ask a server
// of the network and take seconds, so no thread that others wait for makes them. Thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

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

class UserDirectory {
 public:
  virtual ~UserDirectory() = default;
  virtual UserEntry FindUser(uint32_t uid) = 0;
  virtual std::optional<uint32_t> FindUserId(const std::string& name) = 0;
  virtual std::optional<uint32_t> FindGroupId(const std::string& name) = 0;
};

class SystemUserDirectory final : public UserDirectory {
 public:
  UserEntry FindUser(uint32_t uid) override;
  std::optional<uint32_t> FindUserId(const std::string& name) override;
  std::optional<uint32_t> FindGroupId(const std::string& name) override;
};

}  // namespace tier::session

// Names of users and groups, as this system has them. They may wait for a server of the network.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace tier::tierctl {

// Empty: the system has none.
std::string NameOfUser(uint32_t uid);
std::string NameOfGroup(uint32_t gid);
std::optional<uint32_t> UidOf(const std::string& name);

// What is asked for names; tests have others.
struct UserNames {
  std::function<std::string(uint32_t)> of_user = NameOfUser;
  std::function<std::string(uint32_t)> of_group = NameOfGroup;
  std::function<std::optional<uint32_t>(const std::string&)> uid_of = UidOf;
};

// The number that `text` is, in digits alone.
std::optional<uint32_t> NumberIn(const std::string& text);

// For a job that was not found: that the user of "alice/train" stands as a number. Empty: it does, or there is none.
std::string HintOnUid(const std::string& job, const UserNames& names = {});

}  // namespace tier::tierctl

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

// What is asked for names; tests have others.
struct UserNames {
  std::function<std::string(uint32_t)> of_user = NameOfUser;
  std::function<std::string(uint32_t)> of_group = NameOfGroup;
};

// The number that `text` is, in digits alone.
std::optional<uint32_t> NumberIn(const std::string& text);

}  // namespace tier::tierctl

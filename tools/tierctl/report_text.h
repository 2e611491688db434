// What stands in a support bundle: files of text without secrets, and a list of what is not there. Pure functions, and
// readings of the kernel's files under a root that tests replace.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "libclient/control/channel.h"

namespace tier::tierctl {

struct Bundle {
  std::vector<std::pair<std::string, std::string>> files;    // Name and text.
  std::vector<std::pair<std::string, std::string>> missing;  // Name, and why it is not there.

  // Without secrets: Masked, or of a document of JSON, which stays one, WithoutTokens.
  void Add(const std::string& name, std::string_view text);
  void Miss(const std::string& name, std::string_view why);
};

// What the kernel says of memory, limits and mounts. `pid`: the daemon's, or why its limits are left out. `paths`: of
// its devices and data.
void AddKernelFacts(const std::string& root, const Result<int64_t>& pid, const std::vector<std::string>& paths,
                    Bundle* bundle);
// What is missing, with the reason: files with one reason are in one line.
std::vector<std::string> MissingLines(const Bundle& bundle);
// The first words of who opens the bundle: what is there, and what is not, with the reasons.
std::string ReadmeOf(const Bundle& bundle, std::string_view made_at);

}  // namespace tier::tierctl

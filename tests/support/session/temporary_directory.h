// A directory of this test, which goes with it.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

#include "daemon/base/check.h"

namespace tier::session::testing {

class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string pattern = (std::filesystem::temp_directory_path() / "tierd-test-XXXXXX").string();
    TIER_CHECK(::mkdtemp(pattern.data()) != nullptr, "no directory {}", pattern);
    path_ = pattern;
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace tier::session::testing

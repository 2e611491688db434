// Which refused starts systemd tries again.
#include "daemon/exit_status.h"

#include <gtest/gtest.h>

namespace tier {
namespace {

TEST(ExitStatus, WhatOnlyAPersonCanChangeIsNotTriedAgain) {
  static_assert(kExitConfig == 78, "RestartPreventExitStatus= of tierd.service");
  for (const Code code :
       {Code::kInvalid, Code::kNotFound, Code::kDenied, Code::kNoSpace, Code::kCorrupt, Code::kVersion})
    EXPECT_EQ(ExitStatusOfRefusal(code), kExitConfig) << CodeName(code);
}

TEST(ExitStatus, WhatMayPassIsTriedAgain) {
  for (const Code code : {Code::kAlreadyExists, Code::kNoMemory, Code::kIoError, Code::kTimeout})
    EXPECT_EQ(ExitStatusOfRefusal(code), kExitFailure) << CodeName(code);
}

}  // namespace
}  // namespace tier

// Runs another program and waits for it, not longer than it may take.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include "proto/result.h"

namespace tier::tierctl {

inline constexpr size_t kProgramOutputMax = size_t{16} << 20;  // Bytes; what comes behind them is read and dropped.

struct ProgramOptions {
  std::chrono::milliseconds timeout{30'000};
  int output = -1;  // Where its standard output goes; -1: into the result.
};

// What it printed. The program is found in PATH, its standard input is empty, and no shell reads its arguments.
// NOT_FOUND: there is no such program. IO_ERROR: it failed, with what it said on standard error. TIMEOUT: it was
// killed.
Result<std::string> RunProgram(const std::vector<std::string>& arguments, const ProgramOptions& options = {});

}  // namespace tier::tierctl

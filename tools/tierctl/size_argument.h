// Sizes on the command line: "64GiB" and the like.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "proto/result.h"

namespace tier::tierctl {

// "64GiB", "1.5 TB", "4096": bytes, as in the configuration. Nothing if it is no size.
std::optional<uint64_t> ParseBytes(const std::string& text);

// Where `text` is a number without a unit that is less than a block, and not 0: a sentence that says what it was taken
// for and how to write it. A cap of 64 bytes would end what runs, and is never meant.
std::optional<std::string> MissingUnit(const std::string& option, const std::string& text);

// The size that stands behind `option`. INVALID, with a sentence that says how to write it: it is no size, its unit is
// unknown or missing. `or_else` says what may be written besides.
Result<uint64_t> SizeArgument(const std::string& option, const std::string& text, const std::string& or_else);

}  // namespace tier::tierctl

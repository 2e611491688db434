// What a TOML parser cannot say of "file_size = 1GiB": that the value is right, and its quotes are missing. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tier::config {

// "; write sizes in quotes: file_size = \"1GiB\"", to end the parser's sentence, where that line of `text` gives a
// size, time, share or word without quotes; the first line is 1. Empty: it does not.
std::string QuotesHint(std::string_view text, size_t line);

}  // namespace tier::config

// What a TOML parser cannot say of "file_size = 1GiB": that the value is right, and its quotes are missing. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tier::config {

// "; write sizes in quotes: file_size = \"1GiB\"", for the end of the parser's sentence, where that line of `text` (from
// 1) gives a size, time, share or word without quotes. Empty: it does not.
std::string QuotesHint(std::string_view text, size_t line);

}  // namespace tier::config

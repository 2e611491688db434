// The table of options: each one declared once. Parsing, unknown-option errors, range checks, defaults, what a reload
// takes over and --print-default-config all come from it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "daemon/config/config_values.h"

namespace tier::config {

// Where an option's value lives in a Config.
using Field = std::variant<bool*, uint64_t*, int64_t*, double*, base::Duration*, std::string*,
                           std::vector<std::string>*, SizeOrShare*>;

enum class Kind : uint8_t {
  kBool,
  kCount,        // Integer without unit.
  kInteger,      // Integer without unit, may be negative.
  kSize,         // "64GiB", or a number of bytes.
  kSizeOrShare,  // As kSize, or "25%".
  kShare,        // "50%".
  kNumber,       // 0.3; min and max are whole numbers.
  kDuration,     // "250ms", "60s", "2min".
  kText,
  kAddress,  // "127.0.0.1:9464", "auto"; "": none.
  kChoice,
  kPaths,
};

// When a change takes effect.
enum class Change : uint8_t {
  kAtRunTime,  // At a reload (SIGHUP), or when `tierctl config set` says so.
  kAtRestart,
};

struct Option {
  std::string_view key;  // "arena.maximum"; without a dot: at the top.
  Kind kind;
  Change change;
  Field (*field)(Config&);
  std::string_view default_toml;  // As it would stand in the file.
  std::string_view help;          // One or two sentences; '\n' between lines.
  uint64_t min = 0;               // Of counts (and integers, taken as signed), bytes, nanoseconds.
  uint64_t max = UINT64_MAX;
  std::string_view choices = {};  // "auto|always|never".
  double least = 0;               // Of a number that is not 0.
};

std::span<const Option> Options();
const Option* FindOption(std::string_view key);
// The option that was probably meant by `key`: the most like one, whose name or its last part has a letter in three
// wrong at the most, or which begins so. Null: none is that near.
const Option* NearestOption(std::string_view key);
// That there is no such option, and the nearest; where none is near, what `lists_all` them.
std::string UnknownOptionText(std::string_view key, std::string_view lists_all);
// Whether a sentence names any option.
bool NamesAnOption(std::string_view sentence);
// The section, "arena", whose name is most like `name`.
std::string_view NearestSection(std::string_view name);

}  // namespace tier::config

// What a verb has to say, shown either as tables for people or as one JSON document for programs.
//
// The JSON is the truth: each verb builds it, and the table is a view of chosen fields of it. Colour only on a terminal
// and without NO_COLOR.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace tier::tierctl {

inline constexpr int kExitOk = 0;
inline constexpr int kExitFailure = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitNotFound = 3;
inline constexpr int kExitUnreachable = 4;
inline constexpr int kExitRefused = 5;
inline constexpr int kExitDegraded = 6;

struct OutputOptions {
  bool json = false;
  bool colour = false;
};

struct Column {
  std::string title;
  std::vector<std::string> cells;
  bool right = false;  // Figures.
};

// "1.5 GiB", "512 B": binary units, three significant digits.
std::string HumanBytes(uint64_t bytes);
// Columns side by side, two spaces apart; the last is not padded.
std::string RenderTable(const std::vector<Column>& columns);
// Marks a word green, yellow or red where colour is on.
enum class Mood { kGood, kWarning, kBad };
std::string Paint(const std::string& text, Mood mood, const OutputOptions& options);
// Whether standard output is a terminal that may be coloured (NO_COLOR unset, TERM not "dumb").
bool ColourWanted();

}  // namespace tier::tierctl

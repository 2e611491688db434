#include "tools/tierctl/output.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include <fmt/format.h>

namespace tier::tierctl {

std::string HumanBytes(uint64_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  size_t unit = 0;
  double value = static_cast<double>(bytes);
  while (value >= 1024 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  if (unit == 0) return fmt::format("{} B", bytes);
  const int digits = value < 10 ? 2 : value < 100 ? 1 : 0;
  return fmt::format("{:.{}f} {}", value, digits, kUnits[unit]);
}

std::string RenderTable(const std::vector<Column>& columns) {
  if (columns.empty()) return {};
  std::string text;
  const size_t rows = columns.front().cells.size();
  std::vector<size_t> widths;
  for (const Column& column : columns) {
    size_t width = column.title.size();
    for (const std::string& cell : column.cells) width = std::max(width, cell.size());
    widths.push_back(width);
  }
  for (size_t row = 0; row <= rows; ++row) {
    std::string line;
    for (size_t i = 0; i < columns.size(); ++i) {
      const std::string& cell = row == 0 ? columns[i].title : columns[i].cells[row - 1];
      line += columns[i].right ? fmt::format("{:>{}}", cell, widths[i]) : fmt::format("{:<{}}", cell, widths[i]);
      if (i + 1 < columns.size()) line += "  ";
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::string Paint(const std::string& text, Mood mood, const OutputOptions& options) {
  if (!options.colour) return text;
  const char* code = mood == Mood::kGood ? "32" : mood == Mood::kWarning ? "33" : "31";
  return fmt::format("\033[{}m{}\033[0m", code, text);
}

bool ColourWanted() {
  const char* no_color = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  if (no_color != nullptr && *no_color != '\0') return false;
  if (term == nullptr || std::strcmp(term, "dumb") == 0) return false;
  return ::isatty(STDOUT_FILENO) != 0;
}

}  // namespace tier::tierctl

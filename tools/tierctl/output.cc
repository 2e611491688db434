#include "tools/tierctl/output.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <initializer_list>
#include <numeric>
#include <optional>

#include <fmt/format.h>

#include "daemon/base/counted.h"
#include "tools/tierctl/printable.h"

namespace tier::tierctl {
namespace {

constexpr size_t kWidthDefault = 80;
constexpr size_t kWidthMax = 1000;
// Names are cut to the first of these before columns move closer, to the second before columns are left out, and to the
// third where no more of them may be.
constexpr size_t kNameWidth = 16;
constexpr size_t kNameWidthKept = 12;
constexpr size_t kNameWidthMin = 8;
constexpr size_t kRecordIndent = 2;
constexpr size_t kRecordWidthMin = 20;
constexpr size_t kValueWidthMin = 28;  // Of what stands beside a name.

// Of the first write of standard output that failed: the C library drops with it what it had, and knows no cause later.
int output_error = 0;

// A terminal that takes bytes for characters of another set may take the middle of one for a command.
Characters CharactersOf(const OutputOptions& options) {
  return options.width != 0 && !options.unicode ? Characters::kAscii : Characters::kUnicode;
}
std::string_view MarkOfCut(const OutputOptions& options) { return options.unicode ? "…" : "~"; }

// Takes from the widest column of names, one by one. False: they are as narrow as may be, and it does not fit.
bool Narrow(const std::vector<Column>& columns, size_t name_width, size_t room, std::vector<size_t>* widths) {
  size_t sum = std::accumulate(widths->begin(), widths->end(), size_t{0});
  while (sum > room) {
    size_t widest = columns.size();
    for (size_t i = 0; i < columns.size(); ++i) {
      const bool may = !columns[i].right && (*widths)[i] > std::max(name_width, columns[i].title.size());
      if (may && (widest == columns.size() || (*widths)[i] > (*widths)[widest])) widest = i;
    }
    if (widest == columns.size()) return false;
    --(*widths)[widest];
    --sum;
  }
  return true;
}

std::string Padded(const std::string& cell, size_t width, bool right) {
  const std::string pad(width - std::min(width, DisplayWidth(cell)), ' ');
  return right ? pad + cell : cell + pad;
}

// "device 0", and below it what the other columns have.
std::string Records(const std::vector<Column>& columns, const OutputOptions& options) {
  const std::string indent(kRecordIndent, ' ');
  const size_t room = std::max(options.width, kRecordWidthMin) - kRecordIndent;
  std::string text;
  for (size_t row = 0; row < columns.front().cells.size(); ++row) {
    std::string line;
    for (const Column& column : columns) {
      if (column.cells[row].empty()) continue;
      const std::string word = CutToWidth(Lower(column.title) + " " + column.cells[row], room - 1, MarkOfCut(options));
      if (&column == &columns.front()) {
        text += word + "\n";
        continue;
      }
      if (!line.empty() && DisplayWidth(line) + 2 + DisplayWidth(word) + 1 > room) {
        text += indent + std::exchange(line, {}) + ",\n";
      }
      line += (line.empty() ? "" : ", ") + word;
    }
    if (!line.empty()) text += indent + line + "\n";
  }
  return text;
}

std::string Grid(const std::vector<Column>& columns, const std::vector<size_t>& widths, size_t gap,
                 std::string_view mark) {
  std::string text;
  for (size_t row = 0; row <= columns.front().cells.size(); ++row) {
    std::string line;
    for (size_t i = 0; i < columns.size(); ++i) {
      const std::string& cell = row == 0 ? columns[i].title : columns[i].cells[row - 1];
      const CutAt at = i + 1 == columns.size() ? CutAt::kEnd : CutAt::kMiddle;
      line += Padded(CutToWidth(cell, widths[i], mark, at), widths[i], columns[i].right);
      if (i + 1 < columns.size()) line += std::string(gap, ' ');
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

struct Fit {
  size_t gap = 0;
  size_t name_width = 0;  // No name is cut to less.
};

// By the first that fits. Nothing: none does.
std::optional<std::string> GridWithin(const std::vector<Column>& columns, std::initializer_list<Fit> fits,
                                      const OutputOptions& options) {
  std::vector<size_t> natural;
  for (const Column& column : columns) {
    size_t width = column.title.size();
    for (const std::string& cell : column.cells) width = std::max(width, DisplayWidth(cell));
    natural.push_back(width);
  }
  for (const Fit& fit : fits) {
    std::vector<size_t> widths = natural;
    const size_t gaps = fit.gap * (columns.size() - 1);
    const bool does =
        options.width == 0 || (options.width > gaps && Narrow(columns, fit.name_width, options.width - gaps, &widths));
    if (does) return Grid(columns, widths, fit.gap, MarkOfCut(options));
  }
  return std::nullopt;
}

// False: none may be left out any more.
bool DropNext(std::vector<Column>* columns) {
  const auto rank = [](const Column& column) { return column.dropped_as == 0 ? SIZE_MAX : column.dropped_as; };
  const auto next = std::ranges::min_element(*columns, {}, rank);
  if (next->dropped_as == 0) return false;
  columns->erase(next);
  return true;
}

std::string DroppedText(size_t count) {
  return fmt::format("+{}: wider terminal or --json\n", base::Counted(count, "column"));
}

}  // namespace

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

std::string RenderTable(const std::vector<Column>& given, const OutputOptions& options) {
  if (given.empty()) return {};
  std::vector<Column> columns = given;
  for (Column& column : columns) {
    for (std::string& cell : column.cells) cell = Printable(cell, CharactersOf(options));
  }
  std::vector<Column> shown = columns;
  const auto readable = {Fit{2, kNameWidth}, Fit{1, kNameWidth}, Fit{1, kNameWidthKept}};
  std::optional<std::string> grid = GridWithin(shown, readable, options);
  while (!grid && DropNext(&shown)) grid = GridWithin(shown, readable, options);
  if (!grid) grid = GridWithin(shown, {Fit{1, kNameWidthMin}}, options);
  if (!grid) return Records(columns, options);
  const size_t dropped = columns.size() - shown.size();
  return dropped == 0 ? *grid : *grid + DroppedText(dropped);
}

std::string RenderFields(const std::vector<std::pair<std::string, std::string>>& fields, const OutputOptions& options) {
  size_t width = 0;
  for (const auto& [name, value] : fields) width = std::max(width, name.size());
  std::string text;
  const bool below = options.width != 0 && options.width < width + 2 + kValueWidthMin;
  for (const auto& [name, value] : fields) {
    const std::string shown = Printable(value, CharactersOf(options));
    text += below ? fmt::format("{}\n  {}\n", name, Wrapped(shown, options.width, 2))
                  : fmt::format("{:<{}}  {}\n", name, width, Wrapped(shown, options.width, width + 2));
  }
  return text;
}

std::string Wrapped(std::string_view text, size_t width, size_t indent) {
  if (width == 0) return std::string(text);
  std::string wrapped;
  size_t column = indent;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(' ', at), text.size());
    const std::string_view word = text.substr(at, end - at);
    const size_t needs = DisplayWidth(word);
    if (column > indent && column + 1 + needs > width) {
      wrapped += "\n" + std::string(indent, ' ');
      column = indent;
    } else if (at != 0) {
      wrapped += ' ';
      ++column;
    }
    wrapped += word;
    column += needs;
    at = end + 1;
  }
  return wrapped;
}

std::string LocalTimeText(int64_t unix_seconds) {
  const auto seconds = static_cast<std::time_t>(unix_seconds);
  std::tm local{};
  char text[32] = "";
  if (::localtime_r(&seconds, &local) != nullptr) (void)std::strftime(text, sizeof text, "%F %T", &local);
  return text;
}

std::string Paint(const std::string& text, Mood mood, const OutputOptions& options) {
  if (!options.colour) return text;
  const char* code = mood == Mood::kGood ? "32" : mood == Mood::kWarning ? "33" : "31";
  return fmt::format("\033[{}m{}\033[0m", code, text);
}

OutputOptions ThisOutput() {
  const bool terminal = ::isatty(STDOUT_FILENO) != 0;
  return {.colour = ColourWanted(), .unicode = UnicodeWanted(), .width = terminal ? OutputWidth() : 0};
}

bool ColourWanted() {
  const char* no_color = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  if (no_color != nullptr && *no_color != '\0') return false;
  if (term == nullptr || std::strcmp(term, "dumb") == 0) return false;
  return ::isatty(STDOUT_FILENO) != 0;
}

bool UnicodeWanted() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* const value = std::getenv(name);
    if (value == nullptr || *value == '\0') continue;
    const std::string_view locale(value);
    for (const char* word : {"UTF-8", "utf-8", "UTF8", "utf8"}) {
      if (locale.find(word) != std::string_view::npos) return true;
    }
    return false;
  }
  return false;
}

size_t OutputWidth() {
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col != 0) return size.ws_col;
  const char* const columns = std::getenv("COLUMNS");
  if (columns == nullptr) return kWidthDefault;
  size_t width = 0;
  const char* const end = columns + std::strlen(columns);
  const auto [rest, error] = std::from_chars(columns, end, width);
  return error == std::errc() && rest == end && width != 0 ? std::min(width, kWidthMax) : kWidthDefault;
}

std::string LatencyText(double p50, double p99) {
  if (p99 == 0) return "-";
  const auto text = [](double seconds) {
    return seconds < 1e-3 ? fmt::format("{:.0f} us", seconds * 1e6)
           : seconds < 1  ? fmt::format("{:.1f} ms", seconds * 1e3)
                          : fmt::format("{:.1f} s", seconds);
  };
  return fmt::format("{} / {}", text(p50), text(p99));
}

bool FlushOutput() {
  errno = 0;
  const bool taken = std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
  if (!taken && output_error == 0) output_error = errno != 0 ? errno : EIO;
  return taken;
}

int EndOutput(int status, int error) {
  if (output_error == 0) output_error = error;
  if (FlushOutput() && output_error == 0) return status;
  if (output_error != EPIPE) fmt::print(stderr, "tierctl: cannot write the output: {}\n", std::strerror(output_error));
  return status != kExitOk ? status : kExitFailure;
}

}  // namespace tier::tierctl

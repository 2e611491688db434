// What a verb has to say, shown either as tables for people or as one JSON document for programs.
//
// The JSON is the truth: each verb builds it, and the table is a view of chosen fields of it. On a terminal a table
// fits its width: names are cut, numbers never. Elsewhere it is as wide as it is. What comes from tenants is made
// printable here, in one place. Colour only on a terminal and without NO_COLOR.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

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
  bool unicode = false;  // The terminal shows UTF-8.
  size_t width = 0;      // Columns of the terminal; 0: standard output is none.
};

struct Column {
  std::string title;
  std::vector<std::string> cells;
  bool right = false;     // Figures: never cut.
  size_t dropped_as = 0;  // Where the table is too wide: 1 is left out first, 2 then, and so on; 0 never.
};

template <typename Rows, typename Cell>
Column MakeColumn(const char* title, const Rows& rows, bool right, Cell&& cell) {
  Column column{title, {}, right};
  for (const auto& row : rows) column.cells.push_back(cell(row));
  return column;
}

// The same, left out where the table is too wide.
inline Column DroppedAs(size_t order, Column column) {
  column.dropped_as = order;
  return column;
}

// "1.50 GiB", "64.0 MiB", "512 B": binary units, three significant digits, so that the figures of a column, and those
// of a screen that is drawn again, stay as wide. base::FormatBytes writes "1.5 GiB", "64 MiB" and "512 bytes" for
// sentences.
std::string HumanBytes(uint64_t bytes);
// "120 us / 3.4 ms": half of the requests, and 99 % of them, took no longer, in seconds. "-": there was none.
std::string LatencyText(double p50, double p99);
// Columns side by side, two spaces apart; the last is not padded. Where that is too wide, cells that are no figures are
// cut and the columns stand closer; then columns are left out, in their order, and a last line says how many. Where it
// is still too wide, each row becomes some lines, with all that there is.
std::string RenderTable(const std::vector<Column>& columns, const OutputOptions& options = {});
// Names and what stands for each, one a line; a long one goes on below itself. Where little room is left beside the
// names, it stands below its name.
std::string RenderFields(const std::vector<std::pair<std::string, std::string>>& fields,
                         const OutputOptions& options = {});
// Words in lines of at most `width` columns (0: one line); all but the first begin with `indent` spaces. Breaks at
// blanks. Begins at column `indent` too.
std::string Wrapped(std::string_view text, size_t width, size_t indent);
// A terminal on which text has little room beside what it belongs to. 0: there is no terminal.
constexpr bool IsNarrow(size_t width) { return width != 0 && width < 70; }
// "2026-11-24 12:00:01", in the time zone of the reader; empty: it has no such time.
std::string LocalTimeText(int64_t unix_seconds);
// Marks a word green, yellow or red where colour is on.
enum class Mood { kGood, kWarning, kBad };
std::string Paint(const std::string& text, Mood mood, const OutputOptions& options);

// What standard output is: its width if it is a terminal, whether it may be coloured (NO_COLOR unset, TERM not "dumb")
// and shows UTF-8 (by the environment's locale).
OutputOptions ThisOutput();
bool ColourWanted();
// Whether the characters of the environment's locale are UTF-8.
bool UnicodeWanted();
// Columns of the terminal at standard output; without one $COLUMNS, else 80.
size_t OutputWidth();

// Hands on what was printed, now. False: standard output does not take it, or has not before: who prints without an end
// ends then, and EndOutput tells why.
bool FlushOutput();
// At the end of the program, which ended so far with `status`: hands on the rest. Where not all could be written, says
// that on standard error, and the status is not 0; where the reader of a pipe has gone, it says nothing. `error`: of a
// write that threw; 0: none.
int EndOutput(int status, int error = 0);

}  // namespace tier::tierctl

#include "tools/tierctl/pool_text.h"

#include <algorithm>
#include <cctype>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "tools/tierctl/output.h"
#include "tools/tierctl/printable.h"

namespace tier::tierctl {
namespace {

constexpr size_t kWidthMin = 20;

std::string InHue(const std::string& text, size_t hue, const PoolTextOptions& options) {
  if (!options.colour || text.empty()) return text;
  return fmt::format("\033[38;5;{}m{}\033[0m", kPoolHues[hue].terminal, text);
}

std::string CellText(const PoolPicture& picture, const PoolCell& cell, const PoolTextOptions& options) {
  constexpr const char* kEighths[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  const char letter = picture.owners[cell.owner].letter;
  std::string text(1, cell.slots ? static_cast<char>(std::tolower(letter)) : letter);
  if (const char mark = MarkOf(cell.condition); mark != 0) return text + mark;
  if (options.unicode) return text + kEighths[FillOf(cell, 8)];
  const unsigned tenths = FillOf(cell, 10);
  return text + (tenths == 0 ? '.' : tenths == 10 ? '#' : static_cast<char>('0' + tenths));
}

// Neighbours of one hue are coloured together.
std::string Row(const PoolPicture& picture, size_t first, size_t last, const PoolTextOptions& options) {
  std::string row;
  std::string run;
  for (size_t i = first; i < last; ++i) {
    run += CellText(picture, picture.cells[i], options);
    const size_t hue = picture.owners[picture.cells[i].owner].hue;
    if (i + 1 < last && picture.owners[picture.cells[i + 1].owner].hue == hue) continue;
    if (i + 1 == last) run.erase(run.find_last_not_of(' ') + 1);
    row += InHue(std::exchange(run, {}), hue, options);
  }
  return row + "\n";
}

// Words side by side, in lines of at most `width`, each begun with `indent`.
std::string Wrapped(const std::vector<std::string>& words, size_t width, const std::string& indent) {
  std::string text;
  std::string line = indent;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string word = words[i] + (i + 1 < words.size() ? "," : "");
    if (line.size() > indent.size() && line.size() + 1 + word.size() > width) {
      text += line + "\n";
      line = indent;
    }
    line += (line.size() > indent.size() ? " " : "") + word;
  }
  return text + line + "\n";
}

std::string Head(const PoolPicture& picture, size_t width) {
  std::vector<std::string> words = {
      fmt::format("arena {} of {}", HumanBytes(picture.arena_bytes), HumanBytes(picture.arena_max_bytes))};
  if (picture.stock_bytes != 0) {
    words.push_back(fmt::format("beside it {} made ahead of need", HumanBytes(picture.stock_bytes)));
  }
  if (picture.kept_bytes != 0) {
    words.push_back(
        fmt::format("beside it {} kept by processes that did not return them", HumanBytes(picture.kept_bytes)));
  }
  if (picture.window_count == 0) {
    words.emplace_back("no windows");
    return Wrapped(words, width, "");
  }
  const size_t per_cell = picture.windows_per_cell;
  words.push_back(WindowsText(picture.window_count) +
                  (per_cell == 1 ? " (one a cell)" : fmt::format(" ({} a cell)", per_cell)));
  words.push_back(fmt::format("in use by blocks {}", HumanBytes(picture.block_bytes)));
  words.push_back(fmt::format("tails {}", HumanBytes(picture.tail_bytes)));
  words.push_back(fmt::format("slots {}", HumanBytes(picture.slot_bytes)));
  words.push_back(fmt::format("free {}", HumanBytes(picture.free_bytes)));
  for (const auto& [node, bytes] : picture.node_bytes) {
    words.push_back(fmt::format("NUMA node {} has {}", node, HumanBytes(bytes)));
  }
  return Wrapped(words, width, "");
}

std::string Key(const PoolPicture& picture, const PoolTextOptions& options) {
  std::vector<std::string> words = {"A block windows", "a slot windows"};
  words.emplace_back(options.unicode ? "▁ to █ filled" : "1 to 9 tenths filled");
  if (!options.unicode) words.insert(words.end(), {". empty", "# full"});
  for (int condition = 0; condition < v1::PoolWindowCondition_ARRAYSIZE; ++condition) {
    const auto its = static_cast<v1::PoolWindowCondition>(condition);
    const uint64_t count = picture.windows_by_condition[static_cast<size_t>(condition)];
    if (count != 0 && MarkOf(its) != 0) words.push_back(fmt::format("{} {}", MarkOf(its), ConditionText(its, count)));
  }
  return Wrapped(words, options.width, "");
}

// Kept windows are rare: only where there are some.
std::vector<std::pair<const char*, uint64_t>> FiguresOf(const PoolPicture& picture, const v1::PoolOwner& owner) {
  std::vector<std::pair<const char*, uint64_t>> figures = {
      {"held", owner.held_bytes()}, {"requested", owner.requested_bytes()}, {"waste", owner.waste_bytes()},
      {"free", owner.free_bytes()}, {"run", owner.largest_run_bytes()},     {"borrowed", owner.borrowed_bytes()},
      {"owed", owner.owed_bytes()}};
  if (picture.kept_bytes != 0) figures.emplace_back("kept", owner.kept_bytes());
  return figures;
}

std::string Upper(std::string text) {
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

std::string Table(const PoolPicture& picture) {
  std::vector<Column> columns = {{.title = " ", .cells = {}}, {.title = "JOB", .cells = {}}};
  for (const PoolOwnerLine& owner : picture.owners) {
    columns[0].cells.emplace_back(1, owner.letter);
    columns[1].cells.push_back(owner.name);
    const auto figures = FiguresOf(picture, owner.figures);
    for (size_t i = 0; i < figures.size(); ++i) {
      if (columns.size() == i + 2) columns.push_back({.title = Upper(figures[i].first), .cells = {}, .right = true});
      columns[i + 2].cells.push_back(HumanBytes(figures[i].second));
    }
  }
  return RenderTable(columns);
}

std::string Lines(const PoolPicture& picture, const PoolTextOptions& options) {
  std::string text;
  for (const PoolOwnerLine& owner : picture.owners) {
    const std::string shown = CutToWidth(Printable(owner.name), options.width - 2, options.unicode ? "…" : "~");
    text += InHue(std::string(1, owner.letter), owner.hue, options) + " " + shown + "\n";
    std::vector<std::string> words;
    for (const auto& [name, bytes] : FiguresOf(picture, owner.figures)) {
      words.push_back(fmt::format("{} {}", name, HumanBytes(bytes)));
    }
    text += Wrapped(words, options.width, "  ");
  }
  return text;
}

std::string Legend(const PoolPicture& picture, const PoolTextOptions& options) {
  const std::string table = Table(picture);
  std::vector<std::string> rows;
  for (size_t at = 0; at < table.size();) {
    const size_t end = table.find('\n', at);
    rows.push_back(table.substr(at, end - at));
    at = end + 1;
  }
  const auto too_wide = [&](const std::string& row) { return DisplayWidth(row) > options.width; };
  if (std::ranges::any_of(rows, too_wide)) return Lines(picture, options);
  std::string text = rows.front() + "\n";
  for (size_t i = 1; i < rows.size(); ++i) {
    text += InHue(rows[i].substr(0, 1), picture.owners[i - 1].hue, options) + rows[i].substr(1) + "\n";
  }
  return text;
}

// For XML, which takes no control character in any form.
std::string Escaped(const std::string& text) {
  std::string escaped;
  for (const char c : Printable(text)) {
    switch (c) {
      case '&': escaped += "&amp;"; break;
      case '<': escaped += "&lt;"; break;
      case '>': escaped += "&gt;"; break;
      case '"': escaped += "&quot;"; break;
      default: escaped += c;
    }
  }
  return escaped;
}

constexpr size_t kCell = 16;  // Pixels, as all below; with the gap to the next.
constexpr size_t kGap = 2;
constexpr size_t kMargin = 12;
constexpr size_t kLine = 18;
constexpr size_t kTextWidth = 760;

std::string CellSvg(const PoolPicture& picture, size_t index) {
  const PoolCell& cell = picture.cells[index];
  const PoolOwnerLine& owner = picture.owners[cell.owner];
  const size_t x = kMargin + index % picture.columns * kCell;
  const size_t y = kMargin + kLine + index / picture.columns * kCell;
  constexpr size_t kInner = kCell - kGap;
  const size_t filled = FillOf(cell, kInner);
  const char* const colour = kPoolHues[owner.hue].svg;
  std::string title = fmt::format("{}: {} of {} filled, {}", owner.name, HumanBytes(cell.used_bytes),
                                  HumanBytes(cell.size_bytes), WindowsText(cell.window_count));
  const std::string condition = ConditionText(cell.condition, cell.window_count);
  if (!condition.empty()) title += condition.substr(condition.find(' '));
  std::string svg = fmt::format("<g><title>{}</title>", Escaped(title));
  svg += fmt::format(R"(<rect x="{}" y="{}" width="{}" height="{}" fill="{}" fill-opacity="0.25"{}/>)", x, y, kInner,
                     kInner, colour, cell.slots ? R"( rx="5")" : "");
  if (filled != 0) {
    svg += fmt::format(R"(<rect x="{}" y="{}" width="{}" height="{}" fill="{}"/>)", x, y + kInner - filled, kInner,
                       filled, colour);
  }
  if (const char mark = MarkOf(cell.condition); mark != 0) {
    svg += fmt::format(R"(<text x="{}" y="{}" text-anchor="middle">{}</text>)", x + kInner / 2, y + kInner - 3,
                       Escaped(std::string(1, mark)));
  }
  return svg + "</g>\n";
}

}  // namespace

size_t PoolColumnsFor(size_t width) { return std::max(width, kWidthMin) / 2; }

std::string RenderPoolText(const PoolPicture& picture, const PoolTextOptions& asked) {
  PoolTextOptions options = asked;
  options.width = std::max(options.width, kWidthMin);
  std::string text = Head(picture, options.width);
  for (size_t first = 0; first < picture.cells.size(); first += picture.columns) {
    text += Row(picture, first, std::min(first + picture.columns, picture.cells.size()), options);
  }
  if (!picture.cells.empty()) text += Key(picture, options);
  if (!picture.owners.empty()) text += "\n" + Legend(picture, options);
  return text;
}

std::string RenderPoolSvg(const PoolPicture& picture) {
  const size_t rows = (picture.cells.size() + picture.columns - 1) / picture.columns;
  const size_t legend = kMargin + kLine + rows * kCell + kLine;
  const size_t width = std::max(kTextWidth, picture.columns * kCell) + 2 * kMargin;
  const size_t height = legend + picture.owners.size() * kLine + kMargin;
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"{0}\" height=\"{1}\" fill=\"white\"/>\n",
      width, height);
  std::string head = Head(picture, SIZE_MAX);
  head.pop_back();
  svg += fmt::format("<text x=\"{}\" y=\"{}\">{}</text>\n", kMargin, kMargin + 6, Escaped(head));
  for (size_t i = 0; i < picture.cells.size(); ++i) svg += CellSvg(picture, i);
  for (size_t i = 0; i < picture.owners.size(); ++i) {
    const PoolOwnerLine& owner = picture.owners[i];
    const size_t y = legend + i * kLine;
    std::string words = owner.name;
    for (const auto& [name, bytes] : FiguresOf(picture, owner.figures))
      words += fmt::format(", {} {}", name, HumanBytes(bytes));
    svg += fmt::format("<rect x=\"{}\" y=\"{}\" width=\"12\" height=\"12\" fill=\"{}\"/>", kMargin, y - 10,
                       kPoolHues[owner.hue].svg);
    svg += fmt::format("<text x=\"{}\" y=\"{}\">{}</text>\n", kMargin + kCell + 2, y, Escaped(words));
  }
  return svg + "</svg>\n";
}

}  // namespace tier::tierctl

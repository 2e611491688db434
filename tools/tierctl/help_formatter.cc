#include "tools/tierctl/help_formatter.h"

#include <sstream>

#include "tools/tierctl/output.h"

namespace tier::tierctl {
namespace {

constexpr size_t kNamesWidth = 30;        // As CLI11 has it.
constexpr size_t kNamesWidthNarrow = 10;  // Most names stand above their text then.

bool IsOpen(const std::string& sentence) {
  return !sentence.empty() && sentence.back() != '.' && sentence.back() != ':';
}

}  // namespace

std::string WrappedProse(const std::string& text, size_t width) {
  if (width == 0) return text;
  std::string wrapped;
  std::string open;  // A sentence that goes on with the next line.
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const bool is_prose = !line.empty() && line.front() != ' ';
    if (is_prose && !open.empty()) {
      open += " " + line;
    } else {
      if (!open.empty()) wrapped += Wrapped(open, width, 0) + "\n";
      open = is_prose ? line : "";
      if (!is_prose) wrapped += line + "\n";
    }
    if (!open.empty() && !IsOpen(open)) {
      wrapped += Wrapped(open, width, 0) + "\n";
      open.clear();
    }
  }
  if (!open.empty()) wrapped += Wrapped(open, width, 0) + "\n";
  if (!text.ends_with('\n') && !wrapped.empty()) wrapped.pop_back();
  return wrapped;
}

HelpFormatter::HelpFormatter(size_t width) : width_(width) {
  column_width(IsNarrow(width) ? kNamesWidthNarrow : kNamesWidth);
}

std::string HelpFormatter::Beside(const std::string& text) const {
  const size_t names = get_column_width();
  return width_ > names ? Wrapped(text, width_ - names, 0) : text;
}

std::string HelpFormatter::make_description(const CLI::App* app) const {
  return WrappedProse(CLI::Formatter::make_description(app), width_);
}

std::string HelpFormatter::make_footer(const CLI::App* app) const {
  return WrappedProse(CLI::Formatter::make_footer(app), width_);
}

std::string HelpFormatter::make_subcommand(const CLI::App* verb) const {
  std::ostringstream out;
  CLI::detail::format_help(out, verb->get_display_name(true), Beside(verb->get_description()), get_column_width());
  return out.str();
}

std::string HelpFormatter::make_option_desc(const CLI::Option* option) const {
  return Beside(CLI::Formatter::make_option_desc(option));
}

}  // namespace tier::tierctl

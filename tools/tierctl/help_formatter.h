// The help of tierctl, within the width of the terminal.
#pragma once

#include <cstddef>
#include <string>

#include <CLI/CLI.hpp>

namespace tier::tierctl {

class HelpFormatter final : public CLI::Formatter {
 public:
  // Columns of the terminal; 0: there is none, and lines are as long as they are.
  explicit HelpFormatter(size_t width);

  std::string make_description(const CLI::App* app) const override;
  std::string make_footer(const CLI::App* app) const override;
  std::string make_subcommand(const CLI::App* verb) const override;
  std::string make_option_desc(const CLI::Option* option) const override;

 private:
  // What stands beside a name.
  std::string Beside(const std::string& text) const;

  size_t width_;
};

// Prose in lines of at most `width` columns (0: as it is). Lines that begin with a blank are examples, to be pasted,
// and stay whole. A line that ended within a sentence goes on with the next one.
std::string WrappedProse(const std::string& text, size_t width);

}  // namespace tier::tierctl

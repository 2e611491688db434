#include "proto/number_list.h"

#include <charconv>

namespace tier::proto {
namespace {

// Takes a number off the front of `text`.
std::optional<uint32_t> TakeNumber(std::string_view* text) {
  uint32_t number = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), number);
  if (error != std::errc() || number >= kListedNumbersMax) return std::nullopt;
  text->remove_prefix(static_cast<size_t>(end - text->data()));
  return number;
}

bool Take(char expected, std::string_view* text) {
  if (text->empty() || text->front() != expected) return false;
  text->remove_prefix(1);
  return true;
}

}  // namespace

std::optional<std::vector<uint32_t>> ParseNumberList(std::string_view text) {
  std::vector<uint32_t> numbers;
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.remove_suffix(1);
  if (text.empty()) return numbers;
  do {
    const std::optional<uint32_t> first = TakeNumber(&text);
    if (!first) return std::nullopt;
    const std::optional<uint32_t> last = Take('-', &text) ? TakeNumber(&text) : first;
    if (!last || *last < *first) return std::nullopt;
    if (numbers.size() + (*last - *first) >= kListedNumbersMax) return std::nullopt;
    for (uint32_t number = *first; number <= *last; ++number) numbers.push_back(number);
  } while (Take(',', &text));
  if (!text.empty()) return std::nullopt;
  return numbers;
}

}  // namespace tier::proto

#include "tools/tierctl/printable.h"

#include <wchar.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <clocale>
#include <utility>

#include <fmt/format.h>

namespace tier::tierctl {
namespace {

struct CodePoint {
  char32_t value = 0;
  size_t size = 0;  // Bytes; 0: no character of UTF-8 begins here.
};

// The first character, by the Unicode standard's table 3-7: no longer forms, no surrogates, nothing beyond U+10FFFF.
CodePoint Decode(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return {first, 1};
  const size_t size = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < size) return {};
  char32_t value = first & (0x7fu >> size);
  for (size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {};
    value = value << 6 | (byte(i) & 0x3f);
  }
  constexpr std::array<char32_t, 5> kLeast = {0, 0, 0x80, 0x800, 0x10000};
  if (value < kLeast[size] || value > 0x10ffff || (value >= 0xd800 && value <= 0xdfff)) return {};
  return {value, size};
}

bool IsControl(char32_t c) { return c < 0x20 || (c >= 0x7f && c < 0xa0); }

// Marks of direction, joiners and fillers, separators of lines, tags: none is seen, and each changes how the rest is.
bool IsInvisible(char32_t c) {
  constexpr std::pair<char32_t, char32_t> kRanges[] = {
      {0xad, 0xad},     {0x34f, 0x34f},   {0x61c, 0x61c},   {0x115f, 0x1160},   {0x17b4, 0x17b5},   {0x180b, 0x180f},
      {0x200b, 0x200f}, {0x2028, 0x202e}, {0x2060, 0x206f}, {0x3164, 0x3164},   {0xfe00, 0xfe0f},   {0xfeff, 0xfeff},
      {0xffa0, 0xffa0}, {0xfff0, 0xfffb}, {0xe000, 0xf8ff}, {0xe0000, 0xe0fff}, {0xf0000, 0x10ffff}};
  return std::ranges::any_of(kRanges, [&](const auto& range) { return c >= range.first && c <= range.second; });
}

// By the C library's tables for UTF-8, whatever the locale of the environment is.
size_t WidthOf(char32_t c) {
  static const locale_t utf8 = ::newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
  if (c < 0x7f || utf8 == nullptr) return 1;
  const locale_t before = ::uselocale(utf8);
  const int width = ::wcwidth(static_cast<wchar_t>(c));
  ::uselocale(before);
  return width < 0 ? 1 : static_cast<size_t>(width);
}

// Bytes of the longest beginning that takes at most `width` columns.
size_t HeadWithin(std::string_view text, size_t width) {
  size_t bytes = 0;
  for (size_t taken = 0; bytes < text.size();) {
    const CodePoint next = Decode(text.substr(bytes));
    taken += next.size == 0 ? 1 : WidthOf(next.value);
    if (taken > width) break;
    bytes += std::max<size_t>(next.size, 1);
  }
  return bytes;
}

}  // namespace

std::string Printable(std::string_view text, Characters characters) {
  std::string shown;
  for (size_t i = 0; i < text.size();) {
    const CodePoint next = Decode(text.substr(i));
    if (next.size == 0 || IsControl(next.value)) {
      const size_t end = i + std::max<size_t>(next.size, 1);
      for (; i < end; ++i) shown += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[i]));
      continue;
    }
    if (IsInvisible(next.value) || (characters == Characters::kAscii && next.value > 0x7e)) {
      shown += fmt::format("\\u{{{:x}}}", static_cast<uint32_t>(next.value));
    } else {
      if (next.value == '\\') shown += '\\';
      shown += text.substr(i, next.size);
    }
    i += next.size;
  }
  return shown;
}

size_t DisplayWidth(std::string_view text) {
  size_t width = 0;
  for (size_t i = 0; i < text.size();) {
    const CodePoint next = Decode(text.substr(i));
    width += next.size == 0 ? 1 : WidthOf(next.value);
    i += std::max<size_t>(next.size, 1);
  }
  return width;
}

std::string CutToWidth(std::string_view text, size_t width, std::string_view mark, CutAt at) {
  const size_t whole = DisplayWidth(text);
  if (whole <= width) return std::string(text);
  const size_t mark_width = DisplayWidth(mark);
  if (width <= mark_width) return std::string(text.substr(0, HeadWithin(text, width)));
  const size_t left = width - mark_width;
  const size_t head = at == CutAt::kEnd ? left : (left + 1) / 2;
  std::string cut(text.substr(0, HeadWithin(text, head)));
  cut += mark;
  if (at == CutAt::kEnd) return cut;
  // What is left out of the beginning, so that the rest fits.
  size_t begin = HeadWithin(text, whole - (left - head));
  while (begin < text.size() && DisplayWidth(text.substr(begin)) > left - head) {
    begin += std::max<size_t>(Decode(text.substr(begin)).size, 1);
  }
  return cut.append(text.substr(begin));
}

std::string Lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lower;
}

}  // namespace tier::tierctl

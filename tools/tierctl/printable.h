// Text that tenants chose (names of jobs, keys of tensors, words in events), made fit for a terminal.
//
// A key is any UTF-8. Written as it is, it could move the cursor, forge rows of a table, set the title of the window or
// turn the direction of what follows. Whatever is not plainly visible is shown by its number instead.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tier::tierctl {

// What the reader can show: kAscii: everything else stands by its number too.
enum class Characters { kAscii, kUnicode };
// "\x1b" for a control character or a byte that is no UTF-8, "\u{202e}" for a character that is invisible or turns the
// direction of text, "\\" for a backslash. Everything else as it is.
std::string Printable(std::string_view text, Characters shown = Characters::kUnicode);
// Columns that the text takes on a terminal. REQUIRES: it is Printable.
size_t DisplayWidth(std::string_view text);
enum class CutAt { kMiddle, kEnd };
// At most `width` columns, with `mark` where something was left out. REQUIRES: it is Printable.
std::string CutToWidth(std::string_view text, size_t width, std::string_view mark, CutAt at = CutAt::kMiddle);

// ASCII letters made small. Of any text.
std::string Lower(std::string_view text);

}  // namespace tier::tierctl

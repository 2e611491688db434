// The picture of the pool as text for a terminal, and as SVG.
#pragma once

#include <string>

#include "tools/tierctl/pool_picture.h"

namespace tier::tierctl {

struct PoolTextOptions {
  size_t width = 80;     // Columns of the terminal.
  bool colour = false;   // By owner; the letters tell the same.
  bool unicode = false;  // Filling in eighths of a character; else as a digit, tenths.
};

// Cells of two characters that fit into a row of this width.
size_t PoolColumnsFor(size_t width);
// The picture, what its marks mean, and what each owner has: as a table, or where that is too wide in lines.
std::string RenderPoolText(const PoolPicture& picture, const PoolTextOptions& options);
// A document of its own. Each cell says in words what it shows.
std::string RenderPoolSvg(const PoolPicture& picture);

}  // namespace tier::tierctl

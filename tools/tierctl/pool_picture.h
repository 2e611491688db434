// The arena as a picture: one cell for each window, or for each group of neighbours where there are more windows than
// fit. From it come the text for a terminal and the SVG.
//
// A cell takes two characters: the letter of the owner who has most of it (a capital for block windows, a small letter
// for slot windows), and how far it is filled, or a mark where a window of it comes or goes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "libclient/control/channel.h"

namespace tier::tierctl {

struct PoolGrid {
  size_t columns = 40;   // Cells of a row; 0 is taken as 1.
  size_t rows_max = 20;  // More windows than cells: each cell is of as many windows as it takes.
};

struct PoolCell {
  size_t owner = 0;  // Its place in PoolPicture::owners.
  bool slots = false;
  uint32_t window_count = 0;
  uint64_t size_bytes = 0;
  uint64_t used_bytes = 0;
  // Of its windows, the one that most needs a look.
  v1::PoolWindowCondition condition = v1::POOL_WINDOW_CONDITION_READY;
};

struct PoolOwnerLine {
  std::string name;  // "uid/job" as the tenant named it, "other users", "ended jobs", "unlisted".
  char letter = ' ';
  size_t hue = 0;  // Into kPoolHues.
  v1::PoolOwner figures;
};

struct PoolPicture {
  uint64_t arena_bytes = 0;
  uint64_t arena_max_bytes = 0;
  uint64_t stock_bytes = 0;
  uint64_t window_count = 0;
  size_t windows_per_cell = 1;
  size_t columns = 1;
  std::vector<PoolCell> cells;                                                     // Row by row.
  std::vector<PoolOwnerLine> owners;                                               // Who holds most first.
  std::array<uint64_t, v1::PoolWindowCondition_ARRAYSIZE> windows_by_condition{};  // By v1::PoolWindowCondition.
  uint64_t block_bytes = 0;                                                        // In use, of all windows.
  uint64_t tail_bytes = 0;
  uint64_t slot_bytes = 0;
  uint64_t free_bytes = 0;
  uint64_t kept_bytes = 0;  // Beside the windows: of those that were taken from processes that have them still.
  std::map<uint32_t, uint64_t> node_bytes;  // Of windows, by NUMA node; empty where the host has one.
};

// A colour of the terminal's 256, and the same for SVG. The last two are those of other users and of ended jobs.
struct PoolHue {
  int terminal;
  const char* svg;
};
inline constexpr std::array<PoolHue, 14> kPoolHues = {{{33, "#0087ff"},
                                                       {208, "#ff8700"},
                                                       {71, "#5faf5f"},
                                                       {170, "#d75fd7"},
                                                       {220, "#ffd700"},
                                                       {44, "#00d7d7"},
                                                       {203, "#ff5f5f"},
                                                       {141, "#af87ff"},
                                                       {150, "#afd787"},
                                                       {180, "#d7af87"},
                                                       {110, "#87afd7"},
                                                       {217, "#ffafaf"},
                                                       {245, "#8a8a8a"},
                                                       {240, "#585858"}}};

// Windows whose owner the answer does not list, which no daemon of this version sends, are those of one that is
// "unlisted".
PoolPicture MakePoolPicture(const v1::GetPoolMapResponse& answer, const PoolGrid& grid);

// '+' being made, '-' emptying, '<' returning, '!' overdue, 'x' closing; 0: a window in use has none.
char MarkOf(v1::PoolWindowCondition condition);
// "3 being made", "1 overdue"; "" for windows in use.
std::string ConditionText(v1::PoolWindowCondition condition, uint64_t count);
// 0 (empty) to `steps` (full); neither unless it is quite so.
unsigned FillOf(const PoolCell& cell, unsigned steps);
// "200 windows", "1 window".
std::string WindowsText(uint64_t count);

}  // namespace tier::tierctl

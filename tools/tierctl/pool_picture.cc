#include "tools/tierctl/pool_picture.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include <fmt/format.h>

namespace tier::tierctl {
namespace {

constexpr size_t kOtherUsersHue = kPoolHues.size() - 2;
constexpr size_t kEndedHue = kPoolHues.size() - 1;
constexpr size_t kLetters = 26;

std::string NameOf(const v1::PoolOwner& owner) {
  if (owner.kind() == v1::POOL_OWNER_KIND_JOB) return fmt::format("{}/{}", owner.uid(), owner.job());
  return owner.kind() == v1::POOL_OWNER_KIND_OTHER_USERS ? "other users" : "ended jobs";
}

// Jobs before the others, by name, so that two pictures of the same jobs have the same letters and hues. Where there
// are more owners than letters, those that hold most come first: the others share '*', and hues come again. Returns
// where each owner of the answer has come to be.
std::vector<size_t> ListOwners(const v1::GetPoolMapResponse& answer, std::vector<PoolOwnerLine>* lines) {
  std::vector<size_t> order(static_cast<size_t>(answer.owners_size()));
  std::iota(order.begin(), order.end(), size_t{0});
  const auto owner = [&](size_t i) -> const v1::PoolOwner& { return answer.owners(static_cast<int>(i)); };
  if (order.size() > kLetters) {
    std::ranges::stable_sort(order, {}, [&](size_t i) { return std::pair(owner(i).kind(), ~owner(i).held_bytes()); });
  } else {
    std::ranges::stable_sort(order, {}, [&](size_t i) { return std::pair(owner(i).kind(), NameOf(owner(i))); });
  }
  std::vector<size_t> places(order.size());
  for (size_t i = 0; i < order.size(); ++i) {
    const v1::PoolOwner& at = owner(order[i]);
    places[order[i]] = i;
    PoolOwnerLine line{.name = NameOf(at), .figures = at};
    line.letter = i < kLetters ? static_cast<char>('A' + i) : '*';
    line.hue = i % kOtherUsersHue;
    if (at.kind() == v1::POOL_OWNER_KIND_OTHER_USERS) std::tie(line.letter, line.hue) = std::pair('~', kOtherUsersHue);
    if (at.kind() == v1::POOL_OWNER_KIND_ENDED) std::tie(line.letter, line.hue) = std::pair('=', kEndedHue);
    lines->push_back(std::move(line));
  }
  return places;
}

// How much a condition needs a look.
int WeightOf(v1::PoolWindowCondition condition) {
  switch (condition) {
    case v1::POOL_WINDOW_CONDITION_OVERDUE: return 5;
    case v1::POOL_WINDOW_CONDITION_RETURNING: return 4;
    case v1::POOL_WINDOW_CONDITION_EMPTYING: return 3;
    case v1::POOL_WINDOW_CONDITION_CLOSING: return 2;
    case v1::POOL_WINDOW_CONDITION_MAKING: return 1;
    default: return 0;
  }
}

uint64_t UsedOf(const v1::PoolWindow& window) {
  return window.block_bytes() + window.tail_bytes() + window.slot_bytes();
}

// Neighbours [first, last) as one cell.
PoolCell CellOf(const v1::GetPoolMapResponse& answer, const std::vector<size_t>& owners, int first, int last) {
  PoolCell cell;
  std::vector<std::pair<uint64_t, size_t>> shares;  // Bytes of each owner that has some; few owners meet in a cell.
  uint64_t slot_bytes = 0;
  uint64_t weighed = 0;
  for (int i = first; i < last; ++i) {
    const v1::PoolWindow& window = answer.windows(i);
    const size_t owner = window.owner() < owners.size() ? owners[window.owner()] : owners.size();
    const uint64_t weight = std::max<uint64_t>(window.size_bytes(), 1);  // One that is being made has no size.
    const auto found = std::ranges::find(shares, owner, &std::pair<uint64_t, size_t>::second);
    found == shares.end() ? shares.emplace_back(weight, owner) : * found = {found->first + weight, owner};
    ++cell.window_count;
    cell.size_bytes += window.size_bytes();
    cell.used_bytes += UsedOf(window);
    weighed += weight;
    if (window.kind() == v1::POOL_WINDOW_KIND_SLOT) slot_bytes += weight;
    if (WeightOf(window.condition()) > WeightOf(cell.condition)) cell.condition = window.condition();
  }
  cell.owner = std::ranges::max_element(shares, {}, &std::pair<uint64_t, size_t>::first)->second;
  cell.slots = 2 * slot_bytes > weighed;
  return cell;
}

void CountWindows(const v1::GetPoolMapResponse& answer, PoolPicture* picture) {
  for (const v1::PoolWindow& window : answer.windows()) {
    const auto condition = static_cast<size_t>(window.condition());
    if (condition < picture->windows_by_condition.size()) ++picture->windows_by_condition[condition];
    picture->block_bytes += window.block_bytes();
    picture->tail_bytes += window.tail_bytes();
    picture->slot_bytes += window.slot_bytes();
    if (window.has_numa_node()) picture->node_bytes[window.numa_node()] += window.size_bytes();
    picture->free_bytes += window.size_bytes() - std::min(window.size_bytes(), UsedOf(window));
  }
}

}  // namespace

PoolPicture MakePoolPicture(const v1::GetPoolMapResponse& answer, const PoolGrid& grid) {
  PoolPicture picture;
  picture.arena_bytes = answer.arena_bytes();
  picture.stock_bytes = answer.arena_stock_bytes();
  picture.kept_bytes = answer.kept_bytes();
  picture.arena_max_bytes = answer.arena_max_bytes();
  picture.window_count = static_cast<uint64_t>(answer.windows_size());
  picture.columns = std::max<size_t>(grid.columns, 1);
  const std::vector<size_t> owners = ListOwners(answer, &picture.owners);
  const auto unlisted = [&](const v1::PoolWindow& window) { return window.owner() >= owners.size(); };
  if (std::ranges::any_of(answer.windows(), unlisted)) {
    picture.owners.push_back({.name = "unlisted", .letter = '?', .hue = kEndedHue, .figures = {}});
  }
  CountWindows(answer, &picture);
  const size_t cells_max = picture.columns * std::max<size_t>(grid.rows_max, 1);
  picture.windows_per_cell = std::max<size_t>((picture.window_count + cells_max - 1) / cells_max, 1);
  const int step = static_cast<int>(picture.windows_per_cell);
  for (int first = 0; first < answer.windows_size(); first += step) {
    picture.cells.push_back(CellOf(answer, owners, first, std::min(first + step, answer.windows_size())));
  }
  return picture;
}

char MarkOf(v1::PoolWindowCondition condition) {
  switch (condition) {
    case v1::POOL_WINDOW_CONDITION_MAKING: return '+';
    case v1::POOL_WINDOW_CONDITION_EMPTYING: return '-';
    case v1::POOL_WINDOW_CONDITION_RETURNING: return '<';
    case v1::POOL_WINDOW_CONDITION_OVERDUE: return '!';
    case v1::POOL_WINDOW_CONDITION_CLOSING: return 'x';
    default: return 0;
  }
}

std::string ConditionText(v1::PoolWindowCondition condition, uint64_t count) {
  switch (condition) {
    case v1::POOL_WINDOW_CONDITION_MAKING: return fmt::format("{} being made", count);
    case v1::POOL_WINDOW_CONDITION_EMPTYING: return fmt::format("{} emptying", count);
    case v1::POOL_WINDOW_CONDITION_RETURNING: return fmt::format("{} returning", count);
    case v1::POOL_WINDOW_CONDITION_OVERDUE: return fmt::format("{} overdue", count);
    case v1::POOL_WINDOW_CONDITION_CLOSING: return fmt::format("{} closing", count);
    default: return {};
  }
}

unsigned FillOf(const PoolCell& cell, unsigned steps) {
  if (cell.used_bytes == 0) return 0;
  if (cell.used_bytes >= cell.size_bytes) return steps;
  const double part = static_cast<double>(cell.used_bytes) / static_cast<double>(cell.size_bytes);
  return std::clamp(static_cast<unsigned>(part * steps), 1u, steps - 1);
}

std::string WindowsText(uint64_t count) { return fmt::format("{} {}", count, count == 1 ? "window" : "windows"); }

}  // namespace tier::tierctl

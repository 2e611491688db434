// What the clients know of their tensors: the plain truth that the engine is held to.
//
// Content is stamped page by page: each 4 KiB page of a tensor carries (tensor, page, seed) in its first and last
// bytes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "proto/message.h"
#include "proto/units.h"

namespace tier::tiering::sim {

inline constexpr uint32_t kUnknown = 0;  // A page whose bytes nobody can vouch for (accepted as torn).

struct TensorModel {
  uint64_t job = 0;
  uint64_t space = 0;
  uint64_t id = 0;
  uint64_t size = 0;
  uint64_t creator = 0;         // Session.
  std::vector<uint32_t> seeds;  // By page; of the last seal.
  std::vector<bool> sealed;     // By page; all: it is visible.
  bool visible = false;
  bool coming = false;   // One of more than a turn makes: before these are granted it may not be there.
  bool freeing = false;  // A free was asked for, or done.
  bool tainted = false;  // A writer gave up on it: TORN is a right answer.
  bool sharded = false;  // So it is whenever a session has ended: the model does not count the steps of the others.
  // Which pieces belong to which unfinished write, by session. What is in the first two is certain: while such a swap
  // is unfinished nobody else is granted anything, and if the session ends with either, no read is granted.
  std::map<uint64_t, uint64_t> swaps;              // Number of the swap over all of it, begun and not ended.
  std::map<uint64_t, std::set<uint32_t>> changed;  // Pieces sealed by hand, fewer than all.
  std::set<uint64_t> perhaps_changed;              // Sessions that may have an unfinished change.
  std::vector<bool> torn;      // By piece: of no finished write, neither sealed nor accepted since: no read is granted.
  std::vector<bool> doubtful;  // By piece: a writer gave up on it; accepting it means taking whatever is there.
  std::shared_ptr<TensorModel> replaced_by;

  uint32_t page_count() const { return static_cast<uint32_t>(PagesFor(size)); }
  bool any_torn() const { return std::find(torn.begin(), torn.end(), true) != torn.end(); }
  // All unfinished writes are finished, or overwritten.
  void FinishWrites() {
    swaps.clear();
    changed.clear();
  }
  // The session cannot finish what it has begun.
  void BreakWrites(uint64_t session) {
    const bool certain = swaps.erase(session) + changed.erase(session) != 0;
    if (certain) torn.assign(torn.size(), true);
    if (certain || perhaps_changed.erase(session) != 0) tainted = true;
  }
};
using TensorPtr = std::shared_ptr<TensorModel>;

// Nothing of it is sealed yet.
TensorPtr NewTensorModel(const TensorModel& named);
// What the name of a tensor means now, if it was replaced.
TensorPtr Latest(TensorPtr tensor);

// Tensors that can be named now.
class ModelTable {
 public:
  TensorPtr Find(uint64_t job, uint64_t space, uint64_t id) const;
  void Add(const TensorPtr& tensor);
  void Remove(const TensorPtr& tensor);  // Only if it is still the one of that name.
  // Creations with kFlagReplace that found nothing to replace, until they are answered: the name means them, so what
  // frees the name, or another such creation of their session, ends them.
  void AddWaiting(const TensorPtr& tensor);
  void RemoveWaiting(const TensorPtr& tensor);
  void EndWaiting(const TensorModel& named, uint64_t creator);  // Of this session; 0: of all.
  TensorPtr Pick(uint64_t job, uint64_t space, uint64_t chance) const;
  void RemoveSpace(uint64_t job, uint64_t space);
  void RemoveJob(uint64_t job);
  const auto& tensors() const { return tensors_; }

 private:
  using Key = std::tuple<uint64_t, uint64_t, uint64_t>;
  std::map<Key, TensorPtr> tensors_;
  std::multimap<Key, TensorPtr> waiting_;
};

// A range of bytes of a tensor as it lies in memory.
struct Patch {
  uint64_t offset = 0;  // In the tensor.
  std::byte* memory = nullptr;
  uint64_t length = 0;
};

// What was read under each number of a content (proto/message.h): the same wherever the number is the same.
class ContentTable {
 public:
  // A page that was read under this number before, and held other bytes.
  std::optional<uint32_t> FindOther(uint64_t content, const TensorModel& tensor, const Patch& patch);

 private:
  static constexpr size_t kContentsMax = 2000;              // The oldest are forgotten first.
  std::map<uint64_t, std::map<uint32_t, uint32_t>> seeds_;  // By number and page.
};

// Writes the stamps of the pages that lie whole in the patch.
void Stamp(const TensorModel& tensor, const Patch& patch, uint32_t seed);
// The first page of the patch whose stamp is not that of its seed, if any.
std::optional<uint32_t> FindWrongPage(const TensorModel& tensor, const Patch& patch);

}  // namespace tier::tiering::sim

// String keys against a map, by random programs over few ids: hashes collide all the time.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "daemon/tiering/tables/intern_table.h"

namespace tier::tiering {
namespace {

enum class What : uint8_t { kIntern, kRestore, kUse, kUnuse };

struct Step {
  What what = What::kIntern;
  uint8_t key = 0;
  uint8_t number = 0;  // Of a restored id.
};

std::ostream& operator<<(std::ostream& stream, const Step& step) {
  return stream << "{" << static_cast<int>(step.what) << ", " << int{step.key} << ", " << int{step.number} << "}";
}

// Of 1 to 240 bytes: one cell and more.
std::string KeyOfNumber(uint8_t number) { return std::string(number % 5 * 59u, 'k') + std::to_string(number); }

class Model {
 public:
  Model(uint64_t id_mask, InternTable::Limits limits) : limits_(limits), table_(id_mask) {}

  void Run(const Step& step) {
    const std::string key = KeyOfNumber(step.key);
    switch (step.what) {
      case What::kIntern: Intern(key); break;
      case What::kRestore: Restore(key, step.number % 24); break;
      case What::kUse:
        if (ids_.contains(key)) used_.insert(ids_.at(key));
        break;
      case What::kUnuse:
        if (ids_.contains(key)) used_.erase(ids_.at(key));
        break;
    }
    Check();
  }

 private:
  void Intern(const std::string& key) {
    const auto before = ids_.find(key);
    const uint64_t known = before == ids_.end() ? 0 : before->second;  // No key has the id 0.
    const Result<uint64_t> id = table_.Intern(key, limits_, [&](uint64_t each) { return used_.contains(each); });
    if (known != 0) {
      RC_ASSERT(id.has_value() && *id == known);
      return;
    }
    DropWhatTheTableDropped();
    if (!id) {
      RC_ASSERT(id.error().code == Code::kNoMemory);
      return;
    }
    RC_ASSERT(*id != 0 && FindKey(*id) == nullptr);
    // What was dropped has the id that it had, unless another key has it now.
    const auto had = last_ids_.find(key);
    if (had != last_ids_.end() && FindKey(had->second) == nullptr) RC_ASSERT(*id == had->second);
    RC_ASSERT(table_.size() <= limits_.keys_max && table_.bytes() <= limits_.bytes_max);
    Put(key, *id);
  }

  void Restore(const std::string& key, uint64_t id) {
    const bool known = ids_.contains(key) && ids_.at(key) == id;
    const bool contradicts = !known && (id == 0 || ids_.contains(key) || FindKey(id) != nullptr);
    const Status restored = table_.Restore(key, id);
    RC_ASSERT(restored.has_value() == !contradicts);
    if (!restored) {
      RC_ASSERT(restored.error().code == Code::kCorrupt);
    } else {
      Put(key, id);
    }
  }

  // Those without a tensor may go, and no others.
  void DropWhatTheTableDropped() {
    std::erase_if(ids_, [&](const auto& entry) {
      const bool dropped = table_.KeyOf(entry.second).empty();
      RC_ASSERT(!dropped || !used_.contains(entry.second));
      return dropped;
    });
  }

  void Put(const std::string& key, uint64_t id) {
    ids_[key] = id;
    last_ids_[key] = id;
  }

  const std::string* FindKey(uint64_t id) const {
    for (const auto& [key, each] : ids_) {
      if (each == id) return &key;
    }
    return nullptr;
  }

  void Check() const {
    uint64_t bytes = 0;
    uint64_t texts = 0;
    for (const auto& [key, id] : ids_) {
      RC_ASSERT(table_.KeyOf(id) == key);
      bytes += key.size();
      texts += InternTable::TextsOf(key.size());
    }
    RC_ASSERT(table_.size() == ids_.size() && table_.bytes() == bytes && table_.texts() == texts);
    table_.CheckInvariants();
  }

  const InternTable::Limits limits_;
  InternTable table_;
  std::map<std::string, uint64_t> ids_;       // Of the keys that are there.
  std::map<std::string, uint64_t> last_ids_;  // Of all that ever were.
  std::set<uint64_t> used_;                   // Ids that tensors have.
};

rc::Gen<std::vector<Step>> Steps(bool restores) {
  // Interned most of the time.
  std::vector<What> kinds = {What::kIntern, What::kIntern, What::kIntern, What::kUse, What::kUnuse};
  if (restores) kinds.push_back(What::kRestore);
  return rc::gen::container<std::vector<Step>>(
      rc::gen::build<Step>(rc::gen::set(&Step::what, rc::gen::elementOf(kinds)),
                           rc::gen::set(&Step::key, rc::gen::inRange<uint8_t>(0, 60)), rc::gen::set(&Step::number)));
}

RC_GTEST_PROP(InternTableProperty, GivesEachKeyOneIdAndEachIdOneKey, ()) {
  const auto id_mask = *rc::gen::element<uint64_t>(0x7, 0x1f, 0xff, UINT64_MAX);
  const InternTable::Limits limits{.keys_max = *rc::gen::inRange(1u, 40u),
                                   .bytes_max = *rc::gen::element<uint64_t>(400, 4000, UINT64_MAX)};
  Model model(id_mask, limits);
  for (const Step& step : *Steps(*rc::gen::arbitrary<bool>())) model.Run(step);
}

// A run that resumes some keys of the run before gives each of them the id that it had, whether or not it was dropped
// meanwhile. Only another key that has come first may have that id.
RC_GTEST_PROP(InternTableProperty, GivesRestoredKeysTheIdsThatTheyHad, (const std::vector<uint8_t>& numbers)) {
  const auto id_mask = *rc::gen::element<uint64_t>(0x1f, 0xff, UINT64_MAX);
  const InternTable::Limits limits{.keys_max = 1000, .bytes_max = UINT64_MAX};
  const auto in_use = [](uint64_t) { return true; };
  InternTable before(id_mask);
  std::map<std::string, uint64_t> saved;  // In another order than they came.
  for (const uint8_t number : numbers) {
    const Result<uint64_t> id = before.Intern(KeyOfNumber(number), limits, in_use);
    if (id && number % 3 != 0) saved[KeyOfNumber(number)] = *id;
  }
  InternTable after(id_mask);
  for (const auto& [key, id] : saved) RC_ASSERT(after.Restore(key, id).has_value());
  const InternTable::Limits narrow{.keys_max = 4, .bytes_max = UINT64_MAX};
  for (int i = 0; i < 20; ++i) (void)after.Intern("new " + std::to_string(i), narrow, [](uint64_t) { return false; });
  for (const auto& [key, id] : saved) {
    const std::string holder = after.KeyOf(id);
    const Result<uint64_t> again = after.Intern(key, limits, in_use);
    if (holder.empty() || holder == key) RC_ASSERT(again.has_value() && *again == id);
  }
  after.CheckInvariants();
}

}  // namespace
}  // namespace tier::tiering

#include "libclient/client/pending.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <deque>
#include <map>

namespace tier::client {
namespace {

TEST(PendingTable, KeepsEveryEntryAcrossWrapAround) {
  PendingTable table;
  std::deque<Pending> pendings(2);
  table.Insert(1, &pendings[0]);
  table.Insert(1 + 2 * proto::kRequestsOutstandingMax, &pendings[1]);  // The same home.
  EXPECT_EQ(table.Take(1), &pendings[0]);
  EXPECT_EQ(table.Take(1), nullptr);
  EXPECT_EQ(table.Take(1 + 2 * proto::kRequestsOutstandingMax), &pendings[1]);
  EXPECT_EQ(table.Take(0), nullptr);
}

RC_GTEST_PROP(PendingTable, AgreesWithAMap, ()) {
  PendingTable table;
  std::map<uint64_t, Pending*> model;
  std::deque<Pending> pendings(proto::kRequestsOutstandingMax);
  uint64_t sequence = 1;
  for (int i = 0; i < 400; ++i) {
    // Runs of requests, some of which stay for long: sequences far apart share homes.
    if (model.size() < pendings.size() && *rc::gen::inRange(0, 3) > 0) {
      Pending* const pending = &pendings[sequence % pendings.size()];
      table.Insert(sequence, pending);
      model[sequence] = pending;
      sequence += *rc::gen::element(1, 1, 1, 2047, 2048, 2049);
    } else if (!model.empty()) {
      const auto victim = std::next(model.begin(), *rc::gen::inRange<int>(0, static_cast<int>(model.size())));
      RC_ASSERT(table.Take(victim->first) == victim->second);
      model.erase(victim);
    }
  }
  for (const auto& [key, value] : model) RC_ASSERT(table.Take(key) == value);
}

}  // namespace
}  // namespace tier::client

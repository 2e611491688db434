// Owners by name in refusals: which numbers are named, and for whom.
#include "daemon/session/owner_words.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/session/control_callers.h"
#include "tests/support/session/session_world.h"
#include "tests/support/session/temporary_directory.h"

namespace tier::session {
namespace {

using ::testing::HasSubstr;
using testing::kAdmin;
using testing::SessionWorld;

class OwnerWords : public ::testing::Test {
 protected:
  std::string ForAdmin(const std::string& text) const { return NameOwners(text, &table_, std::nullopt); }

  testing::TemporaryDirectory directory_;
  OwnerTable table_{directory_.path() + "/owners", {}};
  const uint32_t a_ = table_.Open("pod-a").value();  // 4026531840.
  const uint32_t b_ = table_.Open("pod-2").value();
};

TEST_F(OwnerWords, AreTheNamesOfUsersAndOfTheirJobs) {
  EXPECT_EQ(ForAdmin("user 4026531840 may have 1 GiB (the quota of user 4026531840, set at run time)"),
            "owner pod-a may have 1 GiB (the quota of owner pod-a, set at run time)");
  EXPECT_EQ(ForAdmin("uid 4026531841 has 2 jobs"), "owner pod-2 has 2 jobs");
  EXPECT_EQ(ForAdmin("tierctl job remove --purge 4026531840/JOB"), "tierctl job remove --purge pod-a/JOB");
  EXPECT_EQ(ForAdmin("4026531840/train, '4026531841/7' (4026531840/x)"), "pod-a/train, 'pod-2/7' (pod-a/x)");
  EXPECT_EQ(ForAdmin("user 4026531840"), "owner pod-a");
  EXPECT_EQ(ForAdmin(""), "");
}

TEST_F(OwnerWords, LeaveOtherNumbersAsTheyAre) {
  for (const char* const text :
       {"user 1000 has 4 GiB; user 4026531842 has none", "4026531840 bytes of RAM", "user 40265318401", "tensor 5",
        "user 14026531840/train", "a/4026531840/b", "uid 99999999999999999999999", "4026531840", "pod-4026531840/x"}) {
    EXPECT_EQ(ForAdmin(text), text);
  }
  EXPECT_EQ(NameOwners("user 4026531840", nullptr, std::nullopt), "user 4026531840");
}

TEST_F(OwnerWords, TellAnOwnerItsOwnNameAlone) {
  const std::string text = "user 4026531840 has 1 MiB, user 4026531841 has 2 MiB";
  EXPECT_EQ(NameOwners(text, &table_, a_), "owner pod-a has 1 MiB, user 4026531841 has 2 MiB");
  EXPECT_EQ(NameOwners(text, &table_, b_), "user 4026531840 has 1 MiB, owner pod-2 has 2 MiB");
  EXPECT_EQ(NameOwners(text, &table_, 1000U), text);
}

class RefusedOwner : public OwnerWords {
 protected:
  SessionWorld world_{{.jobs = {.jobs_per_uid_max = 1}, .owners = &table_}};
};

TEST_F(RefusedOwner, IsNamedInTheAnswerToARequest) {
  const OwnerSocket socket = world_.control().OpenSocket(kAdmin, "pod-a").value();
  testing::DataClient client(socket.directory + "/tierd.sock");
  ASSERT_EQ(client.Attach(testing::MakeHello("one")).code, 0);
  world_.OnEngine([&] {
    world_.engine.answer = [](const testing::SubmittedRequest&) {
      return testing::ScriptedReply{.code = Code::kNoMemory,
                                    .error = {.requested = 7},
                                    .detail = "user 4026531840 may have 1 MiB, user 4026531841 has the rest"};
    };
  });
  const proto::RequestItem item{.tensor = 1};
  ASSERT_TRUE(client.ring().Send(proto::Op::kFree, {&item, 1}));
  client.Ring();
  const auto answers = client.WaitForCompletions(1);
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_EQ(answers.front().detail, "owner pod-a may have 1 MiB, user 4026531841 has the rest");
  EXPECT_EQ(answers.front().error.requested, 7U);
}

TEST_F(RefusedOwner, IsNamedInAHandshakeAndToAdministrators) {
  const OwnerSocket socket = world_.control().OpenSocket(kAdmin, "pod-a").value();
  testing::DataClient first(socket.directory + "/tierd.sock");
  ASSERT_EQ(first.Attach(testing::MakeHello("one")).code, 0);
  testing::DataClient second(socket.directory + "/tierd.sock");
  ASSERT_TRUE(second.Send(testing::MakeHello("two")));
  EXPECT_THAT(second.ReceiveRefusal().message, HasSubstr("owner pod-a has 1 job"));
  const auto refused = world_.control().OpenJob(kAdmin, {.name = "two", .owner = a_});
  ASSERT_FALSE(refused);
  EXPECT_THAT(world_.control().NameOwners(kAdmin, refused.error().message), HasSubstr("owner pod-a has 1 job"));
  EXPECT_THAT(world_.control().NameOwners({.uid = b_}, refused.error().message), HasSubstr("uid 4026531840 has 1 job"));
}

}  // namespace
}  // namespace tier::session

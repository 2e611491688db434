// The sockets of owners, as tables show them and their jobs.
#include "tools/tierctl/socket_verbs.h"

#include <gtest/gtest.h>

#include "tools/tierctl/quota_verbs.h"

namespace tier::tierctl {
namespace {

TEST(SocketVerbs, ShowsOwnersWithTheirFolders) {
  v1::ListSocketsResponse answer;
  v1::OwnerSocket* first = answer.add_sockets();
  first->set_owner("pod-a");
  first->set_uid(4026531840);
  first->set_directory("/run/tierd/owners/pod-a");
  first->set_open(true);
  v1::OwnerSocket* second = answer.add_sockets();
  second->set_owner("b");
  second->set_uid(4026531841);
  second->set_directory("/run/tierd/owners/b");
  EXPECT_EQ(RenderSockets(answer, {}),
            "OWNER         UID  STATE   DIRECTORY\n"
            "pod-a  4026531840  open    /run/tierd/owners/pod-a\n"
            "b      4026531841  closed  /run/tierd/owners/b\n");
}

TEST(SocketVerbs, AnOwnerIsShownByItsName) {
  EXPECT_EQ(UserText(1000, ""), "1000");
  EXPECT_EQ(UserText(4026531840, "pod-a"), "pod-a");
  v1::ListQuotasResponse answer;
  v1::QuotaUse* use = answer.add_uses();
  use->set_uid(4026531840);
  use->set_owner("pod-a");
  EXPECT_NE(RenderUses(answer, {}).find("pod-a"), std::string::npos);
}

}  // namespace
}  // namespace tier::tierctl

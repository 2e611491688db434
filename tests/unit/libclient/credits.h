// Requests that use up a channel's credits, so that a test decides when the next request finds room.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "libclient/client/channel.h"

namespace tier::session_fake {

using Requested = std::vector<client::Pending*>;

// Requests of another tensor whose answers are not taken, until `left` credits of the class are free.
inline Requested UseCredits(client::Channel& channel, client::Credit credit, uint32_t left) {
  const proto::RequestItem other{.tensor = 99};
  Requested requests(client::QuotaOf(credit) - left);
  for (auto& request : requests) {
    request = channel.TrySubmit({.op = proto::Op::kFlush, .items = {&other, 1}}, credit, nullptr).value();
    EXPECT_NE(request, nullptr);
  }
  return requests;
}

// Takes the answers: their credits are free again.
inline void Take(client::Channel& channel, const Requested& requests) {
  for (client::Pending* request : requests) {
    EXPECT_TRUE(channel.Wait(request));
    channel.Finish(request);
  }
}

}  // namespace tier::session_fake

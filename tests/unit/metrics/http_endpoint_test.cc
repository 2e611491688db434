// Pages over HTTP, and that no slow reader keeps another from its page.
#include "daemon/metrics/http_endpoint.h"

#include <future>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/metrics/http_client.h"

namespace tier::metrics {
namespace {

using ::testing::AllOf;
using testing::Ask;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using testing::HttpClient;
using ::testing::StartsWith;

constexpr char kGet[] = "GET /page HTTP/1.1\r\nHost: x\r\n\r\n";

std::unique_ptr<HttpEndpoint> Serve(HttpLimits limits = {}, size_t bytes = 4) {
  auto endpoint = HttpEndpoint::Listen("127.0.0.1:0", limits);
  EXPECT_TRUE(endpoint) << endpoint.error().message;
  EXPECT_TRUE((*endpoint)->Start([bytes](std::string_view path) -> HttpPage {
    if (path != "/page") return {.status = 404, .type = "text/plain", .body = "none"};
    return {.type = "text/plain", .body = std::string(bytes, 'x')};
  }));
  return std::move(*endpoint);
}

TEST(HttpEndpoint, ServesAPageWithoutItsQuery) {
  const auto endpoint = Serve();
  EXPECT_THAT(
      Ask(endpoint->port(), "GET", "/page?x=1"),
      AllOf(StartsWith("HTTP/1.1 200 OK\r\n"), HasSubstr("Content-Type: text/plain\r\n"), EndsWith("\r\n\r\nxxxx")));
  EXPECT_THAT(Ask(endpoint->port(), "GET", "/other"), StartsWith("HTTP/1.1 404 "));
}

TEST(HttpEndpoint, AnswersHeadWithTheHeaderAlone) {
  const auto endpoint = Serve();
  EXPECT_THAT(Ask(endpoint->port(), "HEAD", "/page"),
              AllOf(StartsWith("HTTP/1.1 200 OK\r\n"), HasSubstr("Content-Length: 4\r\n"), EndsWith("\r\n\r\n")));
}

TEST(HttpEndpoint, RefusesOtherMethodsAndWhatIsNoHttp) {
  const auto endpoint = Serve();
  EXPECT_THAT(Ask(endpoint->port(), "POST", "/page"),
              AllOf(StartsWith("HTTP/1.1 405 "), HasSubstr("Allow: GET, HEAD\r\n")));
  HttpClient client(endpoint->port());
  EXPECT_TRUE(client.Send("\x16\x03\x01\x02 this is TLS\r\n\r\n"));
  EXPECT_THAT(client.ReadToEnd(), StartsWith("HTTP/1.1 400 "));
}

TEST(HttpEndpoint, RefusesAHeaderWithoutEnd) {
  const auto endpoint = Serve();
  HttpClient client(endpoint->port());
  EXPECT_TRUE(client.Send("GET /page HTTP/1.1\r\nX: " + std::string(9'000, 'x')));
  EXPECT_THAT(client.ReadToEnd(), StartsWith("HTTP/1.1 400 "));
}

TEST(HttpEndpoint, KeepsAConnectionForTheNextScrape) {
  const auto endpoint = Serve();
  HttpClient client(endpoint->port());
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(client.Send(kGet));
    EXPECT_THAT(client.ReadAnswer(), EndsWith("xxxx"));
  }
}

TEST(HttpEndpoint, HalfSentRequestsKeepNoOtherWaiting) {
  const auto endpoint = Serve();
  std::vector<HttpClient> slow;
  for (int i = 0; i < 224; ++i) {
    ASSERT_TRUE(slow.emplace_back(endpoint->port()).Send("GET /page HT"));
    if (i % 50 != 0) continue;
    EXPECT_THAT(Ask(endpoint->port(), "GET", "/page"), EndsWith("xxxx"));
  }
  EXPECT_THAT(Ask(endpoint->port(), "GET", "/page"), EndsWith("xxxx"));
  EXPECT_GE(endpoint->closed_for_others(), 224u - HttpLimits().connections_max);
}

TEST(HttpEndpoint, AnswersThatAreNotReadKeepNoOtherWaiting) {
  const auto endpoint = Serve({}, 16 << 20);  // More than the buffers of both sockets hold.
  std::vector<HttpClient> slow;
  for (int i = 0; i < 8; ++i) ASSERT_TRUE(slow.emplace_back(endpoint->port(), 4096).Send(kGet));
  EXPECT_EQ(Ask(endpoint->port(), "GET", "/page").size() >> 20, 16u);
}

TEST(HttpEndpoint, TheOneThatHasWaitedLongestGoesForOneMore) {
  const auto endpoint = Serve({.connections_max = 2});
  HttpClient first(endpoint->port());
  HttpClient second(endpoint->port());
  for (HttpClient* client : {&first, &second, &first}) {  // Now the second one's last answer is the oldest.
    ASSERT_TRUE(client->Send(kGet));
    EXPECT_THAT(client->ReadAnswer(), EndsWith("xxxx"));
  }
  HttpClient third(endpoint->port());
  ASSERT_TRUE(third.Send(kGet));
  EXPECT_THAT(third.ReadAnswer(), EndsWith("xxxx"));
  EXPECT_EQ(second.ReadToEnd(), "") << "it was closed";
  ASSERT_TRUE(first.Send(kGet));
  EXPECT_THAT(first.ReadAnswer(), EndsWith("xxxx"));
  EXPECT_EQ(endpoint->closed_for_others(), 1u);
}

TEST(HttpEndpoint, ARequestThatDoesNotComeIsNotWaitedForLonger) {
  const auto endpoint = Serve({.request_max = std::chrono::milliseconds(1)});
  HttpClient client(endpoint->port());
  EXPECT_EQ(client.ReadToEnd(), "");
  EXPECT_EQ(endpoint->closed_for_others(), 0u);
}

TEST(HttpEndpoint, EndsWithConnectionsOpen) {
  auto endpoint = Serve();
  HttpClient idle(endpoint->port());
  HttpClient half(endpoint->port());
  ASSERT_TRUE(half.Send("GET /pa"));
  ASSERT_TRUE(idle.Send(kGet));
  EXPECT_THAT(idle.ReadAnswer(), EndsWith("xxxx"));
  endpoint.reset();
  EXPECT_EQ(idle.ReadToEnd() + half.ReadToEnd(), "");
}

TEST(HttpEndpoint, MovesToAnotherAddressWithWhatItServes) {
  const auto endpoint = Serve();
  const uint16_t before = endpoint->port();
  HttpClient idle(before);
  ASSERT_TRUE(idle.Send(kGet));
  EXPECT_THAT(idle.ReadAnswer(), EndsWith("xxxx"));
  ASSERT_TRUE(endpoint->Move("127.0.0.1:0"));
  EXPECT_NE(endpoint->port(), before);
  EXPECT_EQ(endpoint->address(), "127.0.0.1:" + std::to_string(endpoint->port()));
  EXPECT_THAT(Ask(endpoint->port(), "GET", "/page"), EndsWith("xxxx"));
  EXPECT_FALSE(HttpClient(before).connected());
  EXPECT_EQ(idle.ReadToEnd(), "") << "it was closed";
  EXPECT_EQ(endpoint->closed_for_others(), 0u);
}

TEST(HttpEndpoint, MovesToAnotherAddressOfItsPort) {
  const auto endpoint = Serve();
  const std::string port = ":" + std::to_string(endpoint->port());
  for (const char* host : {"0.0.0.0", "127.0.0.1", "0.0.0.0"}) {
    HttpClient idle(endpoint->port());
    ASSERT_TRUE(idle.Send(kGet));
    EXPECT_THAT(idle.ReadAnswer(), EndsWith("xxxx"));
    const Status moved = endpoint->Move(host + port);
    ASSERT_TRUE(moved) << host << ": " << moved.error().message;
    EXPECT_EQ(idle.ReadToEnd(), "") << "the old address is closed";
    EXPECT_EQ(endpoint->address(), host + port);
    EXPECT_TRUE(endpoint->Move(host + port)) << "it is there";
    EXPECT_THAT(Ask(endpoint->port(), "GET", "/page"), EndsWith("xxxx"));
    EXPECT_FALSE(HttpEndpoint::Listen("127.0.0.1" + port)) << "the port is its own";
  }
}

TEST(HttpEndpoint, AMoveThatIsRefusedChangesNothing) {
  const auto endpoint = Serve();
  const auto other = Serve();
  const std::string before = endpoint->address();
  for (const std::string& listen : {other->address(), std::string("localhost:0"), std::string("192.0.2.1:0")}) {
    const Status refused = endpoint->Move(listen);
    ASSERT_FALSE(refused) << listen;
    EXPECT_EQ(refused.error().code, Code::kInvalid);
    EXPECT_EQ(endpoint->address(), before);
    EXPECT_THAT(Ask(endpoint->port(), "GET", "/page"), EndsWith("xxxx"));
  }
}

TEST(HttpEndpoint, ServesNowhereAndThenAgain) {
  const auto endpoint = Serve();
  const uint16_t before = endpoint->port();
  HttpClient idle(before);
  ASSERT_TRUE(idle.Send(kGet));
  EXPECT_THAT(idle.ReadAnswer(), EndsWith("xxxx"));
  ASSERT_TRUE(endpoint->Move(""));
  EXPECT_EQ(idle.ReadToEnd(), "") << "it was closed";
  EXPECT_EQ(endpoint->address(), "");
  EXPECT_EQ(endpoint->port(), 0);
  EXPECT_FALSE(HttpClient(before).connected());
  ASSERT_TRUE(endpoint->Move("127.0.0.1:0"));
  EXPECT_THAT(Ask(endpoint->port(), "GET", "/page"), EndsWith("xxxx"));
}

TEST(HttpEndpoint, MovesBackWhileAPageIsBeingMade) {
  std::promise<void> asked;
  std::promise<void> made;
  const auto endpoint = HttpEndpoint::Listen("127.0.0.1:0").value();
  ASSERT_TRUE(endpoint->Start([&, first = true](std::string_view) mutable -> HttpPage {
    if (std::exchange(first, false)) {
      asked.set_value();
      made.get_future().wait();
    }
    return {.type = "text/plain", .body = "xxxx"};
  }));
  const std::string before = endpoint->address();
  const std::string port = ":" + std::to_string(endpoint->port());
  HttpClient busy(endpoint->port());
  ASSERT_TRUE(busy.Send(kGet));
  asked.get_future().wait();
  for (const std::string& listen : {std::string(), before, std::string("127.0.0.1:0"), before, "0.0.0.0" + port, before,
                                    std::string(), before}) {
    const Status moved = endpoint->Move(listen);
    EXPECT_TRUE(moved) << listen << ": " << moved.error().message;
  }
  EXPECT_EQ(endpoint->address(), before);
  made.set_value();
  EXPECT_THAT(Ask(endpoint->port(), "GET", "/page"), EndsWith("xxxx"));
  EXPECT_EQ(endpoint->closed_for_others(), 0u);
}

TEST(HttpEndpoint, KnowsANameFromAnAddress) {
  for (const char* name : {"localhost:9464", "node-1:0", "[node]:1"}) EXPECT_TRUE(NamesAHost(name)) << name;
  for (const char* none : {"127.0.0.1:9464", "[::1]:0", "[fe80::1]:9464", "", "9464"})
    EXPECT_FALSE(NamesAHost(none)) << none;
}

TEST(HttpEndpoint, OneThatIsNotStartedEnds) { EXPECT_TRUE(HttpEndpoint::Listen("127.0.0.1:0")); }

TEST(HttpEndpoint, ListensOnIpv6) {
  const auto endpoint = HttpEndpoint::Listen("[::1]:0");
  if (!endpoint) GTEST_SKIP() << "needs IPv6 on loopback: " << endpoint.error().message;
  EXPECT_EQ((*endpoint)->address(), "[::1]:" + std::to_string((*endpoint)->port()));
}

}  // namespace
}  // namespace tier::metrics

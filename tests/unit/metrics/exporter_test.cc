#include "daemon/metrics/exporter.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

#include <gtest/gtest.h>

#include "proto/mapping.h"
#include "tests/support/control/fake_control_api.h"

namespace tier::metrics {
namespace {

std::string Get(uint16_t port, const std::string& path) {
  const proto::FileDescriptor fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) return {};
  const std::string request = "GET " + path + " HTTP/1.0\r\n\r\n";
  if (::write(fd.get(), request.data(), request.size()) != static_cast<ssize_t>(request.size())) return {};
  std::string answer;
  char buffer[4096];
  for (ssize_t n = 0; (n = ::read(fd.get(), buffer, sizeof(buffer))) > 0;)
    answer.append(buffer, static_cast<size_t>(n));
  return answer;
}

TEST(Exporter, ServesTheDaemonsFiguresOnAFreePort) {
  test::FakeControlApi api;
  api.description.engine.arena_bytes = 4711;
  const auto exporter = Exporter::Start("127.0.0.1:0", api);
  ASSERT_TRUE(exporter) << exporter.error().message;
  ASSERT_NE((*exporter)->port(), 0);
  const std::string page = Get((*exporter)->port(), "/metrics");
  EXPECT_NE(page.find("200 OK"), std::string::npos);
  EXPECT_NE(page.find("tierd_arena_bytes 4711"), std::string::npos) << page;
  EXPECT_TRUE(api.callers.back().admin) << "operators see every job";
}

TEST(Exporter, AnAddressInUseIsNamed) {
  test::FakeControlApi api;
  const auto first = Exporter::Start("127.0.0.1:0", api);
  ASSERT_TRUE(first);
  const std::string taken = "127.0.0.1:" + std::to_string((*first)->port());
  const auto second = Exporter::Start(taken, api);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Code::kInvalid);
  EXPECT_NE(second.error().message.find(taken), std::string::npos);
  EXPECT_NE(second.error().message.find("metrics.listen"), std::string::npos);
}

TEST(Exporter, NonsenseIsRefused) {
  test::FakeControlApi api;
  for (const char* listen : {"nonsense", "127.0.0.1:99999", "256.1.1.1:0"}) {
    EXPECT_FALSE(Exporter::Start(listen, api)) << listen;
  }
}

}  // namespace
}  // namespace tier::metrics

// Where metrics are served, before and after another address is taken.
#include "daemon/metrics_server.h"

#include <filesystem>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/control/fake_control_api.h"
#include "tests/support/session/temporary_directory.h"
#include "tests/unit/metrics/http_client.h"

namespace tier {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

uint16_t PortOf(const std::string& address) {
  return static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1)));
}

class MetricsServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(server_.Open("127.0.0.1:0"));
    ASSERT_TRUE(server_.Start(api_));
  }
  std::string PortFile() {
    std::string text;
    std::ifstream(directory_.path() + "/metrics.port") >> text;
    return text;
  }
  static bool Serves(const std::string& address) {
    return metrics::testing::Ask(PortOf(address), "GET", "/healthz").starts_with("HTTP/1.1 200");
  }

  session::testing::TemporaryDirectory directory_;
  test::FakeControlApi api_;
  MetricsServer server_{directory_.path()};
};

TEST_F(MetricsServerTest, MovesToAnotherAddress) {
  const std::string first = server_.address();
  EXPECT_THAT(first, StartsWith("127.0.0.1:"));
  EXPECT_EQ(PortFile(), std::to_string(PortOf(first)));
  EXPECT_TRUE(Serves(first));
  ASSERT_TRUE(server_.Prepare("127.0.0.2:0"));
  EXPECT_EQ(server_.address(), first) << "until it is committed";
  EXPECT_TRUE(Serves(first));
  server_.Commit();
  EXPECT_THAT(server_.address(), StartsWith("127.0.0.2:"));
  EXPECT_EQ(PortFile(), std::to_string(PortOf(server_.address())));
}

TEST_F(MetricsServerTest, AnAddressThatIsTakenChangesNothing) {
  MetricsServer other(directory_.path() + "/other");
  ASSERT_TRUE(other.Open("127.0.0.1:0"));
  const std::string first = server_.address();
  const Status refused = server_.Prepare(other.address());
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("set metrics.listen to a free address"));
  server_.Commit();
  EXPECT_EQ(server_.address(), first);
  EXPECT_TRUE(Serves(first));
}

TEST_F(MetricsServerTest, TheSameAddressStaysAsItIs) {
  const std::string first = server_.address();
  ASSERT_TRUE(server_.Prepare("127.0.0.1:0")) << "any free port: it has one";
  server_.Commit();
  EXPECT_EQ(server_.address(), first);
}

TEST_F(MetricsServerTest, MayEndAndBeginAgain) {
  ASSERT_TRUE(server_.Prepare(""));
  server_.Commit();
  EXPECT_EQ(server_.address(), "");
  EXPECT_FALSE(std::filesystem::exists(directory_.path() + "/metrics.port"));
  ASSERT_TRUE(server_.Prepare("127.0.0.1:0"));
  server_.Commit();
  EXPECT_TRUE(Serves(server_.address()));
  server_.Close();
  EXPECT_FALSE(std::filesystem::exists(directory_.path() + "/metrics.port"));
}

}  // namespace
}  // namespace tier

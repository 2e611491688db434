// Where metrics are served, and the file that says so.
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
  std::string PortFile() const { return directory_.path() + "/metrics.port"; }
  std::string WrittenPort() const {
    std::string port;
    std::ifstream(PortFile()) >> port;
    return port;
  }
  static bool Serves(const std::string& address) {
    return metrics::testing::Ask(PortOf(address), "GET", "/healthz").starts_with("HTTP/1.1 200");
  }

  session::testing::TemporaryDirectory directory_;
  test::FakeControlApi api_;
  MetricsServer server_{directory_.path()};
};

TEST_F(MetricsServerTest, ServesUntilItIsClosedAndSaysWhere) {
  ASSERT_TRUE(server_.Open("127.0.0.1:0"));
  ASSERT_TRUE(server_.Start(api_));
  EXPECT_THAT(server_.address(), StartsWith("127.0.0.1:"));
  EXPECT_TRUE(Serves(server_.address()));
  EXPECT_EQ(WrittenPort(), std::to_string(PortOf(server_.address())));
  server_.Close();
  EXPECT_FALSE(std::filesystem::exists(PortFile()));
}

TEST_F(MetricsServerTest, AnAddressThatIsTakenIsRefused) {
  ASSERT_TRUE(server_.Open("127.0.0.1:0"));
  const session::testing::TemporaryDirectory elsewhere;
  MetricsServer other(elsewhere.path());
  const Status refused = other.Open(server_.address());
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("set metrics.listen to a free address"));
  EXPECT_EQ(other.address(), "");
  EXPECT_FALSE(std::filesystem::exists(elsewhere.path() + "/metrics.port"));
}

TEST_F(MetricsServerTest, OneThatNeedNotBeHadIsTriedAgainByTheNextMove) {
  ASSERT_TRUE(server_.Open("127.0.0.1:0"));
  const std::string taken = server_.address();
  const session::testing::TemporaryDirectory elsewhere;
  MetricsServer other(elsewhere.path());
  ASSERT_TRUE(other.Open(taken, false));
  ASSERT_TRUE(other.Start(api_));
  EXPECT_EQ(other.address(), "");
  ASSERT_TRUE(other.Move(taken, false));
  EXPECT_EQ(other.address(), "") << "it is taken yet";
  const session::testing::TemporaryDirectory third_place;
  MetricsServer third(third_place.path());
  ASSERT_TRUE(third.Open("127.0.0.1:0"));
  ASSERT_TRUE(third.Start(api_));
  EXPECT_FALSE(third.Move(taken, false)) << "else it would go on at an address that is no longer asked for";
  server_.Close();
  ASSERT_TRUE(other.Move(taken, false));
  EXPECT_EQ(other.address(), taken);
  EXPECT_TRUE(Serves(taken));
}

TEST_F(MetricsServerTest, MovesAndSaysWhere) {
  ASSERT_TRUE(server_.Open("127.0.0.1:0"));
  ASSERT_TRUE(server_.Start(api_));
  const std::string before = server_.address();
  ASSERT_TRUE(server_.Move("127.0.0.1:0"));
  EXPECT_EQ(server_.address(), before) << "nothing else was asked for";
  ASSERT_TRUE(server_.Move(before));
  EXPECT_TRUE(Serves(before));
  ASSERT_TRUE(server_.Move("127.0.0.1:0"));
  const std::string after = server_.address();
  EXPECT_NE(after, before);
  EXPECT_TRUE(Serves(after));
  EXPECT_EQ(WrittenPort(), std::to_string(PortOf(after)));
  ASSERT_TRUE(server_.Move(""));
  EXPECT_EQ(server_.address(), "");
  EXPECT_FALSE(std::filesystem::exists(PortFile()));
}

TEST_F(MetricsServerTest, AMoveThatIsRefusedChangesNothing) {
  ASSERT_TRUE(server_.Open("127.0.0.1:0"));
  ASSERT_TRUE(server_.Start(api_));
  const std::string before = server_.address();
  const session::testing::TemporaryDirectory elsewhere;
  MetricsServer other(elsewhere.path());
  ASSERT_TRUE(other.Open("127.0.0.1:0"));
  for (const std::string& listen : {other.address(), std::string("localhost:0")}) {
    const Status refused = server_.Move(listen);
    ASSERT_FALSE(refused);
    EXPECT_THAT(refused.error().message, HasSubstr("metrics.listen"));
    EXPECT_EQ(server_.address(), before);
    EXPECT_TRUE(Serves(before));
    EXPECT_EQ(WrittenPort(), std::to_string(PortOf(before)));
  }
}

TEST_F(MetricsServerTest, BeginsToServeWhereItServedNowhere) {
  ASSERT_TRUE(server_.Open(""));
  ASSERT_TRUE(server_.Start(api_));
  EXPECT_FALSE(server_.Move("localhost:0"));
  EXPECT_EQ(server_.address(), "");
  ASSERT_TRUE(server_.Move("127.0.0.1:0"));
  EXPECT_TRUE(Serves(server_.address()));
  EXPECT_EQ(WrittenPort(), std::to_string(PortOf(server_.address())));
}

TEST_F(MetricsServerTest, WithoutAnAddressNothingIsServed) {
  ASSERT_TRUE(server_.Open(""));
  ASSERT_TRUE(server_.Start(api_));
  EXPECT_EQ(server_.address(), "");
  EXPECT_FALSE(std::filesystem::exists(PortFile()));
}

}  // namespace
}  // namespace tier

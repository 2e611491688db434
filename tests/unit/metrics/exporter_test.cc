// What a daemon serves over HTTP.
#include "daemon/metrics/exporter.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/control/fake_control_api.h"
#include "tests/unit/metrics/http_client.h"

namespace tier::metrics {
namespace {

using ::testing::AllOf;
using testing::Ask;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class ExporterTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto exporter = Exporter::Listen("127.0.0.1:0");
    ASSERT_TRUE(exporter) << exporter.error().message;
    exporter_ = std::move(*exporter);
    ASSERT_NE(exporter_->port(), 0);
    EXPECT_EQ(exporter_->address(), "127.0.0.1:" + std::to_string(exporter_->port()));
    ASSERT_TRUE(exporter_->Start(api_));
  }

  test::FakeControlApi api_;
  std::unique_ptr<Exporter> exporter_;
};

TEST_F(ExporterTest, ServesTheDaemonsFiguresAndNothingElse) {
  api_.description.engine.arena_bytes = 4711;
  api_.jobs = {{.id = 1, .name = "tuning", .uid = 1000}};
  const std::string page = Ask(exporter_->port(), "GET", "/metrics");
  EXPECT_THAT(page, AllOf(HasSubstr("200 OK"), HasSubstr("version=0.0.4"), HasSubstr("tierd_arena_bytes 4711")));
  EXPECT_THAT(page, Not(HasSubstr("exposer"))) << "figures of a library, without our prefix";
  EXPECT_THAT(page, HasSubstr("tierd_job=\"tuning\",uid=\"1000\"")) << "operators see every job";
}

TEST_F(ExporterTest, AnswersAHeadOfTheMetrics) {
  EXPECT_THAT(Ask(exporter_->port(), "HEAD", "/metrics"),
              AllOf(StartsWith("HTTP/1.1 200 OK"), Not(HasSubstr("tierd_arena_bytes"))));
}

// A page without figures would leave `up` at 1, and each alert quiet.
TEST_F(ExporterTest, SaysWhetherTheEngineAnswers) {
  EXPECT_THAT(Ask(exporter_->port(), "GET", "/healthz"), AllOf(StartsWith("HTTP/1.1 200 "), EndsWith("\r\n\r\nok\n")));
  api_.stopping = true;
  for (const char* const path : {"/healthz", "/metrics"}) {
    EXPECT_THAT(Ask(exporter_->port(), "GET", path),
                AllOf(StartsWith("HTTP/1.1 503 "), EndsWith("tierd is stopping\n")));
  }
}

// A probe that restarts a daemon for its answer would end its jobs; who reads the answer is told all the same.
TEST_F(ExporterTest, SaysWhatIsDegradedAndServesOn) {
  api_.description.engine.index_failure = "the index /d/index.mdb was cut short";
  api_.description.engine.missing = {{.path = "/dev/b", .reason = "gone"}, {.path = "/dev/c", .reason = "gone"}};
  EXPECT_THAT(Ask(exporter_->port(), "GET", "/healthz"),
              AllOf(StartsWith("HTTP/1.1 200 "), EndsWith("\r\n\r\ndegraded: index, missing_device\n")));
}

TEST_F(ExporterTest, NamesItsPages) {
  EXPECT_THAT(Ask(exporter_->port(), "GET", "/"), AllOf(StartsWith("HTTP/1.1 200 "), HasSubstr("href=\"/metrics\"")));
  EXPECT_THAT(Ask(exporter_->port(), "GET", "/metric"), AllOf(StartsWith("HTTP/1.1 404 "), HasSubstr("/metrics")));
}

TEST_F(ExporterTest, AnAddressInUseIsNamed) {
  const auto second = Exporter::Listen(exporter_->address());
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Code::kInvalid);
  EXPECT_THAT(second.error().message,
              AllOf(HasSubstr(exporter_->address()), HasSubstr("in use"), HasSubstr("metrics.listen")));
}

TEST(Exporter, NonsenseIsRefused) {
  for (const char* listen : {"nonsense", "127.0.0.1:99999", "127.0.0.1:", "256.1.1.1:0", "[::1:0"}) {
    EXPECT_FALSE(Exporter::Listen(listen)) << listen;
  }
}

}  // namespace
}  // namespace tier::metrics

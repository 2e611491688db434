// Pages as NVMe devices give them (NVM Express Base Specification, log page 0x02), and as none does.
#include "daemon/storage/smart_log.h"

#include <array>
#include <cstddef>
#include <limits>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tier::storage {
namespace {

using ::testing::HasSubstr;

using Page = std::vector<std::byte>;

void Put(Page* page, size_t at, uint64_t number, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) page->at(at + i) = static_cast<std::byte>(number >> (8 * i));
}

// A data-centre drive after some months: 38 °C, 2 % used, 1,234,567 data units written.
Page Usual() {
  Page page(kSmartLogBytes);
  Put(&page, 1, 311, 2);
  Put(&page, 3, 100, 1);
  Put(&page, 4, 10, 1);
  Put(&page, 5, 2, 1);
  Put(&page, 32, 7'654'321, 8);  // Data units read.
  Put(&page, 48, 1'234'567, 8);  // … written.
  Put(&page, 112, 42, 8);        // Power cycles.
  Put(&page, 160, 3, 8);         // Media errors.
  return page;
}

std::string Refused(const Page& page) {
  const auto figures = ParseSmartLog(page);
  if (figures) return "taken";
  EXPECT_EQ(figures.error().code, Code::kCorrupt);
  return figures.error().message;
}

TEST(SmartLog, AUsualPageIsRead) {
  const auto figures = ParseSmartLog(Usual());
  ASSERT_TRUE(figures);
  EXPECT_EQ(*figures, (SmartFigures{.warnings = 0,
                                    .temperature_kelvin = 311,
                                    .available_spare = 100,
                                    .spare_threshold = 10,
                                    .percentage_used = 2,
                                    .written_bytes = 1'234'567ull * 512'000,
                                    .media_errors = 3}));
}

TEST(SmartLog, EachWarningHasItsBitAndLaterBitsAreLeftOut) {
  for (size_t bit = 0; bit < 8; ++bit) {
    Page page = Usual();
    page[0] = static_cast<std::byte>(1u << bit);
    const auto figures = ParseSmartLog(page);
    ASSERT_TRUE(figures) << "bit " << bit;
    for (size_t i = 0; i < kSmartWarnings; ++i) {
      EXPECT_EQ(figures->warns(static_cast<SmartWarning>(i)), i == bit) << "bit " << bit;
    }
  }
  EXPECT_STREQ(SmartWarningName(SmartWarning::kReadOnly), "read_only");
}

TEST(SmartLog, ATornPageIsRefused) {
  Page page = Usual();
  page.pop_back();
  EXPECT_THAT(Refused(page), HasSubstr("511 bytes"));
  EXPECT_THAT(Refused({}), HasSubstr("0 bytes"));
  page.resize(kSmartLogBytes + 1);
  EXPECT_THAT(Refused(page), HasSubstr("513 bytes"));
}

TEST(SmartLog, APageThatNoDeviceMeansIsRefused) {
  EXPECT_THAT(Refused(Page(kSmartLogBytes)), HasSubstr("empty"));
  EXPECT_THAT(Refused(Page(kSmartLogBytes, std::byte{0xff})), HasSubstr("255 % of its spare"));
  Page page = Usual();
  Put(&page, 3, 101, 1);
  EXPECT_THAT(Refused(page), HasSubstr("101 % of its spare"));
  page = Usual();
  Put(&page, 4, 200, 1);
  EXPECT_THAT(Refused(page), HasSubstr("threshold of 200 %"));
}

TEST(SmartLog, ATemperatureThatIsNotToldOrCannotBeIsNoneAndTheWarningsStay) {
  for (const unsigned kelvin : {0u, 1u, 172u, 474u, 0xffffu}) {
    Page page = Usual();
    Put(&page, 1, kelvin, 2);
    page[0] = std::byte{1u << static_cast<unsigned>(SmartWarning::kReadOnly)};
    const auto figures = ParseSmartLog(page);
    ASSERT_TRUE(figures) << kelvin << " K";
    EXPECT_EQ(figures->temperature_kelvin, 0);
    EXPECT_TRUE(figures->warns(SmartWarning::kReadOnly));
  }
  Page page = Usual();
  for (const unsigned kelvin : {173u, 473u}) {
    Put(&page, 1, kelvin, 2);
    EXPECT_EQ(ParseSmartLog(page)->temperature_kelvin, kelvin);
  }
}

TEST(SmartLog, CountersThatDoNotFitAreTheLargestNumber) {
  constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max();
  Page page = Usual();
  Put(&page, 160, kMost, 8);
  Put(&page, 168, 1, 8);
  Put(&page, 48, kMost / 512'000 + 1, 8);
  auto figures = ParseSmartLog(page);
  EXPECT_EQ(figures->media_errors, kMost);
  EXPECT_EQ(figures->written_bytes, kMost);
  Put(&page, 48, kMost / 512'000, 8);
  EXPECT_EQ(ParseSmartLog(page)->written_bytes, kMost / 512'000 * 512'000);
  Put(&page, 5, 255, 1);
  EXPECT_EQ(ParseSmartLog(page)->percentage_used, 255) << "far beyond its endurance, which devices tell";
}

TEST(SmartLog, OfTwoDevicesTheWorseFigureCounts) {
  const SmartFigures a{.warnings = 1,
                       .temperature_kelvin = 300,
                       .available_spare = 40,
                       .spare_threshold = 5,
                       .percentage_used = 90,
                       .written_bytes = 10,
                       .media_errors = std::numeric_limits<uint64_t>::max()};
  const SmartFigures b{.warnings = 8,
                       .temperature_kelvin = 0,
                       .available_spare = 50,
                       .spare_threshold = 20,
                       .percentage_used = 1,
                       .written_bytes = 5,
                       .media_errors = 2};
  const SmartFigures worse{.warnings = 9,
                           .temperature_kelvin = 300,
                           .available_spare = 50,
                           .spare_threshold = 20,
                           .percentage_used = 90,
                           .written_bytes = 15,
                           .media_errors = std::numeric_limits<uint64_t>::max()};
  EXPECT_EQ(WorseOf(a, b), worse) << "the spare that is nearer to its threshold";
  EXPECT_EQ(WorseOf(b, a), worse);
}

}  // namespace
}  // namespace tier::storage

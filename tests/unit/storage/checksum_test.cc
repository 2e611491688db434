// CRC32C against RFC 3720's vectors and against a bit-by-bit twin.
#include "daemon/storage/checksum.h"

#include <array>
#include <cstring>
#include <numeric>
#include <random>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

namespace tier::storage {
namespace {

uint32_t Bitwise(std::span<const std::byte> bytes) {
  uint32_t crc = ~uint32_t{0};
  for (const std::byte byte : bytes) {
    crc ^= std::to_integer<uint32_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78u : 0u);
  }
  return ~crc;
}

TEST(Checksum, KnowsTheCheckValueOfNineDigits) {
  constexpr std::string_view kDigits = "123456789";
  EXPECT_EQ(Crc32c(std::as_bytes(std::span(kDigits))), 0xe3069283u);
}

TEST(Checksum, KnowsTheVectorsOfRfc3720) {
  std::array<uint8_t, 32> bytes{};
  EXPECT_EQ(Crc32c(std::as_bytes(std::span(bytes))), 0x8a9136aau);
  bytes.fill(0xff);
  EXPECT_EQ(Crc32c(std::as_bytes(std::span(bytes))), 0x62a8ab43u);
  std::iota(bytes.begin(), bytes.end(), uint8_t{0});
  EXPECT_EQ(Crc32c(std::as_bytes(std::span(bytes))), 0x46dd794eu);
  std::iota(bytes.rbegin(), bytes.rend(), uint8_t{0});
  EXPECT_EQ(Crc32c(std::as_bytes(std::span(bytes))), 0x113fdb5cu);
}

TEST(Checksum, OfNothingIsZero) { EXPECT_EQ(Crc32c({}), 0u); }

TEST(Checksum, AgreesWithABitwiseTwinAtEveryLengthAndAlignment) {
  std::mt19937_64 random(7);
  std::vector<std::byte> bytes(5000);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  for (size_t length = 0; length < 300; ++length) {
    const std::span part = std::span(bytes).subspan(length % 17, length);
    ASSERT_EQ(Crc32c(part), Bitwise(part)) << "length " << length;
  }
  for (const size_t length : {511u, 512u, 1023u, 4095u, 4096u, 4983u}) {
    const std::span part = std::span(bytes).subspan(17, length);
    ASSERT_EQ(Crc32c(part), Bitwise(part)) << "length " << length;
  }
}

TEST(Checksum, NoticesEverySingleFlippedBitOfAPage) {
  std::vector<std::byte> page(4096, std::byte{0x5a});
  const uint32_t before = Crc32c(page);
  for (size_t bit = 0; bit < page.size() * 8; bit += 37) {
    page[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
    ASSERT_NE(Crc32c(page), before) << "bit " << bit;
    page[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
  }
}

}  // namespace
}  // namespace tier::storage

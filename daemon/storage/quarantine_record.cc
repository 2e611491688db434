// See quarantine_record.h.
#include "daemon/storage/quarantine_record.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "daemon/base/check.h"
#include "daemon/storage/checksum.h"
#include "proto/quarantine_record.h"
#include "proto/units.h"

namespace tier::storage {
namespace {

constexpr uint64_t kFirstPageMax = (uint64_t{UINT32_MAX} + 1) * kPagesPerBlock - 1;

std::unexpected<Error> Corrupt(std::string what) {
  return Fail(Code::kCorrupt, "the record of quarantined places is damaged: " + std::move(what));
}

uint32_t CrcOf(std::span<const std::byte> runs, proto::QuarantineHeader header) {
  header.crc = 0;
  return Crc32c(runs, Crc32c(std::as_bytes(std::span(&header, 1))));
}

bool SaneRun(const proto::QuarantineRun& run) {
  return run.reserved == 0 && run.pages != 0 && run.first_page <= kFirstPageMax &&
         run.first_page % kPagesPerBlock + run.pages <= kPagesPerBlock;
}

}  // namespace

std::vector<std::byte> EncodeQuarantine(std::span<const base::PageRun> places) {
  std::vector<proto::QuarantineRun> runs;
  for (const base::PageRun& place : places.first(std::min(places.size(), kQuarantinedPlacesMax))) {
    runs.push_back({.first_page = uint64_t{place.block} * kPagesPerBlock + place.page, .pages = place.pages});
  }
  const auto body = std::as_bytes(std::span(runs));
  proto::QuarantineHeader header{.magic = proto::kQuarantineMagic,
                                 .version = proto::kQuarantineVersion,
                                 .run_count = static_cast<uint32_t>(runs.size())};
  header.crc = CrcOf(body, header);
  std::vector<std::byte> bytes(sizeof(header) + body.size());
  std::memcpy(bytes.data(), &header, sizeof(header));
  std::ranges::copy(body, bytes.begin() + sizeof(header));
  TIER_CHECK(bytes.size() == sizeof(header) + header.run_count * sizeof(proto::QuarantineRun), "{} bytes of {} places",
             bytes.size(), header.run_count);
  return bytes;
}

Result<std::vector<base::PageRun>> DecodeQuarantine(std::span<const std::byte> bytes) {
  proto::QuarantineHeader header{};
  if (bytes.size() < sizeof(header)) return Corrupt("it is too short");
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (header.magic != proto::kQuarantineMagic) return Corrupt("it does not begin like one");
  if (header.version != proto::kQuarantineVersion) {
    return Fail(Code::kVersion, fmt::format("the record of quarantined places has version {}, this daemon reads {}",
                                            header.version, proto::kQuarantineVersion));
  }
  const auto body = bytes.subspan(sizeof(header));
  const bool fits = header.run_count <= kQuarantinedPlacesMax &&
                    body.size() == header.run_count * sizeof(proto::QuarantineRun) && header.reserved == 0;
  if (!fits) return Corrupt(fmt::format("{} places in {} bytes", header.run_count, bytes.size()));
  if (header.crc != CrcOf(body, header)) return Corrupt("wrong checksum");
  std::vector<base::PageRun> places;
  for (size_t i = 0; i < header.run_count; ++i) {
    proto::QuarantineRun run{};
    std::memcpy(&run, body.data() + i * sizeof(run), sizeof(run));
    if (!SaneRun(run)) return Corrupt(fmt::format("place {}", i));
    places.push_back({.block = static_cast<uint32_t>(run.first_page / kPagesPerBlock),
                      .page = static_cast<uint16_t>(run.first_page % kPagesPerBlock),
                      .pages = static_cast<uint16_t>(run.pages)});
  }
  return places;
}

}  // namespace tier::storage

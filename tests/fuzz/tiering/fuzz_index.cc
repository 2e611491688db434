// Fuzzes the reading of an index that an earlier daemon left. An input damages a right one:
//   byte 0, 1     pieces - 1 of two tensors (of 64 at most each)
//   then          4 bytes each: a record, counted through the index; a 16-bit place; a byte. The byte is put at that
//   place
//                 of the record, or by places from 0xfffc on: the record goes, is cut or grown to so many times 4
//                 bytes, is copied to the record of that number of its tensor, or goes to another tensor.
// What is accepted must be whole.
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <span>

#include "daemon/base/check.h"
#include "daemon/tiering/tables/index_codec.h"
#include "tests/support/tiering/index_records.h"

namespace tier::tiering {
namespace {

using storage::testing::IndexContents;

void Damage(IndexContents* records, std::span<const uint8_t> change) {
  if (records->empty()) return;
  const auto found = std::next(records->begin(), static_cast<ptrdiff_t>(change[0] % records->size()));
  storage::RecordKey key = found->first;
  std::vector<std::byte> bytes = found->second;
  const uint32_t place = change[1] | uint32_t{change[2]} << 8;
  switch (place) {
    case 0xffff: records->erase(found); return;
    case 0xfffe: found->second.resize(change[3] * 4u); return;
    case 0xfffd: key.record = change[3]; break;
    case 0xfffc: key.tensor = change[3] % 4; break;
    default:
      if (!bytes.empty()) found->second[place % bytes.size()] = std::byte{change[3]};
      return;
  }
  (*records)[key] = std::move(bytes);
}

void CheckRead(const Result<std::vector<IndexedTensor>>& read, size_t records) {
  if (!read) {
    TIER_CHECK(read.error().code == Code::kCorrupt, "code {}", static_cast<int>(read.error().code));
    return;
  }
  size_t known = 0;
  for (const IndexedTensor& tensor : *read) {
    known += 1 + IndexChunksOf(tensor.head.piece_count);
    TIER_CHECK(tensor.pieces.size() == tensor.head.piece_count, "{} pieces of {}", tensor.pieces.size(),
               tensor.head.piece_count);
    TIER_CHECK(PieceCountOf(tensor.head.size) == tensor.head.piece_count, "{} bytes", tensor.head.size);
    for (const proto::IndexPieceRecord& piece : tensor.pieces) {
      TIER_CHECK(uint32_t{piece.ram_page} + piece.ram_pages <= kPagesPerBlock &&
                     uint32_t{piece.ssd_page} + piece.ssd_pages <= kPagesPerBlock,
                 "{} + {} and {} + {} pages", piece.ram_page, piece.ram_pages, piece.ssd_page, piece.ssd_pages);
    }
  }
  TIER_CHECK(known == records, "{} records of {} were read", known, records);
}

}  // namespace
}  // namespace tier::tiering

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tier::tiering;
  if (size < 2) return 0;
  auto records = std::make_shared<IndexContents>(testing::RecordsOfTensor({1, 0, 1}, 1 + data[0] % 64u));
  records->merge(testing::RecordsOfTensor({1, 0, 2}, 1 + data[1] % 64u));
  std::span<const uint8_t> left(data + 2, size - 2);
  for (; left.size() >= 4; left = left.subspan(4)) Damage(records.get(), left.first(4));
  CheckRead(ReadIndex(tier::storage::testing::FakeIndex(records)), records->size());
  return 0;
}

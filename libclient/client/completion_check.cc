#include "libclient/client/completion_check.h"

namespace tier::client {

const char* WrongInHeader(const proto::CompletionHeader& header, uint32_t ready) {
  if (header.entries == 0 || header.entries > ready || header.entries > proto::kCompletionEntriesPerMessageMax) {
    return "a completion is longer than what arrived";
  }
  if (header.code >= kCodeCount || header.flags != 0) return "a completion has an unknown code or flag";
  if (header.code != 0) {
    const bool fits = header.record_count <= 1 && header.detail_length <= proto::kDetailLengthMax &&
                      proto::EntriesForText(header.detail_length) <= header.entries;
    return fits ? nullptr : "a refusal is malformed";
  }
  const bool fits = header.detail_length == 0 && header.record_count <= proto::kSpansPerCompletionMax &&
                    proto::EntriesForRecords(header.record_count) <= header.entries;
  return fits ? nullptr : "an answer is malformed";
}

const char* WrongForOp(const proto::CompletionHeader& header, proto::Op op) {
  const bool lacks_record = header.code == 0 && op == proto::Op::kStat && header.record_count == 0;
  return lacks_record ? "an answer lacks the tensor's record" : nullptr;
}

}  // namespace tier::client

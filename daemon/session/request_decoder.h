// RequestDecoder: the shape of one message of a client, checked field by field. Pure: bytes already copied out of
// shared memory in, a tiering::Request or the sentence that ends the session out. Whether a request makes sense is the
// engine's to say; here is only what no libtier would ever send.
//
// REQUIRES: `entries` is private memory, which no other thread or process can change while it is read. Any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "daemon/tiering/api/request.h"
#include "proto/message.h"
#include "proto/result.h"

namespace tier::session {

// What a well-formed message of one op looks like.
struct OpShape {
  std::string_view name;
  uint32_t flags = 0;  // Those that may be set.
  uint32_t items_min = 0;
  uint32_t items_max = 0;
  bool range = false;  // Items carry offset and length.
  bool value = false;  // Items carry a value.
  bool argument = false;
  bool text = false;  // Text in place of items, from the second entry on.
};
// Null for an op that does not exist.
const OpShape* ShapeOf(uint16_t op);

// Decodes the message that starts at entries[0], which must be number `sequence`. Returns the entries it takes;
// `request` points into `entries`. The error names the offending field, what it held and what is allowed.
// REQUIRES: entries is not empty.
Result<uint32_t> DecodeRequest(std::span<const proto::RequestEntry> entries, uint64_t sequence,
                               tiering::Request* request);

// Well-formed UTF-8 without NUL, overlong forms and surrogates.
bool IsPlainText(std::string_view text);

}  // namespace tier::session

// Messages of control.proto as JSON documents: names of fields as there; an enumerator is its word in lower case
// without the prefix of its enum, and a time is as in proto3's own JSON ("2026-11-24T12:00:01.250Z", "3.500s").
//
// Numbers that name something (ids, epochs) are strings, as in proto3's own JSON: programs that read every number as a
// double would change them. Figures are numbers: each is below 2^53. docs/tierctl-json.md describes every document.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "libclient/control/channel.h"

namespace tier::tierctl {

using Json = nlohmann::ordered_json;

// Of every document. It rises when a field goes or changes its meaning; new fields may come at any time.
inline constexpr int kJsonVersion = 3;

// "io_uring" for IO_MODE_IO_URING; "unknown" for a number that this tierctl has no word for.
std::string EnumWord(const google::protobuf::EnumDescriptor& type, int number);
template <typename Enum>
std::string WordOf(Enum value) {
  return EnumWord(*google::protobuf::GetEnumDescriptor<Enum>(), value);
}

// Without optional fields that are not set, and without a token that was not asked for.
Json ToJson(const google::protobuf::Message& message);
// The document, an object, with `json_version` before its own fields. Everything but ASCII is escaped, so that it does
// not steer a terminal.
std::string RenderJson(const Json& document, int indent = 2);
void PrintJson(const Json& document);      // To standard output.
bool PrintJsonLine(const Json& document);  // On one line, for streams; at once, as FlushOutput.

}  // namespace tier::tierctl

// Messages of control.proto as JSON documents: names of fields and of enumerators as there.
//
// Numbers that name something (ids, epochs) are strings, as in proto3's own JSON: programs that read every number as a
// double would change them. Figures are numbers: each is below 2^53. docs/tierctl-json.md describes every document.
#pragma once

#include <nlohmann/json.hpp>

#include "libclient/control/channel.h"

namespace tier::tierctl {

using Json = nlohmann::ordered_json;

// Of every document. It rises when a field goes or changes its meaning; new fields may come at any time.
inline constexpr int kJsonVersion = 1;

// Without optional fields that are not set, and without a token that was not asked for.
Json ToJson(const google::protobuf::Message& message);
// The document, an object, with `json_version` before its own fields. Everything but ASCII is escaped, so that it does
// not steer a terminal.
std::string RenderJson(const Json& document, int indent = 2);
void PrintJson(const Json& document);      // To standard output.
void PrintJsonLine(const Json& document);  // On one line, for streams; at once.

}  // namespace tier::tierctl

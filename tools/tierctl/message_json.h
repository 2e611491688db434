// Messages of control.proto as JSON documents: names of fields and of enumerators as there, 64-bit numbers as numbers.
#pragma once

#include <nlohmann/json.hpp>

#include "libclient/control/channel.h"

namespace tier::tierctl {

using Json = nlohmann::ordered_json;

Json ToJson(const google::protobuf::Message& message);
void PrintJson(const Json& document);  // To standard output.

}  // namespace tier::tierctl

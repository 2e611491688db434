#include "tools/tierctl/message_json.h"

#include <algorithm>
#include <array>
#include <string_view>

#include <fmt/format.h>
#include <google/protobuf/util/time_util.h>

#include "tools/tierctl/output.h"

namespace tier::tierctl {
namespace {

using Field = google::protobuf::FieldDescriptor;
using google::protobuf::util::TimeUtil;

// Numbers that name something.
bool IsName(const Field& field) {
  constexpr std::array<std::string_view, 4> kNames = {"id", "epoch", "space", "session"};
  return std::ranges::find(kNames, field.name()) != kNames.end();
}

// Of the kinds that control.proto repeats.
Json ElementToJson(const google::protobuf::Message& message, const Field& field, int i) {
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  switch (field.cpp_type()) {
    case Field::CPPTYPE_MESSAGE: return ToJson(reflection.GetRepeatedMessage(message, &field, i));
    case Field::CPPTYPE_STRING: return reflection.GetRepeatedString(message, &field, i);
    case Field::CPPTYPE_INT32: return reflection.GetRepeatedInt32(message, &field, i);
    default: return nullptr;
  }
}

// Times as proto3's own JSON has them, and messages.
Json PartToJson(const google::protobuf::Message& message) {
  if (message.GetDescriptor() == google::protobuf::Duration::descriptor())
    return TimeUtil::ToString(static_cast<const google::protobuf::Duration&>(message));
  if (message.GetDescriptor() == google::protobuf::Timestamp::descriptor())
    return TimeUtil::ToString(static_cast<const google::protobuf::Timestamp&>(message));
  return ToJson(message);
}

Json FieldToJson(const google::protobuf::Message& message, const google::protobuf::FieldDescriptor& field) {
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  if (field.is_repeated()) {
    Json array = Json::array();
    for (int i = 0; i < reflection.FieldSize(message, &field); ++i) array.push_back(ElementToJson(message, field, i));
    return array;
  }
  switch (field.cpp_type()) {
    case Field::CPPTYPE_BOOL: return reflection.GetBool(message, &field);
    case Field::CPPTYPE_INT32: return reflection.GetInt32(message, &field);
    case Field::CPPTYPE_UINT32: return reflection.GetUInt32(message, &field);
    case Field::CPPTYPE_INT64: return reflection.GetInt64(message, &field);
    case Field::CPPTYPE_UINT64: {
      const uint64_t number = reflection.GetUInt64(message, &field);
      return IsName(field) ? Json(std::to_string(number)) : Json(number);
    }
    case Field::CPPTYPE_DOUBLE: return reflection.GetDouble(message, &field);
    case Field::CPPTYPE_STRING: return reflection.GetString(message, &field);
    case Field::CPPTYPE_ENUM: return EnumWord(*field.enum_type(), reflection.GetEnumValue(message, &field));
    case Field::CPPTYPE_MESSAGE: return PartToJson(reflection.GetMessage(message, &field));
    default: return nullptr;
  }
}

}  // namespace

std::string EnumWord(const google::protobuf::EnumDescriptor& type, int number) {
  const auto* value = type.FindValueByNumber(number);
  if (value == nullptr) return "unknown";
  const size_t prefix = type.FindValueByNumber(0)->name().size() - std::string_view("UNSPECIFIED").size();
  std::string word = value->name().substr(prefix);
  for (char& c : word) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return word;
}

Json ToJson(const google::protobuf::Message& message) {
  Json object = Json::object();
  const google::protobuf::Descriptor& type = *message.GetDescriptor();
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  for (int i = 0; i < type.field_count(); ++i) {
    const Field& field = *type.field(i);
    const bool is_part = field.cpp_type() == Field::CPPTYPE_MESSAGE;
    const bool may_lack = (field.has_presence() && !is_part) || field.has_optional_keyword() || field.name() == "token";
    if (may_lack && !reflection.HasField(message, &field)) continue;
    object[field.name()] = FieldToJson(message, field);
  }
  return object;
}

std::string RenderJson(const Json& document, int indent) {
  Json whole = {{"json_version", kJsonVersion}};
  whole.update(document);
  return whole.dump(indent, ' ', true, Json::error_handler_t::replace);
}

void PrintJson(const Json& document) { fmt::print("{}\n", RenderJson(document)); }

bool PrintJsonLine(const Json& document) {
  fmt::print("{}\n", RenderJson(document, -1));
  return FlushOutput();  // A reader behind a pipe waits for it; a closed pipe shows at the next line.
}

}  // namespace tier::tierctl

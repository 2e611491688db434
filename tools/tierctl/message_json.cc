#include "tools/tierctl/message_json.h"

#include <fmt/format.h>

namespace tier::tierctl {
namespace {

Json FieldToJson(const google::protobuf::Message& message, const google::protobuf::FieldDescriptor& field) {
  using Field = google::protobuf::FieldDescriptor;
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  if (field.is_repeated()) {
    Json array = Json::array();
    for (int i = 0; i < reflection.FieldSize(message, &field); ++i) {
      array.push_back(field.cpp_type() == Field::CPPTYPE_MESSAGE
                          ? ToJson(reflection.GetRepeatedMessage(message, &field, i))
                          : Json(reflection.GetRepeatedInt32(message, &field, i)));
    }
    return array;
  }
  switch (field.cpp_type()) {
    case Field::CPPTYPE_BOOL: return reflection.GetBool(message, &field);
    case Field::CPPTYPE_INT32: return reflection.GetInt32(message, &field);
    case Field::CPPTYPE_UINT32: return reflection.GetUInt32(message, &field);
    case Field::CPPTYPE_INT64: return reflection.GetInt64(message, &field);
    case Field::CPPTYPE_UINT64: return reflection.GetUInt64(message, &field);
    case Field::CPPTYPE_DOUBLE: return reflection.GetDouble(message, &field);
    case Field::CPPTYPE_STRING: return reflection.GetString(message, &field);
    case Field::CPPTYPE_ENUM: return reflection.GetEnum(message, &field)->name();
    case Field::CPPTYPE_MESSAGE: return ToJson(reflection.GetMessage(message, &field));
    default: return nullptr;
  }
}

}  // namespace

Json ToJson(const google::protobuf::Message& message) {
  Json object = Json::object();
  const google::protobuf::Descriptor& type = *message.GetDescriptor();
  for (int i = 0; i < type.field_count(); ++i) object[type.field(i)->name()] = FieldToJson(message, *type.field(i));
  return object;
}

void PrintJson(const Json& document) { fmt::print("{}\n", document.dump(2)); }

}  // namespace tier::tierctl

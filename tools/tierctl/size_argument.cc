#include "tools/tierctl/size_argument.h"

#include <utility>

#include <fmt/format.h>

#include "daemon/config/quantity.h"
#include "proto/units.h"
#include "tools/tierctl/printable.h"

namespace tier::tierctl {
namespace {

// What was probably meant by a number without one: what gives a size that a node may have.
const char* UnitFor(uint64_t number) {
  if (number < 1024) return "GiB";
  return number < kMiB ? "MiB" : "KiB";
}

// KB is often typed for what the configuration calls kB.
Result<uint64_t> ReadSize(const std::string& text) {
  const bool is_kilo = text.ends_with("KB");
  return config::ParseSize(is_kilo ? text.substr(0, text.size() - 2) + "kB" : text);
}

}  // namespace

std::optional<uint64_t> ParseBytes(const std::string& text) {
  const auto bytes = ReadSize(text);
  return bytes ? std::optional(*bytes) : std::nullopt;
}

std::optional<std::string> MissingUnit(const std::string& option, const std::string& text) {
  const auto bytes = ParseBytes(text);
  const bool has_unit = text.find_first_not_of("0123456789. ") != std::string::npos;
  if (!bytes || has_unit || *bytes == 0 || *bytes >= kBlockSize) return std::nullopt;
  return fmt::format("{} {} is {} {}; write {}{}, or {}B if bytes are meant", option, text, *bytes,
                     *bytes == 1 ? "byte" : "bytes", *bytes, UnitFor(*bytes), *bytes);
}

Result<uint64_t> SizeArgument(const std::string& option, const std::string& text, const std::string& or_else) {
  const auto bytes = ReadSize(text);
  if (!bytes) {
    // What says how to write it shows the size of a whole node.
    const std::string& reason = bytes.error().message;
    if (reason.find("write it like") == std::string::npos)
      return Fail(Code::kInvalid, fmt::format("{}: {}", option, Printable(reason)));
    return Fail(Code::kInvalid, fmt::format("{} \"{}\" is no size; write it like 512MiB or 16GiB, {}", option,
                                            Printable(text), or_else));
  }
  if (auto missing = MissingUnit(option, text)) return Fail(Code::kInvalid, std::move(*missing));
  return *bytes;
}

}  // namespace tier::tierctl

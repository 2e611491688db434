#include "libclient/abi/failure.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "proto/message.h"

namespace tier::abi {
namespace {

// A plain array: no constructor, no destructor, nothing to go wrong at thread exit.
thread_local std::array<char, proto::kDetailLengthMax + 512> g_sentence;

}  // namespace

int Remember(const Error& error) noexcept { return RememberText(static_cast<int>(error.code), error.message.c_str()); }

int RememberText(int code, const char* text) noexcept {
  const size_t length = std::min(std::strlen(text), g_sentence.size() - 1);
  std::memcpy(g_sentence.data(), text, length);
  g_sentence[length] = '\0';
  return code;
}

const char* LastSentence() noexcept { return g_sentence.data(); }

}  // namespace tier::abi

extern "C" {

const char* tier_last_error(void) { return tier::abi::LastSentence(); }

const char* tier_code_name(int code) {
  if (code < 0 || code >= tier::kCodeCount) return "UNKNOWN";
  return tier::CodeName(static_cast<tier::Code>(code)).data();  // Literals: terminated.
}

const char* tier_version(void) { return "0.1.0"; }

}  // extern "C"

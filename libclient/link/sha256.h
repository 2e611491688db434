// SHA-256 (FIPS 180-4) of a short text, as 64 hexadecimal digits: what a job token derived from a launcher's
// environment looks like. Small inputs only; no library brings it without weight.
#pragma once

#include <string>
#include <string_view>

namespace tier::link {

std::string Sha256Hex(std::string_view text);

}  // namespace tier::link

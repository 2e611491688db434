// Text without secrets, for a file that is given to others. What is masked may be more than secrets: a line too many is
// less bad than a password.
#pragma once

#include <string>
#include <string_view>

namespace tier::tierctl {

inline constexpr char kMask[] = "<masked>";

// Job tokens, which are 64 hexadecimal digits, and longer runs of such digits are masked wherever they stand; and what
// tells by its form that it is a secret: USER:PASSWORD@ in a URL, what follows Bearer or Basic, tokens of well-known
// services, private keys in PEM. A document of JSON stays one.
std::string WithoutTokens(std::string_view text);

// The same; and what stands behind the name of a secret and '=', ':' or a space, up to the end of its line, or of the
// value where that has several lines. Names are those with password, passphrase, token, secret, credential and the like
// in them. Numbers of tokens and sentences about them stay, and so do paths and names of jobs.
std::string Masked(std::string_view text);

}  // namespace tier::tierctl

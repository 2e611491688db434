// How unlike two words are, for the question what was meant by a wrong one.
#pragma once

#include <cstddef>
#include <string_view>

namespace tier::base {

// The least number of letters that are put in, left out, replaced, or swapped with their neighbour, between two words
// (optimal string alignment: no letter is changed twice). Time and memory grow with the product of the lengths.
size_t EditDistance(std::string_view a, std::string_view b);

}  // namespace tier::base

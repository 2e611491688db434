// How structs that cross a C interface are read and filled, whatever version of the header their owner was compiled
// with: each begins with `struct_size`, versions only append fields, and no code touches bytes beyond either side's
// size. Shared by libtier and libtier-control. Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>

#include "proto/result.h"

namespace tier::abi {

inline constexpr size_t kStructSizeMax = 4096;

// No version of a struct ends within a field.
template <typename T>
bool IsStructSize(size_t size) {
  return size > sizeof(size_t) && size <= kStructSizeMax && size % alignof(T) == 0;
}

// Reads an option struct: fields that the caller's version lacks keep their defaults. INVALID when struct_size was not
// set.
template <typename T>
Status ReadOptions(const T* given, T* options) {
  if (given == nullptr) return {};
  if (!IsStructSize<T>(given->struct_size)) {
    return Fail(Code::kInvalid, "struct_size is " + std::to_string(given->struct_size) +
                                    ": initialise option structs with their TIER_..._INIT macro");
  }
  std::memcpy(options, given, std::min(given->struct_size, sizeof(T)));
  options->struct_size = sizeof(T);
  return {};
}

// May this struct be filled? Call it before a call takes effect. INVALID when struct_size was not set.
template <typename T>
Status CheckView(const T* view) {
  if (view == nullptr || !IsStructSize<T>(view->struct_size)) {
    return Fail(Code::kInvalid, "set struct_size to the size of the struct before the call");
  }
  return {};
}

// Fills a struct of `size` bytes, as much of it as that version has. REQUIRES: a size that CheckView has passed.
template <typename T>
void FillView(T filled, size_t size, void* view) {
  filled.struct_size = size;
  std::memcpy(view, &filled, std::min(size, sizeof(T)));
}

// CheckView and FillView, for a call without other effects.
template <typename T>
Status WriteView(const T& filled, T* view) {
  if (auto fits = CheckView(view); !fits) return fits;
  FillView(filled, view->struct_size, view);
  return {};
}

}  // namespace tier::abi

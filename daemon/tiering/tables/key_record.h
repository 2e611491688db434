// KeyRecord: a string key of a job and its 64-bit id; KeyText: a part of its text. Both are found by index in the slabs
// of an InternTable, and change through that alone. Engine thread only.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace tier::tiering {

enum class KeyIndex : uint32_t {};
inline constexpr KeyIndex kNoKey{UINT32_MAX};
constexpr uint32_t Value(KeyIndex index) { return static_cast<uint32_t>(index); }

enum class KeyTextIndex : uint32_t {};
inline constexpr KeyTextIndex kNoKeyText{UINT32_MAX};

// A cell of a list. Most names of tensors fit into one cell, which is a cache line.
struct KeyText {
  static constexpr size_t kBytes = 60;

  std::array<char, kBytes> bytes = {};  // As many as are left of the key's length.
  KeyTextIndex next = kNoKeyText;
};

static_assert(sizeof(KeyText) == 64 && std::is_trivially_copyable_v<KeyText>);

struct KeyRecord {
  uint64_t id = 0;    // 0: the record is not in use.
  uint64_t hash = 0;  // Of the text. The id, unless another key had that.
  KeyTextIndex text = kNoKeyText;
  KeyIndex older = kNoKey;  // Neighbours among the keys that may be dropped.
  KeyIndex younger = kNoKey;
  uint16_t length = 0;  // Bytes of the text.
  bool kept = false;    // Never dropped; in no list by age.
};

static_assert(sizeof(KeyRecord) == 32 && std::is_trivially_copyable_v<KeyRecord>);

// Heads of lists and figures of all keys of a table.
struct KeyHeads {
  KeyIndex oldest = kNoKey;
  KeyIndex youngest = kNoKey;
  uint32_t keys = 0;
  uint32_t texts = 0;  // Cells in use.
  uint64_t bytes = 0;  // Of all texts.
};

static_assert(std::is_trivially_copyable_v<KeyHeads>);

}  // namespace tier::tiering

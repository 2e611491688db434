// Index: what lies where, so that a restarted daemon can say so. References only, never tensor bytes.
//
// Two environments (design: LMDB). `ram` lives on a memfd kept with the windows, is not synced, and takes one
// transaction for each engine turn: Put and Erase stage, Commit ends the turn's transaction. Replies of a turn are
// published only after its Commit. `ssd` (ManifestStore) says what must survive the machine; it commits off the engine
// thread.
// A tensor has one record or several, so that a change of a large one puts little. Values are opaque here (tiering
// encodes them; layout in proto/index_record.h). Engine thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "proto/result.h"

namespace tier::storage {

struct TensorKey {
  uint64_t job = 0;
  uint64_t space = 0;  // 0: the job's shared namespace; else the session whose namespace it is.
  uint64_t tensor = 0;
  friend auto operator<=>(const TensorKey&, const TensorKey&) = default;
};

struct RecordKey {
  uint64_t job = 0;
  uint64_t space = 0;
  uint64_t tensor = 0;
  uint32_t record = 0;  // 0: the tensor's head, before all others of it.
  TensorKey owner() const { return {job, space, tensor}; }
  friend auto operator<=>(const RecordKey&, const RecordKey&) = default;
};

class Index {
 public:
  virtual ~Index() = default;
  virtual void Put(const RecordKey& key, std::span<const std::byte> value) = 0;
  virtual void Erase(const RecordKey& key) = 0;
  // NO_MEMORY when the environment is full (the map is sized at start): the engine refuses new tensors until it drains.
  // What was erased is gone all the same, also where something was put in its place since: that waits, staged.
  virtual Status Commit() = 0;
  // What is committed, in the order of the keys.
  virtual void Scan(const std::function<void(const RecordKey&, std::span<const std::byte>)>& visit) const = 0;
  virtual uint64_t used_bytes() const = 0;
  // Whether so many more changes, of kIndexChunkPieces pieces each, fit beside what is staged: it may say no too early.
  virtual bool HasRoom(uint64_t changes) const = 0;
};

struct ManifestResult {
  uint64_t cookie = 0;
  Code code = Code::kOk;
  std::string message;
  uint64_t commit = 0;  // Number of the synced commit.
};

class ManifestStore {
 public:
  virtual ~ManifestStore() = default;
  // Replaces the manifest of `job` ("uid/name") in one synced transaction; the result comes by Poll.
  virtual void StartPut(uint64_t cookie, std::string job, std::vector<std::byte> manifest) = 0;
  virtual void StartErase(uint64_t cookie, std::string job) = 0;
  virtual void Poll(std::vector<ManifestResult>* results) = 0;
  // The last committed manifest. NOT_FOUND if there is none. Blocks for a read of the file: start and resume only.
  virtual Result<std::vector<std::byte>> Load(std::string_view job) const = 0;
  virtual std::vector<std::string> Jobs() const = 0;
};

}  // namespace tier::storage

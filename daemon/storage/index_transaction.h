// LMDB for the index of manifests: an environment that closes itself, a transaction that aborts itself, and LMDB's
// errors as codes. Private to lmdb_manifest_store.cc; the only header that includes LMDB.
#pragma once

#include <memory>
#include <string_view>
#include <utility>

#include <lmdb.h>

#include "proto/result.h"

namespace tier::storage {

struct CloseEnvironment {
  void operator()(MDB_env* environment) const { mdb_env_close(environment); }
};
using IndexEnvironment = std::unique_ptr<MDB_env, CloseEnvironment>;

// MDB_MAP_FULL → NO_MEMORY, a damaged environment → CORRUPT, errno values as os_error.h has them.
std::unexpected<Error> FailIndex(int error, std::string_view doing);

class IndexTransaction {
 public:
  static Result<IndexTransaction> Begin(MDB_env* environment, unsigned flags);
  IndexTransaction(IndexTransaction&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  IndexTransaction& operator=(IndexTransaction&&) = delete;
  ~IndexTransaction() {
    if (handle_ != nullptr) mdb_txn_abort(handle_);
  }
  MDB_txn* get() const { return handle_; }
  int Commit() { return mdb_txn_commit(std::exchange(handle_, nullptr)); }

 private:
  explicit IndexTransaction(MDB_txn* handle) : handle_(handle) {}
  MDB_txn* handle_;
};

}  // namespace tier::storage

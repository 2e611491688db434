// See index_transaction.h.
#include "daemon/storage/index_transaction.h"

#include <fmt/format.h>

#include "daemon/storage/os_error.h"

namespace tier::storage {

std::unexpected<Error> FailIndex(int error, std::string_view doing) {
  if (error > 0) return FailErrno(error, doing);  // LMDB's own codes are negative.
  Code code = Code::kIoError;
  if (error == MDB_MAP_FULL || error == MDB_TXN_FULL) code = Code::kNoMemory;
  if (error == MDB_CORRUPTED || error == MDB_INVALID || error == MDB_PAGE_NOTFOUND || error == MDB_PANIC) {
    code = Code::kCorrupt;
  }
  if (error == MDB_VERSION_MISMATCH) code = Code::kVersion;
  if (error == MDB_NOTFOUND) code = Code::kNotFound;
  return Fail(code, fmt::format("{}: {}", doing, mdb_strerror(error)));
}

Result<IndexTransaction> IndexTransaction::Begin(MDB_env* environment, unsigned flags) {
  MDB_txn* handle = nullptr;
  if (const int error = mdb_txn_begin(environment, nullptr, flags, &handle); error != 0) {
    return FailIndex(error, "beginning an index transaction");
  }
  return IndexTransaction(handle);
}

}  // namespace tier::storage

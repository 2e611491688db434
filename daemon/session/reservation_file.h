// The file of the jobs that administrators reserved for users, whose first runs have not come yet (docs/formats.md):
//
//   tierd-reservations 1
//   job 1001 step-4711 guarantee=68719476736
//   job 1001 nightly named=1 limit=4096 ssd_guarantee=0
//   crc32c 1f2e3d4c
//
// A uid and a name stand once, numbers are bytes, and what is 0 is left out. Every term that a job may have can stand
// there: one that the daemon accepts is never one that it cannot read. A token is none of it: the first run needs none.
// Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/session/kept_terms.h"
#include "proto/mutex.h"
#include "proto/result.h"

namespace tier::session {

inline constexpr const char* kRefusedFileSuffix = ".refused";
inline constexpr size_t kReservationsMax = 65536;
inline constexpr size_t kReservationFileBytesMax = 32 << 20;

struct Reservation {
  uint32_t uid = 0;
  std::string name;
  bool named = false;
  JobTerms terms;
  friend bool operator==(const Reservation&, const Reservation&) = default;
};

struct ReservationList {
  uint64_t version = 0;  // Not less than those of lists before it; where it is the same, so is the list.
  std::vector<Reservation> reservations;
};

// What opens such a job again.
OpenJobRequest RequestOf(const Reservation& reservation);
std::string FormatReservations(const std::vector<Reservation>& reservations);

struct ParsedReservations {
  std::vector<Reservation> reservations;
  std::vector<size_t> refused_lines;  // Their numbers: lines that are no reservations.
  std::optional<Error> failure;       // Nothing was taken. CORRUPT, or VERSION: a later tierd wrote it.
};
ParsedReservations ParseReservations(std::string_view text);

struct StoredReservations {
  std::vector<Reservation> reservations;
  std::string warning;  // What was not taken, why, and where the bytes of the file are; empty: the file is whole.
};
// None where there is no file. Whatever is wrong with it, a daemon starts: what can be taken is, and a file that was
// not taken as a whole is kept as PATH.refused, in place of an earlier one.
StoredReservations LoadReservations(const std::string& path);

// Keeps the file as the latest list says. Thread-safe; Save waits for a disk, the others never do.
class ReservationFile {
 public:
  // `stored`: what it has; none: not known, or not only these.
  ReservationFile(std::string path, std::optional<std::vector<Reservation>> stored)
      : path_(std::move(path)), stored_(std::move(stored)) {}
  // Durable when it returns, unless a later list is already. An error: what stood there may stand there still.
  Status Save(const ReservationList& list) TIER_EXCLUDES(writing_, mutex_);
  // The file is known to have what lists of this version say.
  bool Has(uint64_t version) const TIER_EXCLUDES(mutex_);
  // The file is known to have these and no others, whatever the version was. Then it Has this one.
  bool Holds(const ReservationList& list) TIER_EXCLUDES(mutex_);

 private:
  bool HasLaterThan(uint64_t version) const TIER_EXCLUDES(mutex_);

  const std::string path_;
  Mutex writing_;  // One write at a time; taken before mutex_, and held while the file is written.
  mutable Mutex mutex_;
  std::optional<uint64_t> version_ TIER_GUARDED_BY(mutex_);  // Of the latest list that was stored. None: none yet.
  std::optional<std::vector<Reservation>> stored_ TIER_GUARDED_BY(mutex_);
};

}  // namespace tier::session

// See reservation_file.h.
#include "daemon/session/reservation_file.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <limits>
#include <optional>
#include <set>
#include <span>

#include <fmt/format.h>

#include "daemon/base/check.h"
#include "daemon/session/line_file.h"

namespace tier::session {
namespace {

constexpr LineFormat kFormat{
    .first_line = "tierd-reservations 1", .noun = "reservation", .bytes_max = kReservationFileBytesMax};
constexpr uint32_t kUnknownUid = std::numeric_limits<uint32_t>::max();
constexpr size_t kLineBytesMax = proto::kJobNameSize + 160;  // A uid, "named", and four numbers of 20 digits.
static_assert(kReservationsMax * kLineBytesMax < kReservationFileBytesMax, "what may be reserved fits");

struct Term {
  std::string_view name;
  uint64_t JobTerms::* value;
};
constexpr auto kTerms = std::to_array<Term>({{"guarantee", &JobTerms::guarantee_bytes},
                                             {"limit", &JobTerms::limit_bytes},
                                             {"ssd_guarantee", &JobTerms::ssd_guarantee_bytes},
                                             {"ssd_limit", &JobTerms::ssd_limit_bytes}});

// "guarantee=4096", that no word before it has set.
bool ParseField(std::string_view word, Reservation* reservation) {
  const size_t equals = std::min(word.find('='), word.size());
  const auto number = equals == word.size() ? std::nullopt : NumberOf<uint64_t>(word.substr(equals + 1));
  if (!number || *number == 0) return false;
  if (word.substr(0, equals) == "named") return *number == 1 && !std::exchange(reservation->named, true);
  const auto term = std::ranges::find(kTerms, word.substr(0, equals), &Term::name);
  return term != kTerms.end() && std::exchange(reservation->terms.*term->value, *number) == 0;
}

std::optional<Reservation> ParseLine(std::string_view line) {
  const std::vector<std::string_view> words = SplitWords(line);
  if (words.size() < 3 || words[0] != "job" || words[2].empty()) return std::nullopt;
  const uint32_t uid = NumberOf<uint32_t>(words[1]).value_or(kUnknownUid);
  if (uid == kUnknownUid) return std::nullopt;
  Reservation reservation{.uid = uid, .name = std::string(words[2])};
  const auto fields = std::span(words).subspan(3);
  if (!std::ranges::all_of(fields, [&](std::string_view word) { return ParseField(word, &reservation); }))
    return std::nullopt;
  return ValidateOpenJob(RequestOf(reservation)) ? std::optional(reservation) : std::nullopt;
}

}  // namespace

OpenJobRequest RequestOf(const Reservation& reservation) {
  TIER_CHECK(!reservation.name.empty(), "a reserved job of uid {} has no name", reservation.uid);
  return {.name = reservation.name,
          .mode = proto::OpenMode::kCreate,
          .named = reservation.named,
          .guarantee_bytes = reservation.terms.guarantee_bytes,
          .limit_bytes = reservation.terms.limit_bytes,
          .ssd_guarantee_bytes = reservation.terms.ssd_guarantee_bytes,
          .ssd_limit_bytes = reservation.terms.ssd_limit_bytes,
          .owner = reservation.uid};
}

std::string FormatReservations(const std::vector<Reservation>& reservations) {
  TIER_CHECK(reservations.size() <= kReservationsMax, "{} jobs are reserved", reservations.size());
  std::string lines;
  for (const Reservation& reservation : reservations) {
    lines += fmt::format("job {} {}{}", reservation.uid, reservation.name, reservation.named ? " named=1" : "");
    for (const Term& term : kTerms) {
      if (const uint64_t bytes = reservation.terms.*term.value; bytes != 0)
        lines += fmt::format(" {}={}", term.name, bytes);
    }
    lines += '\n';
  }
  return FormatLines(kFormat, lines);
}

ParsedReservations ParseReservations(std::string_view text) {
  ParsedReservations parsed;
  std::set<std::pair<uint32_t, std::string>> seen;
  size_t number = 1;
  const Status whole = ParseLines(kFormat, text, [&](std::string_view line) {
    ++number;
    auto reservation = ParseLine(line);
    if (reservation && parsed.reservations.size() < kReservationsMax &&
        seen.emplace(reservation->uid, reservation->name).second) {
      parsed.reservations.push_back(std::move(*reservation));
    } else {
      parsed.refused_lines.push_back(number);
    }
    return true;
  });
  // Without the checksum no line is what was written.
  if (!whole) return {.reservations = {}, .refused_lines = {}, .failure = whole.error()};
  return parsed;
}

namespace {

// A second name of the same file: a later write makes a new file for `path`.
std::string KeepAside(const std::string& path) {
  const std::string aside = path + kRefusedFileSuffix;
  const std::string next = aside + ".new";
  (void)::unlink(next.c_str());
  const bool linked = ::link(path.c_str(), next.c_str()) == 0 && ::rename(next.c_str(), aside.c_str()) == 0;
  (void)::unlink(next.c_str());  // rename does nothing where both are the same file.
  // A directory, or what else is no file, has one name.
  if (linked || ::rename(path.c_str(), aside.c_str()) == 0) return "it is kept as " + aside;
  return fmt::format("it cannot be kept as {}: {}", aside, std::strerror(errno));
}

std::string WarningOf(const std::string& path, const ParsedReservations& parsed) {
  const std::string kept = KeepAside(path);
  const std::string what_to_do = "; reserve what is missing again (tierctl job open --uid)";
  if (parsed.failure) {
    return fmt::format("no reserved job is taken from {}, which cannot be read: {}; {}{}", path,
                       parsed.failure->message, kept, what_to_do);
  }
  TIER_CHECK(!parsed.refused_lines.empty(), "nothing is wrong with {}", path);
  return fmt::format("{} lines of {} are no reservations and are left out, line {} first; {}{}",
                     parsed.refused_lines.size(), path, parsed.refused_lines.front(), kept, what_to_do);
}

}  // namespace

StoredReservations LoadReservations(const std::string& path) {
  const auto text = ReadLineFile(kFormat, path);
  if (text && !*text) return {};
  ParsedReservations parsed =
      text ? ParseReservations(**text)
           : ParsedReservations{.reservations = {}, .refused_lines = {}, .failure = text.error()};
  if (!parsed.failure && parsed.refused_lines.empty())
    return {.reservations = std::move(parsed.reservations), .warning = {}};
  std::string warning = WarningOf(path, parsed);
  return {.reservations = std::move(parsed.reservations), .warning = std::move(warning)};
}

Status ReservationFile::Save(const ReservationList& list) {
  const MutexLock writing(writing_);
  if (HasLaterThan(list.version) || Holds(list)) return {};
  TIER_CHECK(path_.starts_with('/'), "the file of reservations is '{}'", path_);
  const Status saved = ReplaceLineFile(path_, FormatReservations(list.reservations));
  const MutexLock lock(mutex_);
  stored_ = saved ? std::optional(list.reservations) : std::nullopt;  // The new file may stand there all the same.
  if (saved) version_ = list.version;
  return saved;
}

bool ReservationFile::HasLaterThan(uint64_t version) const {
  const MutexLock lock(mutex_);
  return version_ && version < *version_;
}

bool ReservationFile::Has(uint64_t version) const {
  const MutexLock lock(mutex_);
  return stored_ && version_ == version;
}

bool ReservationFile::Holds(const ReservationList& list) {
  const MutexLock lock(mutex_);
  if (!stored_ || *stored_ != list.reservations) return false;
  version_ = std::max(version_.value_or(0), list.version);
  return true;
}

}  // namespace tier::session

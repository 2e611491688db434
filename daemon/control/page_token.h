// Where the next page of a list begins, as text that clients hand back as they got it.
//
// A token says which list it is of, and of which start of the daemon: one that would silently skip what the caller has
// not seen is refused. It grants nothing: each page is chosen by the rights of the call. Pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "proto/result.h"

namespace tier::control {

struct PagePlace {
  enum class List : char { kJobs = 'j', kReservations = 'r', kStoredManifests = 'm', kTensors = 't' };
  List list = List::kJobs;
  uint64_t number = 0;  // Of the first job of the next page its id; of the first tensor its record.
  std::string name;     // Of the last reservation or manifest of the page before, qualified; or the job of the tensors.

  friend bool operator==(const PagePlace&, const PagePlace&) = default;
};

std::string ToPageToken(uint64_t epoch, const PagePlace& place);
// INVALID: no text that ToPageToken makes, or of another start of the daemon.
Result<PagePlace> FromPageToken(uint64_t epoch, const std::string& token);

// What a request asks for by `page_size`: `usual` for 0, at most `max`. INVALID: negative.
Result<size_t> PageSizeOf(int32_t asked, size_t usual, size_t max);

}  // namespace tier::control

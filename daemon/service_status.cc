#include "daemon/service_status.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "daemon/live_config.h"

namespace tier {
namespace {

struct Note {
  const char* begins;
  const char* ends;             // Empty: the next one of the kind takes its place.
  const char* shown = nullptr;  // In place of the event's sentence, which is for administrators.
};
// Every user of the machine may read the line, and the parser quotes the file.
constexpr char kReloadRefused[] = "the new configuration was refused, the log says why; all settings stay as they are";
constexpr std::array<Note, 4> kNotes = {{{"draining", "undrained"},
                                         {"prefault", ""},
                                         {"host_memory", ""},
                                         {kConfigReloadFailed, kConfigReloaded, kReloadRefused}}};

}  // namespace

std::string ExtensionOfTime(base::Duration wait) {
  return fmt::format("EXTEND_TIMEOUT_USEC={}\n", std::chrono::ceil<std::chrono::microseconds>(wait).count());
}

bool ServiceStatus::IsAbout(std::string_view kind) {
  // The last two change what it serves.
  return std::ranges::any_of(kNotes, [&](const Note& note) { return kind == note.begins || kind == note.ends; }) ||
         kind == "pinned" || kind == "unpinned";
}

bool ServiceStatus::OnEvent(const session::Event& event) {
  for (const Note& note : kNotes) {
    const std::string& text = note.shown == nullptr ? event.message : std::string(note.shown);
    if (event.kind == note.begins) return std::exchange(notes_[note.begins], text) != text;
    if (event.kind == note.ends) return notes_.erase(note.begins) != 0;
  }
  return false;
}

bool ServiceStatus::SetDegraded(const std::string& text) {
  const std::string before = Line();
  shortage_.clear();  // It is among the causes, for as long as it holds.
  degraded_ = text;
  return Line() != before;
}

std::string ServiceStatus::Line() const {
  std::string line = serving_;
  if (!shortage_.empty()) line += "; " + shortage_;
  if (!degraded_.empty()) line += "; degraded: " + degraded_;
  // A manager reads one line.
  for (const Note& note : kNotes) {
    const auto found = notes_.find(note.begins);
    if (found != notes_.end()) line += "; " + found->second;
  }
  return line;
}

}  // namespace tier

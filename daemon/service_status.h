// ServiceStatus: the one line by which systemd shows how the service is (STATUS=). What it serves comes first; then
// by what it is degraded now; then what holds for a while, as events tell of it: that it is drained, how far a prefault
// is, what the host lacks. Each reason stands there once. Not thread-safe.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "daemon/base/time.h"
#include "daemon/session/control_api.h"

namespace tier {

// What to tell systemd where the start or the stop takes longer than it may know of: it ends neither before so much
// time has passed (sd_notify(3)). It shortens no time that the unit gives.
std::string ExtensionOfTime(base::Duration wait);

class ServiceStatus {
 public:
  // What makes it degraded since its start, in words for the line until SetDegraded has it among its causes.
  void SetShortage(std::string text) { shortage_ = std::move(text); }
  // True: the line is another one now.
  bool SetServing(const std::string& text) { return std::exchange(serving_, text) != text; }
  // By what it is degraded now; empty: by nothing. True: the line is another one now.
  bool SetDegraded(const std::string& text);
  // Whether events of this kind change the line: most do not. Any thread.
  static bool IsAbout(std::string_view kind);
  // True: the line is another one now.
  bool OnEvent(const session::Event& event);
  std::string Line() const;

 private:
  std::string serving_;
  std::string shortage_;
  std::string degraded_;
  std::map<std::string, std::string> notes_;  // By the kind of the event that began it.
};

}  // namespace tier

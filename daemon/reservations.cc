#include "daemon/reservations.h"

#include <utility>

#include <fmt/format.h>
#include <boost/asio/post.hpp>

#include "daemon/base/check.h"

namespace tier {

namespace asio = boost::asio;

// By what the file has, not by what was noted last: another list may have been written since, or none.
void Reservations::Note() {
  if (parts_.file == nullptr || saving_.load() || parts_.file->Has(parts_.version())) return;
  session::ReservationList list = parts_.now();
  if (parts_.file->Holds(list)) return;
  saving_.store(true);
  asio::post(parts_.io, [this, list = std::move(list)]() mutable { Save(std::move(list)); });
}

void Reservations::Finish() {
  if (parts_.file == nullptr) return;
  if (const Status saved = parts_.file->Save(parts_.now()); !saved) EndSave(saved);
}

void Reservations::Save(session::ReservationList list) {
  TIER_CHECK(parts_.file != nullptr, "{} reservations and no file", list.reservations.size());
  if (writer_ == nullptr) {
    auto started = base::Workers::Start(1, "tierd-files");
    if (!started) return EndSave(std::unexpected(started.error()));
    writer_ = std::move(*started);
  }
  const bool posted = writer_->TryPost([this, list = std::move(list)] {
    const Status saved = parts_.file->Save(list);
    asio::post(parts_.io, [this, saved] { EndSave(saved); });
  });
  if (!posted) EndSave(Fail(Code::kNoMemory, fmt::format("{} lists wait to be written", writer_->queued())));
}

void Reservations::EndSave(const Status& saved) {
  saving_.store(false);  // The next Note compares again.
  if (saved) return;
  const auto line = warnings_.Pass("reserved jobs are not written down, and are tried again: " + saved.error().message,
                                   parts_.clock.Now());
  if (line && parts_.warn) parts_.warn(*line);
}

}  // namespace tier

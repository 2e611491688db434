#include "daemon/user_quotas.h"

#include <chrono>
#include <string>
#include <utility>

#include <spdlog/spdlog.h>
#include <boost/asio/post.hpp>

namespace tier {
namespace {

constexpr auto kMailboxRetry = std::chrono::milliseconds(10);

}  // namespace

// Without a thread for it, or room for the question, what is known of users has to do.
bool UserQuotas::PostToNames(base::Workers::Task task) {
  if (names_ == nullptr) {
    auto started = base::Workers::Start(1, "tierd-names");
    if (!started) {
      spdlog::warn("users are not looked up for their quotas: {}", started.error().message);
      return false;
    }
    names_ = std::move(*started);
  }
  return names_->TryPost(std::move(task));
}

// One whose entry is old does not wait: the user database may not answer, and what it said last has to do then.
bool UserQuotas::LearnUser(uint32_t uid, std::function<void()> then) {
  session::QuotaBook& book = engine_.quotas();
  const auto known = book.KnowsUser(uid);
  if (known == session::QuotaBook::Known::kNow) return true;
  const bool waits = known == session::QuotaBook::Known::kNot;
  const bool asked = PostToNames([this, &book, uid, waits, then = std::move(then)]() mutable {
    book.Learn(uid);
    if (waits) boost::asio::post(io_, std::move(then));
  });
  return !waits || !asked;
}

void UserQuotas::TakeOver(const config::Config& config) {
  session::QuotaBook& book = engine_.quotas();
  const bool other_options = book.SetOptions(SsdOfOneUser(config.jobs), JobsOfOneUser(config.jobs));
  const bool other_table = book.SetTable(config.quota);
  if (other_options || other_table) Apply();
  if (other_table) WarnOfUnknown();
}

void UserQuotas::PostToEngine(std::function<void()> closure) {
  if (engine_.mailbox().TryPost(closure)) return;
  timer_.expires_after(kMailboxRetry);
  timer_.async_wait([this, closure = std::move(closure)](const boost::system::error_code& error) {
    if (!error) PostToEngine(closure);  // A later change that waits instead applies this one too.
  });
}

// Jobs that are open have the new ones too. The groups of their users were not looked up if none was needed before.
void UserQuotas::Apply() {
  // The engine may outlive this by some closures; handlers of the main thread run only before.
  PostToEngine([this, &engine = engine_, &io = io_] {
    boost::asio::post(io, [this, owners = engine.jobs().Owners()] { LearnAndApply(owners); });
  });
}

void UserQuotas::LearnAndApply(const std::set<uint32_t>& owners) {
  const auto apply = [this] { PostToEngine([&engine = engine_] { engine.jobs().ApplyQuotas(); }); };
  const bool asked = PostToNames([this, owners, apply] {
    for (const uint32_t uid : owners) engine_.quotas().Learn(uid);
    boost::asio::post(io_, apply);
  });
  if (!asked) apply();
}

void UserQuotas::WarnOfUnknown() {
  session::QuotaBook& book = engine_.quotas();
  if (book.List().empty()) return;
  (void)PostToNames([&book] {
    for (const std::string& name : book.ListUnknown())
      spdlog::warn("this system does not know who {} is: that quota holds for no user", name);
  });
}

}  // namespace tier

#include "daemon/user_quotas.h"

#include <string>
#include <utility>

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <boost/asio/post.hpp>

#include "daemon/session/quota_control.h"

namespace tier {

std::string UnknownQuotaText(const std::string& name) {
  return fmt::format("this system does not know who {} is: that quota holds for no user", name);
}

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

void UserQuotas::TakeOver(const config::Config& config, std::function<void()> done) {
  session::QuotaBook& book = engine_.quotas();
  const bool other_options = book.SetOptions(SsdOfOneUser(config.jobs), JobsOfOneUser(config.jobs));
  const bool other_table = book.SetTable(config.quota);
  if (!other_options && !other_table) return done();
  Apply(std::move(done));
  if (other_table) WarnOfUnknown();
}

void UserQuotas::ApplyChange(const std::string& what) {
  Apply([&engine = engine_, what] { session::TellOfQuotaChange(engine.events(), what); });
}

// Jobs that are open have the new ones too. The groups of their users were not looked up if none was needed before.
void UserQuotas::Apply(std::function<void()> done) {
  // The engine may outlive this by some closures; handlers of the main thread run only before.
  posts_.Post([this, &engine = engine_, &io = io_, done = std::move(done)] {
    boost::asio::post(io, [this, owners = engine.jobs().Owners(), done] { LearnAndApply(owners, done); });
  });
}

void UserQuotas::LearnAndApply(const std::set<uint32_t>& owners, std::function<void()> done) {
  const auto apply = [this, done = std::move(done)] {
    posts_.Post([&engine = engine_, done] {
      engine.jobs().ApplyQuotas();
      done();
    });
  };
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
    for (const std::string& name : book.ListUnknown()) spdlog::warn("{}", UnknownQuotaText(name));
  });
}

}  // namespace tier

// tier_connect, tier_close, tier_session, tier_stats.
#include <unistd.h>

#include <cstdlib>

#include "libclient/abi/failure.h"
#include "libclient/abi/handle.h"
#include "libclient/client/open_jobs.h"
#include "libclient/cuda/process_gpu.h"
#include "libclient/link/numa_node.h"

namespace tier::abi {
namespace {

std::string TextOf(const char* text) { return text == nullptr ? std::string() : std::string(text); }

Result<client::SessionOptions> SessionOptionsFrom(const tier_connect_options& given) {
  if (given.mode < TIER_MODE_ATTACH || given.mode > TIER_MODE_RESUME_OR_CREATE) {
    return Fail(Code::kInvalid, "mode " + std::to_string(given.mode) +
                                    " is none of TIER_MODE_ATTACH, _CREATE, _JOIN, _RESUME, _RESUME_OR_CREATE");
  }
  if (given.spin < 0 || given.spin > 2) {
    return Fail(Code::kInvalid, "spin " + std::to_string(given.spin) + " is none of 0 (auto), 1 (always), 2 (never)");
  }
  if (given.copy_threads < 0 || given.copy_threads > swap::kCopyThreadsMax) {
    return Fail(Code::kInvalid, "copy_threads " + std::to_string(given.copy_threads) + " is not between 0 and " +
                                    std::to_string(swap::kCopyThreadsMax));
  }
  client::SessionOptions options;
  const link::Lookup environment = [](const char* name) { return std::getenv(name); };
  options.attach.sockets = link::SocketCandidates(TextOf(given.socket), environment);
  options.attach.identity = link::CompleteIdentity(
      {.name = TextOf(given.job), .token = TextOf(given.token), .rank = given.rank, .world_size = given.world_size},
      environment);
  options.attach.mode = static_cast<proto::OpenMode>(given.mode);
  options.attach.named = given.named != 0;
  options.attach.guarantee_bytes = given.guarantee_bytes;
  options.attach.limit_bytes = given.limit_bytes;
  options.attach.numa_node =
      link::NodeOf({.gpu = cuda::ProcessGpu().PciAddress(), .processors = link::AllowedProcessors()});
  options.spin = static_cast<client::SpinMode>(given.spin);
  return options;
}

client::OpenJob JobOf(const tier_client& client) { return {client.socket, client.job, client.token}; }

// A job that a client of this process has open is joined with the token of that client, if the caller gave none: a
// notebook cell may be run again. Where that does not help, the refusal says which client is in the way.
Result<client::Session*> OpenSession(client::SessionOptions options) {
  auto session = client::Session::Open(options);
  if (session || (session.error().code != Code::kAlreadyExists && session.error().code != Code::kDenied)) {
    return session;
  }
  auto& attach = options.attach;
  const auto own = client::OpenJobs::OfProcess().Find(attach.sockets, attach.identity.name);
  if (own.token.empty()) return session;
  const bool joins = attach.mode == proto::OpenMode::kAttach || attach.mode == proto::OpenMode::kJoin;
  if (joins && attach.identity.token.empty()) {
    attach.identity.token = own.token;
    attach.identity.launch.clear();
    session = client::Session::Open(options);
    if (session) return session;
  }
  return Fail(session.error().code,
              session.error().message + "; a client of this process has the job open: use that one, or close it first");
}

Status Connect(const tier_connect_options* given, tier_client** client) {
  if (client == nullptr) return Fail(Code::kInvalid, "tier_connect needs a place for the client");
  *client = nullptr;
  tier_connect_options read = TIER_CONNECT_OPTIONS_INIT;
  if (auto ok = ReadOptions(given, &read); !ok) return ok;
  auto options = SessionOptionsFrom(read);
  if (!options) return std::unexpected(options.error());
  auto session = OpenSession(std::move(*options));
  if (!session) return std::unexpected(session.error());
  auto opened = std::make_unique<tier_client>();
  const auto& welcome = (*session)->welcome();
  opened->session = *session;
  opened->scheduler = std::make_shared<swap::CopyScheduler>(
      **session, swap::CopySchedulerOptions{.threads = read.copy_threads == 0 ? 1 : read.copy_threads});
  opened->job = welcome.job_name;
  opened->token = welcome.token;
  opened->socket = (*session)->socket_path();
  client::OpenJobs::OfProcess().Add(JobOf(*opened));
  *client = opened.release();
  return {};
}

}  // namespace

Status CheckClient(const tier_client* client) {
  if (client == nullptr) return Fail(Code::kInvalid, "the client handle is NULL");
  return {};
}

Status CheckFlags(const char* call, uint32_t flags, uint32_t allowed) {
  if ((flags & ~allowed) == 0) return {};
  char text[128];
  std::snprintf(text, sizeof text, "%s does not know flags 0x%x (allowed: 0x%x)", call, flags & ~allowed, allowed);
  return Fail(Code::kInvalid, text);
}

Status Begin(tier_client* client, const char* call, uint32_t flags, uint32_t allowed) {
  if (auto ok = CheckClient(client); !ok) return ok;
  if (auto ok = CheckFlags(call, flags, allowed); !ok) return ok;
  return client->session->Enter();
}

Status BeginAlive(tier_client* client, const char* call, uint32_t flags, uint32_t allowed) {
  if (auto ok = CheckClient(client); !ok) return ok;
  if (auto ok = CheckFlags(call, flags, allowed); !ok) return ok;
  return client->session->Alive();
}

}  // namespace tier::abi

using namespace tier;

extern "C" {

int tier_connect(const tier_connect_options* options, tier_client** client) {
  return abi::Guarded([&] { return abi::Connect(options, client); });
}

void tier_close(tier_client* client) {
  if (client == nullptr) return;
  // In a forked child the locks and threads of the parent are not to be touched: the copy is left to the process's end.
  if (client->session->forked()) return;
  (void)abi::Guarded([&] {
    client->scheduler->Close();
    client->session->Close();
    client::Session* const session = client->session;
    client::OpenJobs::OfProcess().Remove(abi::JobOf(*client));
    delete client;
    session->Drop();
    return Status{};
  });
}

int tier_session(tier_client* client, tier_session_view* view) {
  return abi::Guarded([&]() -> Status {
    if (auto ok = abi::CheckClient(client); !ok) return ok;
    const auto& welcome = client->session->welcome();
    const int connected = client->session->Alive().has_value() ? 1 : 0;
    return abi::WriteView<tier_session_view>(
        {0, welcome.epoch, welcome.session, welcome.window_size, client->job.c_str(), client->token.c_str(),
         client->socket.c_str(), connected, welcome.resumed,
         static_cast<uint32_t>(client->session->channel().request_timeout().count())},
        view);
  });
}

int tier_stats(tier_client* client, tier_stats_view* view) {
  return abi::Guarded([&]() -> Status {
    if (auto ok = abi::CheckClient(client); !ok) return ok;
    auto& session = *client->session;
    if (session.forked()) return session.Alive();
    const auto& counters = session.counters();
    const auto& figures = session.channel().figures();
    return abi::WriteView<tier_stats_view>(
        {0, counters.copied_to_tensors_bytes, counters.copied_from_tensors_bytes, counters.acquires, figures.waits,
         figures.wait_ns, session.leases_open(), session.windows().mapped_count(), session.stitched_count(),
         session.pinned().count()},
        view);
  });
}

}  // extern "C"

// Opening, serving and closing a session. Leases: session_leases.cc.
#include "libclient/client/session.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "libclient/client/fork_guard.h"
#include "proto/start_thread.h"

namespace tier::client {
namespace {

constexpr int kGoodbyeTimeoutMs = 2000;  // A daemon that takes longer to see us go is not worth waiting for.

Status CheckRegion(const proto::Mapping& region, const proto::Mapping& engine, const proto::Welcome& welcome) {
  const auto& header = *reinterpret_cast<const proto::SessionHeader*>(region.data());
  const auto& page = *reinterpret_cast<const proto::EnginePage*>(engine.data());
  if (header.magic != proto::kSessionMagic || header.layout_version != proto::kRingLayoutVersion ||
      header.request_entries != proto::kRequestEntries || header.completion_entries != proto::kCompletionEntries ||
      header.request_offset != proto::kRequestOffset || header.completion_offset != proto::kCompletionOffset ||
      page.magic != proto::kEngineMagic || header.epoch != welcome.epoch || header.session != welcome.session) {
    return Fail(Code::kVersion, "the daemon lays out its rings otherwise than this libtier (layout " +
                                    std::to_string(header.layout_version) + ", expected " +
                                    std::to_string(proto::kRingLayoutVersion) +
                                    "): install the libtier that came with the daemon");
  }
  return {};
}

}  // namespace

uint32_t Session::ForkGeneration() { return ForkGuard::Generation(); }

Result<Session*> Session::Open(const SessionOptions& options) {
  auto attachment = link::Attach(options.attach);
  if (!attachment) return std::unexpected(attachment.error());
  auto* const session = new Session;
  if (auto ready = session->Setup(options, std::move(*attachment)); !ready) {
    delete session;
    return std::unexpected(ready.error());
  }
  return session;
}

Status Session::Setup(const SessionOptions& options, link::Attachment attachment) {
  generation_ = ForkGeneration();
  window_timeout_ = options.window_timeout;
  late_check_period_ = options.late_check_period;
  welcome_ = attachment.welcome;
  socket_path_ = attachment.socket_path;
  if (auto mapped = MapRegions(attachment); !mapped) return mapped;
  auto windows = WindowMap::Reserve(welcome_.windows_max, welcome_.address_space_size);
  if (!windows) return std::unexpected(windows.error());
  windows_ = std::move(*windows);
  stitches_ = std::make_unique<StitchCache>(*windows_, StitchCache::DefaultVmasMax());
  pinned_ = std::make_unique<PinnedWindows>(*windows_);
  stop_ = proto::FileDescriptor(::eventfd(0, EFD_CLOEXEC));
  if (!stop_) return Fail(Code::kNoMemory, std::string("eventfd: ") + std::strerror(errno));
  socket_ = std::move(attachment.socket);
  doorbell_ = std::move(attachment.doorbell);
  ChannelOptions channel{.spin = options.spin, .lateness_max = options.lateness_max};
  if (welcome_.request_timeout_ms != 0)
    channel.request_timeout = std::chrono::milliseconds(welcome_.request_timeout_ms);
  channel_ = std::make_unique<Channel>(region_.data(), reinterpret_cast<const proto::EnginePage*>(engine_page_.data()),
                                       doorbell_.get(), channel);
  auto service = proto::StartThread("tier-service", proto::BlockedSignals::kAll, [this] { Serve(); });
  if (!service) return std::unexpected(service.error());
  service_ = std::move(*service);
  ForkGuard::CloseInChild(socket_.get());
  ForkGuard::CloseInChild(doorbell_.get());
  return {};
}

Status Session::MapRegions(const link::Attachment& attachment) {
  auto region =
      proto::Mapping::Map(attachment.session_region.get(), 0, proto::kSessionRegionSize, proto::Access::kReadWrite);
  if (!region) return std::unexpected(region.error());
  auto engine = proto::Mapping::Map(attachment.engine_page.get(), 0, kPageSize, proto::Access::kReadOnly);
  if (!engine) return std::unexpected(engine.error());
  region_ = std::move(*region);
  engine_page_ = std::move(*engine);
  if (::madvise(region_.data(), region_.size(), MADV_DONTFORK) != 0) {
    return Fail(Code::kIoError, std::string("cannot keep the rings out of forked children: ") + std::strerror(errno));
  }
  return CheckRegion(region_, engine_page_, welcome_);
}

Session::~Session() {
  if (service_.joinable()) service_.detach();  // Only in a forked child, where the thread does not exist.
}

void Session::Drop(uint64_t users) {
  // A child has no threads of ours and locks in unknown states: it leaves its copy to the end of the process.
  if (users_.fetch_sub(users, std::memory_order_acq_rel) == users && !forked()) delete this;
}

Status Session::Alive() const {
  if (forked()) {
    return Fail(Code::kDisconnected,
                "this process was forked from the one that opened the client, and a client does "
                "not live on in a child: call tier_connect here, after fork()");
  }
  if (channel_->ended()) return std::unexpected(channel_->end_reason());
  return {};
}

Status Session::Enter() {
  if (auto alive = Alive(); !alive) return alive;
  if (auto failure = channel_->TakeReleaseFailure()) {
    return Fail(failure->code, "an earlier release failed, and this call has done nothing: " + failure->message);
  }
  return {};
}

void Session::End(Code code, std::string message) {
  channel_->End(code, std::move(message));
  windows_->Stop();
}

void Session::Close() {
  if (forked() || closed_.exchange(true)) return;
  proto::Goodbye goodbye{link::MakeHeader(proto::PacketKind::kGoodbye, sizeof(proto::Goodbye))};
  const bool was_alive = !channel_->ended();
  End(Code::kStale, "this client was closed");
  if (was_alive && link::Send(socket_.get(), &goodbye, sizeof goodbye)) {
    // The daemon hangs up when it has reclaimed the session; the service thread reads on until then.
    pollfd hang_up{socket_.get(), POLLRDHUP, 0};
    while (::poll(&hang_up, 1, kGoodbyeTimeoutMs) < 0 && errno == EINTR) continue;
  }
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(stop_.get(), &one, sizeof one);
  service_.join();
  ForkGuard::Release(socket_.get());
  ForkGuard::Release(doorbell_.get());
  socket_.Reset();
  pinned_->UnpinAll();
  stitches_->DropAll();
  windows_->UnmapAll();
}

void Session::Serve() {
  while (true) {
    pollfd entries[2] = {{socket_.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}};
    const int ready = ::poll(entries, 2, static_cast<int>(late_check_period_.count()));
    if (ready == 0) CheckForLate();
    if (ready < 0 && errno != EINTR) {
      return End(Code::kDisconnected, std::string("poll on the daemon's socket failed: ") + std::strerror(errno));
    }
    if (entries[1].revents != 0) return;
    if (entries[0].revents != 0 && !ServePacket()) return;
  }
}

void Session::CheckForLate() {
  auto on_time = channel_->CheckForLate(late_check_period_);
  if (on_time || channel_->ended()) return;
  End(on_time.error().code, on_time.error().message + " (socket " + socket_path_ +
                                "): the session was ended. See the daemon's log, restart it, and connect again");
}

bool Session::ServePacket() {
  link::Packet packet;
  if (auto got = link::Receive(socket_.get(), Clock::now(), packet); !got) {
    if (got.error().code == Code::kTimeout) return true;
    const char* advice = welcome_.reconnect_timeout_ms == 0
                             ? ": it was stopped or it crashed; connect again once it runs"
                             : ": connect again once it has been restarted";
    End(Code::kDisconnected, got.error().message + " (socket " + socket_path_ + ")" + advice);
    return false;
  }
  switch (packet.kind()) {
    case proto::PacketKind::kWindow: TakeWindow(packet); return true;
    case proto::PacketKind::kWindowReturn: ReturnWindow(packet); return true;
    case proto::PacketKind::kSessionEnd: {
      const auto& end = packet.As<proto::SessionEnd>();
      End(end.code != 0 && end.code < kCodeCount ? static_cast<Code>(end.code) : Code::kRevoked, end.message);
      return true;  // Until the hang-up: a daemon may still want windows back.
    }
    default: End(Code::kDisconnected, "the daemon sent a second welcome: the session was ended"); return false;
  }
}

void Session::TakeWindow(link::Packet& packet) {
  const auto& message = packet.As<proto::WindowPacket>();
  if (packet.descriptor_count != 1) return End(Code::kDisconnected, "the daemon sent a window without its descriptor");
  const int descriptor = packet.descriptors[0].get();
  // First: once it is mapped, another thread may stitch a view of it.
  if (message.page_size != kPageSize)
    stitches_->KeepDescriptor(message.window, proto::FileDescriptor(::fcntl(descriptor, F_DUPFD_CLOEXEC, 0)));
  if (auto mapped = windows_->Map(message, descriptor); !mapped) {
    return End(mapped.error().code, mapped.error().message + ": the session was ended");
  }
}

void Session::ReturnWindow(const link::Packet& packet) {
  const uint32_t window = packet.As<proto::WindowReturnPacket>().window;
  if (auto unpinned = pinned_->Unpin(window); !unpinned) return End(unpinned.error().code, unpinned.error().message);
  stitches_->DropWindow(window);
  if (auto unmapped = windows_->Unmap(window); !unmapped) {
    return End(Code::kDisconnected, unmapped.error().message + ": the session was ended");
  }
  proto::WindowReturnPacket answer{link::MakeHeader(proto::PacketKind::kWindowReturned, sizeof answer), window, 0};
  // A failure means the daemon is gone, which the next receive will say.
  (void)link::Send(socket_.get(), &answer, sizeof answer);
}

}  // namespace tier::client

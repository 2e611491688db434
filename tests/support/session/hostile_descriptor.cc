#include "tests/support/session/hostile_descriptor.h"

#include <fcntl.h>
#include <linux/fuse.h>
#include <linux/io_uring.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <vector>

#include "proto/mapping.h"

namespace tier::session::testing {
namespace {

constexpr unsigned kFuseServerSeconds = 60;  // A test that crashes leaves nobody in state D for longer.

template <typename Body>
void Answer(int fuse, uint64_t unique, const Body& body) {
  struct {
    fuse_out_header header;
    Body body;
  } answer{{.len = sizeof(fuse_out_header) + sizeof(Body), .error = 0, .unique = unique}, body};
  (void)!::write(fuse, &answer, answer.header.len);
}

// Answers what an open() needs and nothing else: a FLUSH is never answered.
[[noreturn]] void ServeFuse(int fuse) {
  alignas(8) static std::array<char, 1 << 17> buffer;
  for (;;) {
    if (::read(fuse, buffer.data(), buffer.size()) <= 0) ::_exit(0);
    fuse_in_header request;
    std::memcpy(&request, buffer.data(), sizeof(request));
    if (request.opcode == FUSE_INIT) {
      fuse_init_out out{};
      out.major = FUSE_KERNEL_VERSION;
      out.minor = 31;
      out.max_write = 4096;
      Answer(fuse, request.unique, out);
    } else if (request.opcode == FUSE_GETATTR) {
      fuse_attr_out out{};
      out.attr.ino = 1;
      out.attr.mode = S_IFREG | 0666;
      out.attr.nlink = 1;
      Answer(fuse, request.unique, out);
    } else if (request.opcode == FUSE_OPEN) {
      Answer(fuse, request.unique, fuse_open_out{.fh = 1, .open_flags = FOPEN_DIRECT_IO, .padding = 0});
    }
  }
}

// In the child: a mount namespace of its own with a FUSE file at `path`. Exits if that cannot be had.
[[noreturn]] void RunFuseServer(const char* path, int ready) {
  ::alarm(kFuseServerSeconds);
  const int fuse = ::open("/dev/fuse", O_RDWR | O_CLOEXEC);
  std::array<char, 96> options;
  (void)std::snprintf(options.data(), options.size(), "fd=%d,rootmode=100000,user_id=0,group_id=0", fuse);
  const bool mounted = fuse >= 0 && ::unshare(CLONE_NEWNS) == 0 &&
                       ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                       ::mount("tierd-test", path, "fuse", MS_NOSUID | MS_NODEV, options.data()) == 0;
  if (!mounted) ::_exit(1);
  (void)!::write(ready, "r", 1);
  ServeFuse(fuse);
}

class FuseFile final : public HostileDescriptor {
 public:
  explicit FuseFile(std::string* why_not) {
    char pattern[] = "/tmp/tier-fuse-XXXXXX";
    place_ = proto::FileDescriptor(::mkstemp(pattern));
    path_ = pattern;
    int pipe_fds[2];
    if (!place_ || ::pipe2(pipe_fds, O_CLOEXEC) != 0) return;
    const proto::FileDescriptor ready(pipe_fds[0]);
    proto::FileDescriptor child_end(pipe_fds[1]);
    server_ = ::fork();
    if (server_ == 0) RunFuseServer(pattern, child_end.get());
    child_end.Reset();
    char byte = 0;
    if (::read(ready.get(), &byte, 1) != 1) {
      *why_not = "a FUSE file cannot be mounted here (needs root and /dev/fuse)";
      return;
    }
    // The server's mount namespace, seen through its root.
    const std::string inside = "/proc/" + std::to_string(server_) + "/root" + path_;
    file_ = proto::FileDescriptor(::open(inside.c_str(), O_RDWR | O_CLOEXEC));
    if (!file_) *why_not = std::string("the FUSE file cannot be opened: ") + std::strerror(errno);
  }
  ~FuseFile() override {
    if (server_ > 0) {
      // With its last descriptor of /dev/fuse the connection is aborted: a thread that waits for an answer gets
      // ENOTCONN.
      ::kill(server_, SIGKILL);
      ::waitpid(server_, nullptr, 0);
    }
    (void)::unlink(path_.c_str());
  }
  int fd() const override { return file_.get(); }

 private:
  pid_t server_ = -1;
  std::string path_;
  proto::FileDescriptor place_;
  proto::FileDescriptor file_;
};

class LingeringSocket final : public HostileDescriptor {
 public:
  LingeringSocket() {
    const proto::FileDescriptor listening(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto* const place = reinterpret_cast<sockaddr*>(&address);
    ours_ = proto::FileDescriptor(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const bool connected = ::bind(listening.get(), place, size) == 0 && ::listen(listening.get(), 1) == 0 &&
                           ::getsockname(listening.get(), place, &size) == 0 &&
                           ::connect(ours_.get(), place, size) == 0;
    if (!connected) {
      ours_.Reset();
      return;
    }
    peer_ = proto::FileDescriptor(::accept4(listening.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const linger wait = {.l_onoff = 1, .l_linger = 600};
    (void)::setsockopt(ours_.get(), SOL_SOCKET, SO_LINGER, &wait, sizeof(wait));
    const std::vector<char> bytes(1 << 16);
    while (::send(ours_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT) > 0) continue;
  }
  ~LingeringSocket() override {
    const linger none = {.l_onoff = 1, .l_linger = 0};
    (void)::setsockopt(peer_.get(), SOL_SOCKET, SO_LINGER, &none, sizeof(none));
    peer_.Reset();  // A reset: nothing is left to wait for.
  }
  int fd() const override { return ours_.get(); }
  void DropOwn() override { ours_.Reset(); }

 private:
  proto::FileDescriptor peer_;  // Reads nothing.
  proto::FileDescriptor ours_;
};

class FullPipe final : public HostileDescriptor {
 public:
  FullPipe() {
    int pipe_fds[2];
    if (::pipe2(pipe_fds, O_CLOEXEC | O_NONBLOCK) != 0) return;
    reader_ = proto::FileDescriptor(pipe_fds[0]);
    writer_ = proto::FileDescriptor(pipe_fds[1]);
    const std::vector<char> bytes(1 << 16);
    while (::write(writer_.get(), bytes.data(), bytes.size()) > 0) continue;
    (void)::fcntl(writer_.get(), F_SETFL, 0);  // A write to it waits.
  }
  int fd() const override { return writer_.get(); }
  void DropOwn() override { writer_.Reset(); }

 private:
  proto::FileDescriptor reader_;
  proto::FileDescriptor writer_;
};

class IoUring final : public HostileDescriptor {
 public:
  IoUring() {
    io_uring_params params{};
    ring_ = proto::FileDescriptor(static_cast<int>(::syscall(SYS_io_uring_setup, 8, &params)));
  }
  int fd() const override { return ring_.get(); }
  void DropOwn() override { ring_.Reset(); }

 private:
  proto::FileDescriptor ring_;
};

std::unique_ptr<HostileDescriptor> MakeKind(HostileKind kind, std::string* why_not) {
  switch (kind) {
    case HostileKind::kFuseFile: return std::make_unique<FuseFile>(why_not);
    case HostileKind::kLingeringSocket: return std::make_unique<LingeringSocket>();
    case HostileKind::kFullPipe: return std::make_unique<FullPipe>();
    case HostileKind::kIoUring: return std::make_unique<IoUring>();
  }
  return nullptr;
}

}  // namespace

std::string_view HostileKindName(HostileKind kind) {
  switch (kind) {
    case HostileKind::kFuseFile: return "FuseFile";
    case HostileKind::kLingeringSocket: return "LingeringSocket";
    case HostileKind::kFullPipe: return "FullPipe";
    case HostileKind::kIoUring: return "IoUring";
  }
  return "?";
}

std::unique_ptr<HostileDescriptor> HostileDescriptor::Make(HostileKind kind, std::string* why_not) {
  *why_not = std::string(HostileKindName(kind)) + " cannot be made here: " + std::strerror(errno);
  auto made = MakeKind(kind, why_not);
  return made != nullptr && made->fd() >= 0 ? std::move(made) : nullptr;
}

int SendDescriptor(int socket, int descriptor, std::string_view bytes) {
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int))> control{};
  iovec part = {.iov_base = const_cast<char*>(bytes.data()), .iov_len = bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* rights = CMSG_FIRSTHDR(&message);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(rights), &descriptor, sizeof(descriptor));
  return ::sendmsg(socket, &message, MSG_NOSIGNAL) >= 0 ? 0 : errno;
}

void AllowDescriptors(int socket) {
  constexpr int kPassRights = 83;  // SO_PASSRIGHTS; not in older headers.
  const int on = 1;
  (void)::setsockopt(socket, SOL_SOCKET, kPassRights, &on, sizeof(on));  // An older kernel allows them anyway.
}

size_t OpenDescriptors() {
  const std::filesystem::directory_iterator own("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(own), end(own)));
}

}  // namespace tier::session::testing

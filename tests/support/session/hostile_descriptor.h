// Descriptors whose last close is the closer's problem: what a hostile client sends in place of an honest one. Making
// one needs what the kind needs (root and /dev/fuse for the FUSE file); the reason why it cannot be made is for the
// skip message.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace tier::session::testing {

enum class HostileKind {
  kFuseFile,         // Its server never answers FLUSH: close() waits in state D, beyond SIGKILL.
  kLingeringSocket,  // TCP with unsent bytes and SO_LINGER: the last reference to go waits for minutes.
  kFullPipe,
  kIoUring,
};
inline constexpr HostileKind kHostileKinds[] = {HostileKind::kFuseFile, HostileKind::kLingeringSocket,
                                                HostileKind::kFullPipe, HostileKind::kIoUring};
inline constexpr int kHostileWaitMs = 20'000;  // Longer than any loaded machine needs, and far shorter than a linger.
std::string_view HostileKindName(HostileKind kind);

class HostileDescriptor {
 public:
  // Null with the reason in `why_not`. Make it before the threads of the test start: one kind forks.
  static std::unique_ptr<HostileDescriptor> Make(HostileKind kind, std::string* why_not);
  // A thread that waits in a close of it goes on.
  virtual ~HostileDescriptor() = default;

  virtual int fd() const = 0;
  // Drops this process's own reference where that does not wait, so that the reference in flight is the last.
  virtual void DropOwn() {}
};

// Sends one byte, or `bytes`, with a descriptor. 0, or the errno of the refusal.
int SendDescriptor(int socket, int descriptor, std::string_view bytes = "x");

// Takes back what RefuseDescriptors did, so that a newer kernel behaves as one before 6.16.
void AllowDescriptors(int socket);

size_t OpenDescriptors();  // Of this process.

}  // namespace tier::session::testing

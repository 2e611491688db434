// The messages on the data socket (`tierd.sock`, AF_UNIX SOCK_SEQPACKET): one packet is one message, descriptors travel
// with it by SCM_RIGHTS, from the daemon to the client only. The client speaks first with Hello; the daemon answers
// Welcome (+ session region, engine page, doorbell eventfd) or a refusal and closes. After that the daemon sends
// windows and the end of the session, the client gives windows back.
//
// A client that sends a descriptor gets EPERM from its kernel (6.16), or is refused by the daemon. A daemon that cannot
// ask its kernel for the process behind the socket (before 6.5) sends ProcessChallenge before Welcome. The client
// answers with ProcessProof: the kernel tells the daemon which process sent that.
//
// The client reserves one range of addresses, address_space_size long, and maps each window at its place there. A place
// is a multiple of the window's size, and no two windows that a client has overlap: the daemon gives a place to another
// window only when every session has returned the one that lay there.
//
// Fixed sizes, little-endian, text NUL-terminated inside its array, reserved fields zero. A packet of another size, an
// unknown kind, a missing NUL or an unexpected number of descriptors is refused with INVALID and the connection closed.
#pragma once

#include <cstddef>
#include <cstdint>

#include "proto/codes.h"
#include "proto/window_kind.h"

namespace tier::proto {

inline constexpr uint64_t kHandshakeMagic = 0x4f4c4c4548524554;  // "TERHELLO"
// 2: windows have a kind, a size and a place. 3: an acquire may say the tensor's size, and its answer which content it
// has. 4: Hello may name a NUMA node. 5: an acquire may want its blocks side by side. 6: a job may be opened by
// kResumeOrCreate, and Welcome says whether it was resumed. 7: a release may say that the content is not used soon.
// 8: a tensor may be transient.
inline constexpr uint16_t kProtocolVersion = 8;
inline constexpr uint16_t kProtocolVersionMin = 8;

inline constexpr int kNumaNodesMax = 1024;  // Numbers of NUMA nodes are below this, as those of the kernel.

inline constexpr uint32_t kJobNameSize = 128;   // With the NUL. [A-Za-z0-9._:/@-]+
inline constexpr uint32_t kTokenSize = 65;      // 64 hexadecimal digits or empty.
inline constexpr uint32_t kLaunchSize = 512;    // With the NUL.
inline constexpr uint32_t kMessageSize = 1024;  // A sentence, with the NUL.

enum class PacketKind : uint16_t {
  kHello = 1,             // client → daemon
  kWelcome = 2,           // daemon → client, + 3 descriptors (only when code is OK)
  kWindow = 3,            // daemon → client, + 1 descriptor: this window may now appear in spans
  kWindowReturn = 4,      // daemon → client: unmap and unregister this window, then answer kWindowReturned
  kWindowReturned = 5,    // client → daemon
  kSessionEnd = 6,        // daemon → client: REVOKED or DISCONNECTED (orderly stop) with the reason
  kGoodbye = 7,           // client → daemon: orderly end; everything the session held is reclaimed
  kProcessChallenge = 8,  // daemon → client, at most once and before kWelcome
  kProcessProof = 9,      // client → daemon: the same nonce, sent by the process that connected
};

enum class OpenMode : uint16_t {
  kAttach = 0,          // Create when absent, else join. The default.
  kCreate = 1,          // ALREADY_EXISTS on a live job.
  kJoin = 2,            // NOT_FOUND when absent; needs the token.
  kResume = 3,          // A named job without live sessions, or the one that another rank of the run resumed.
  kResumeOrCreate = 4,  // As kResume, where the job persisted something; else a new named job.
};

struct PacketHeader {
  uint64_t magic;
  uint16_t kind;     // PacketKind
  uint16_t version;  // Of the sender; Hello also carries the oldest it can speak.
  uint32_t size;     // Of the whole packet in bytes.
};

struct Hello {
  PacketHeader header;
  uint16_t version_min;
  uint16_t mode;   // OpenMode
  uint16_t named;  // 1: keep the job until it is removed.
  // 1 + the NUMA node that memory for this client should come from, if it has any: that of its GPU, or of its
  // processors. 0: any.
  uint16_t numa_node;
  int32_t rank;        // -1: not part of a world.
  int32_t world_size;  // 0: not part of a world.
  int32_t pid;         // As the client sees itself; for display only.
  uint32_t reserved1;
  uint64_t guarantee_bytes;  // 0: the default share.
  uint64_t limit_bytes;      // 0: none.
  char job[kJobNameSize];
  char token[kTokenSize];
  char client[63];  // "libtier 0.1.0 (python 3.11)": for display only.
  // What all ranks of one launch share (torchrun's run id, address, port and restart, or Slurm's job and step), and
  // empty with a token. It is no secret: among the processes of one uid it says which of them join the job without a
  // token.
  char launch[kLaunchSize];
};

struct Welcome {
  PacketHeader header;
  uint16_t code;                // Code; the fields behind `message` are zero unless OK.
  uint16_t resumed;             // 1: the job was opened from its manifest, by kResume or kResumeOrCreate.
  uint32_t request_timeout_ms;  // What kTimeoutDefault means in requests. 0: not told, 60 s.
  char message[kMessageSize];
  uint64_t epoch;
  uint64_t session;
  uint64_t job;
  uint64_t window_size;           // Bytes of the largest windows. Each window's packet says its own size.
  uint64_t address_space_size;    // Bytes of addresses to reserve: twice the arena.
  uint32_t windows_max;           // Window indices are below this.
  uint32_t reconnect_timeout_ms;  // 0: this daemon is not restarted; a hang-up is final.
  uint64_t session_region_size;
  char job_name[kJobNameSize];  // As opened (a suffix may have been added).
  char token[kTokenSize];       // For other ranks to join; hand it on by TIERD_JOB_TOKEN.
  char daemon[63];              // "tierd 0.1.0".
};

struct WindowPacket {  // kWindow
  PacketHeader header;
  uint32_t window;
  uint16_t kind;  // WindowKind
  uint16_t reserved0;
  uint32_t page_size;  // 4096, or 2 MiB: block windows only.
  uint32_t reserved1;
  uint64_t size;   // Bytes, a power of two.
  uint64_t place;  // Byte offset in the reserved range, a multiple of size; place + size ≤ address_space_size.
};

struct WindowReturnPacket {  // kWindowReturn, kWindowReturned
  PacketHeader header;
  uint32_t window;
  uint32_t reserved0;
};

struct SessionEnd {
  PacketHeader header;
  uint16_t code;  // Code
  uint16_t reserved0;
  uint32_t reserved1;
  char message[kMessageSize];
};

struct Goodbye {
  PacketHeader header;
};

struct ProcessPacket {  // kProcessChallenge, kProcessProof
  PacketHeader header;
  uint64_t nonce;
};

static_assert(sizeof(PacketHeader) == 16);
static_assert(sizeof(Hello) == 16 + 8 + 16 + 16 + kJobNameSize + kTokenSize + 63 + kLaunchSize);
static_assert(offsetof(Hello, guarantee_bytes) == 40 && offsetof(Hello, job) == 56);
static_assert(sizeof(Welcome) == 16 + 8 + kMessageSize + 7 * 8 + kJobNameSize + kTokenSize + 63);
static_assert(offsetof(Welcome, epoch) == 24 + kMessageSize);
static_assert(sizeof(WindowPacket) == 48 && offsetof(WindowPacket, size) == 32 && offsetof(WindowPacket, place) == 40);
static_assert(sizeof(WindowReturnPacket) == 24 && sizeof(SessionEnd) == 24 + kMessageSize &&
              sizeof(ProcessPacket) == 24);

inline constexpr uint32_t kPacketSizeMax = sizeof(Welcome);
inline constexpr uint32_t kPacketDescriptorsMax = 3;

}  // namespace tier::proto

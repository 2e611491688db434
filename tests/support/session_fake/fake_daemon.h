// FakeDaemon: one thread that serves the handshake and the rings from memory, and breaks every rule it is told to.
//
// Threads: the methods may be called from any; switches take effect with the next packet or request. The serving thread
// sleeps in poll(); doorbells ring as the page says (kSleeping, until SaySleeping).
// Invariant: answers leave in the order of requests, except for those of held ops.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "proto/handshake.h"
#include "proto/mapping.h"
#include "proto/ring.h"

namespace tier::session_fake {

struct FakeOptions {
  uint32_t windows = 8;
  uint64_t window_size = 4 * kMiB;
  bool scatter = false;  // Blocks are handed out last to first: nothing is contiguous.
  uint32_t page_size = kPageSize;
  std::function<void(proto::Welcome&)> spoil_welcome;      // Changes it before it is sent.
  std::function<void(proto::WindowPacket&)> spoil_window;  // Likewise each window's packet.
  uint16_t protocol_version = proto::kProtocolVersion;
  Code refusal = Code::kOk;         // Of every hello.
  bool windows_late = false;        // Until SendWindows().
  bool silent = false;              // Hello gets no answer.
  bool wants_token = false;         // From the second hello on: ALREADY_EXISTS without the token of the welcome.
  bool challenges = false;          // Hello gets a challenge, and its answer the welcome.
  uint32_t request_timeout_ms = 0;  // As the welcome says.
};

// What a test may want to know of what clients did.
struct FakeCounters {
  std::atomic<uint64_t> requests[proto::kOpCount] = {};
  std::atomic<uint64_t> abandoned{0};   // Write leases given up …
  std::atomic<uint64_t> untouched{0};   // … of which under these nothing was written.
  std::atomic<uint64_t> contiguous{0};  // Acquires that want blocks side by side.
  std::atomic<uint64_t> goodbyes{0};
  std::atomic<uint64_t> windows_returned{0};
  std::atomic<uint64_t> descriptors{0};  // Packets that carried some.
};

class FakeDaemon {
 public:
  explicit FakeDaemon(const FakeOptions& options = {});
  ~FakeDaemon();
  FakeDaemon(const FakeDaemon&) = delete;
  FakeDaemon& operator=(const FakeDaemon&) = delete;

  const std::string& socket_path() const { return socket_path_; }
  const FakeCounters& counters() const { return counters_; }

  // Requests of this op, behind `skip` of them, are not answered until Resume, which answers all at once: no client
  // sees one without the others.
  void Hold(proto::Op op, uint32_t skip = 0);
  void Resume();
  // A request of this op gets this code: the next one, or the one after `skip` others.
  void Refuse(proto::Op op, Code code, std::string detail, uint32_t skip = 0);
  // As another session with a write lease: writes a whole tensor before each acquire, behind `skip` of them.
  void RewriteBeforeAcquires(uint64_t tensor, std::vector<std::byte> content, uint32_t skip, uint32_t count = 1);
  // The same once, by a tensor of its own with the same name.
  void ReplaceBeforeAcquires(uint64_t tensor, std::vector<std::byte> content, uint32_t skip);
  // The next answer to a create or acquire is changed by this before it is published.
  void Distort(std::function<void(std::vector<proto::CompletionEntry>&)> distortion);

  // What the engine page says from now on: one of proto::kAwake and its neighbours.
  void SaySleeping(uint32_t sleeping);
  void SendWindows();
  void AskBack(uint32_t window);
  void EndSessions(Code code, const std::string& reason);
  void HangUp();
  // Raises the completion ring's tail beyond the ring's size.
  void BreakTail();

  // Blocks until `predicate` holds; it is looked at after every event the fake has served.
  void Await(const std::function<bool()>& predicate);
  uint64_t leases_open() const { return leases_open_.load(); }
  uint64_t held() const { return held_count_.load(); }

 private:
  struct Tensor {
    uint64_t size = 0;
    std::vector<uint64_t> blocks;           // Offsets in the fake's memory, one per block.
    std::map<uint64_t, uint64_t> unsealed;  // Ranges not sealed yet: offset → length.
    bool torn = false;
    uint64_t generation = 0;  // Write leases granted.
    uint64_t content = 0;     // proto/message.h
    uint64_t serial = 0;      // Tells it from others that have had its name.
  };
  struct Lease {
    uint64_t tensor;
    uint64_t offset;
    uint64_t length;
    bool write;
    uint64_t serial;  // Of its tensor.
  };
  struct Client;
  struct Request {
    proto::RequestHeader header;
    std::vector<proto::RequestItem> items;
    std::string text;
  };
  struct Answer {
    Code code = Code::kOk;
    uint64_t value = 0;
    std::vector<proto::CompletionRecord> records;
    std::string detail;
  };

  void Serve();
  void Accept();
  bool ReadPacket(Client& client);
  bool Challenge(Client& client);
  void Greet(Client& client);
  void SendWindowsTo(Client& client);
  void TakeRequests(Client& client);
  void HandleRequest(Client& client, Request request);
  Answer Execute(const Request& request);
  Answer Grant(const Request& request, bool create);
  Answer Release(const Request& request);
  Answer Free(const Request& request);
  bool CreateTensor(const proto::RequestItem& item);
  void AppendSpans(const Tensor& tensor, uint64_t lease, uint32_t item, const Lease& range, Answer& answer);
  void RewriteIfDue();
  void Publish(Client& client, const proto::RequestHeader& request, const Answer& answer);
  void PublishEntries(Client& client, const std::vector<proto::CompletionEntry>& entries);
  void SendTo(Client& client, const void* message, uint32_t size, int fd = -1);
  void Wake();

  const FakeOptions options_;
  std::string directory_;
  std::string socket_path_;
  proto::FileDescriptor listener_;
  proto::FileDescriptor wake_;
  proto::FileDescriptor engine_page_fd_;
  proto::Mapping engine_page_;
  std::vector<proto::FileDescriptor> windows_;
  FakeCounters counters_;
  std::atomic<uint64_t> leases_open_{0};
  std::atomic<uint64_t> held_count_{0};

  bool job_is_open_ = false;  // Since the first hello. Of the serving thread alone.
  std::mutex mutex_;          // Guards everything below.
  std::condition_variable served_;
  std::list<std::unique_ptr<Client>> clients_;
  std::map<uint64_t, Tensor> tensors_;
  std::map<uint64_t, Lease> leases_;
  std::vector<uint64_t> free_blocks_;
  std::map<std::string, uint64_t> keys_;
  uint64_t next_lease_ = 1;
  uint64_t next_serial_ = 1;
  uint64_t last_content_ = 0;
  bool resuming_ = false;
  std::map<proto::Op, uint32_t> holding_;  // How many pass before.
  struct Refusal {
    Answer answer;
    uint32_t skip;
  };
  std::map<proto::Op, Refusal> refusals_;
  struct Rewriting {
    uint64_t tensor = 0;
    std::vector<std::byte> content;
    uint32_t skip = 0;
    uint32_t count = 0;
    bool replaces = false;  // As often written as the tensor before it.
  };
  Rewriting rewriting_;
  std::function<void(std::vector<proto::CompletionEntry>&)> distortion_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace tier::session_fake

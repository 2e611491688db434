// EnginePort: the engine as the session layer uses it. The daemon's is tiering::Engine behind EngineAdapter; tests of
// rings and sessions put a small scripted one here. Engine thread only; contracts as in daemon/tiering/engine.h.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "daemon/tiering/engine.h"

namespace tier::session {

class EnginePort {
 public:
  virtual ~EnginePort() = default;
  virtual Status OpenJob(tiering::JobId job, const tiering::JobOptions& options) = 0;
  virtual Status SetJob(tiering::JobId job, std::optional<uint64_t> guarantee_bytes,
                        std::optional<uint64_t> limit_bytes) = 0;
  virtual void CloseJob(tiering::JobId job, const std::string& reason, bool purge) = 0;
  virtual Status OpenSession(tiering::SessionId session, tiering::JobId job) = 0;
  virtual void EndSession(tiering::SessionId session, const std::string& reason) = 0;
  virtual void WindowReturned(tiering::SessionId session, WindowIndex window) = 0;
  virtual void Submit(tiering::SessionId session, const tiering::Request& request) = 0;
  virtual bool TakesRequests() const = 0;
  virtual Status FlushJob(tiering::JobId job, uint64_t sequence, uint32_t timeout_ms) = 0;
  virtual bool Turn(base::TimePoint now) = 0;
  virtual std::optional<base::TimePoint> NextDeadline() const = 0;
  virtual void StartDrain(const std::string& reason) = 0;
  virtual bool idle() const = 0;
  virtual bool ReleasesCanWait() const = 0;
  virtual Status StartDrainDevice(uint16_t device) = 0;
  virtual tiering::EngineSnapshot Snapshot() const = 0;
  virtual tiering::JobCounters Counters(tiering::JobId job) const = 0;
  virtual std::vector<tiering::TensorView> Tensors(tiering::JobId job, size_t max) const = 0;
  virtual std::vector<tiering::StoredManifest> StoredManifests(const std::string& prefix, size_t max) const = 0;
  virtual Status DeleteStoredManifest(const std::string& key) = 0;
};

class EngineAdapter final : public EnginePort {
 public:
  explicit EngineAdapter(tiering::Engine& engine) : engine_(engine) {}
  Status OpenJob(tiering::JobId job, const tiering::JobOptions& options) override {
    return engine_.OpenJob(job, options);
  }
  Status SetJob(tiering::JobId job, std::optional<uint64_t> guarantee_bytes,
                std::optional<uint64_t> limit_bytes) override {
    return engine_.SetJob(job, guarantee_bytes, limit_bytes);
  }
  void CloseJob(tiering::JobId job, const std::string& reason, bool purge) override {
    engine_.CloseJob(job, reason, purge);
  }
  Status OpenSession(tiering::SessionId session, tiering::JobId job) override {
    return engine_.OpenSession(session, job);
  }
  void EndSession(tiering::SessionId session, const std::string& reason) override {
    engine_.EndSession(session, reason);
  }
  void WindowReturned(tiering::SessionId session, WindowIndex window) override {
    engine_.WindowReturned(session, window);
  }
  void Submit(tiering::SessionId session, const tiering::Request& request) override {
    engine_.Submit(session, request);
  }
  bool TakesRequests() const override { return engine_.TakesRequests(); }
  Status FlushJob(tiering::JobId job, uint64_t sequence, uint32_t timeout_ms) override {
    return engine_.FlushJob(job, sequence, timeout_ms);
  }
  bool Turn(base::TimePoint now) override { return engine_.Turn(now); }
  std::optional<base::TimePoint> NextDeadline() const override { return engine_.NextDeadline(); }
  void StartDrain(const std::string& reason) override { engine_.StartDrain(reason); }
  bool idle() const override { return engine_.idle(); }
  bool ReleasesCanWait() const override { return engine_.ReleasesCanWait(); }
  Status StartDrainDevice(uint16_t device) override { return engine_.StartDrainDevice(device); }
  tiering::EngineSnapshot Snapshot() const override { return engine_.Snapshot(); }
  tiering::JobCounters Counters(tiering::JobId job) const override { return engine_.Counters(job); }
  std::vector<tiering::TensorView> Tensors(tiering::JobId job, size_t max) const override {
    return engine_.Tensors(job, max);
  }
  std::vector<tiering::StoredManifest> StoredManifests(const std::string& prefix, size_t max) const override {
    return engine_.StoredManifests(prefix, max);
  }
  Status DeleteStoredManifest(const std::string& key) override { return engine_.DeleteStoredManifest(key); }

 private:
  tiering::Engine& engine_;
};

}  // namespace tier::session

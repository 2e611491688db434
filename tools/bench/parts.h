// The parts of a measurement that tier_bench can run. Each prints JSON lines.
#pragma once

#include <cstdint>
#include <string>

namespace tier::bench {

struct PartOptions {
  std::string socket;
  uint64_t bytes = 0;  // Of one transfer, or of one window.
  uint64_t total = 0;  // Of all tensors together (SSD parts), or of all windows.
  uint32_t rounds = 15;
  uint32_t count = 1000;  // Of tensors or of operations, by part.
  uint32_t jobs = 1;      // Of a crowd.
  int spin = 0;           // TIER's spin: 0 auto, 1 always, 2 never.
  std::string file;       // Where what has no daemon writes, behind `offset` (SSD parts).
  uint64_t offset = 0;
  int cpu = 0;  // Where this process runs, and where its peer does (lease-idle).
  int peer_cpu = 0;
  std::string job = "bench";  // And its guarantee (loads, lease-shell); 0: its equal part.
  uint64_t guarantee = 0;
  double quantile = 0.99;  // Of the leases' times (lease-shell).
  uint32_t threads = 1;    // That make and punch windows (bare-windows) …
  bool collapse = false;   // … which are to be of huge pages, by MADV_COLLAPSE …
  bool pool = false;       // … or of the kernel's pool.
};

void SwapInRam(const PartOptions& options);     // swap_out, swap_in, memcpy of the same bytes.
void FusedPass(const PartOptions& options);     // swap_out plain, with check + norm.
void LeaseLatency(const PartOptions& options);  // acquire(read) + release, one at a time, busy.
void LeaseLatencyIdle(
    const PartOptions& options);         // The same after a pause, beside a bare futex round trip after the same pause.
void Crowd(const PartOptions& options);  // `count` sessions in `jobs` jobs that do nothing, until a line on stdin.
void LeaseShell(const PartOptions& options);  // Reads "hits" lines, answers each with a quantile of `count` leases, µs.
void LeaseRate(const PartOptions& options);   // Batched acquire + release, batched create + seal.
void ManyTensors(
    const PartOptions& options);  // Creates `count` one-page tensors, flushes, then waits for a line on stdin.
void SsdShell(const PartOptions& options);       // Reads "write", "read", "free" lines, answers each with GB/s.
void BareCopyShell(const PartOptions& options);  // Likewise "write" and "read", without a daemon.
// For each line "READ WRITTEN": moves so many bytes, with checksums and without a daemon. Seconds.
void BareMovesShell(const PartOptions& options);
// For each line: fills its guarantee with small tensors, frees most, asks for whole blocks, and frees all. Seconds.
void ScatterShell(const PartOptions& options);
// For each line: takes `bytes` in one request, frees them, and leaves a small tensor in each block of as many. Seconds.
void TakeShell(const PartOptions& options);
// Reads "populate" and "punch" lines, answers each with seconds. Without a daemon.
void BareWindowsShell(const PartOptions& options);

}  // namespace tier::bench

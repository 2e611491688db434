#include "daemon/config/options.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "daemon/base/edit_distance.h"
#include "daemon/storage/device_io.h"
#include "proto/units.h"

namespace tier::config {
namespace {

using base::EditDistance;

constexpr uint64_t kMillisecond = 1'000'000;
constexpr uint64_t kSecond = 1'000 * kMillisecond;
constexpr uint64_t kHour = 3'600 * kSecond;
constexpr uint64_t kTiB = 1024 * kGiB;

static_assert(storage::kIoDepthDefault == 64, "as ssd.queue_depth says below");

#define TIER_FIELD(member) [](Config& c) -> Field { return &c.member; }

constexpr auto kOptions = std::to_array<Option>({
    {"daemon.socket_directory", Kind::kText, Change::kAtRestart, TIER_FIELD(daemon.socket_directory), "\"\"",
     "Where tierd.sock, control.sock, admin.sock and tierd.lock lie.\n"
     "Empty: $XDG_RUNTIME_DIR/tierd; without that variable /run/tierd for root and for the user that this directory\n"
     "belongs to, and /tmp/tierd-UID for others."},
    {"daemon.data_directory", Kind::kText, Change::kAtRestart, TIER_FIELD(daemon.data_directory), "\"\"",
     "Where the SSD tier's file and the index lie.\n"
     "Empty: /var/lib/tierd for root, else $XDG_STATE_HOME/tierd (~/.local/state/tierd). A private daemon then keeps\n"
     "nothing: its file has no name, and is in $XDG_STATE_HOME/tierd for root too, else in /var/lib/tierd. Where\n"
     "neither XDG_STATE_HOME nor HOME is set no daemon of another user keeps anything: the file has no name, and is\n"
     "in /var/tmp. So is that of a private daemon without XDG_STATE_HOME whose user may not write to HOME."},
    {"daemon.admin_group", Kind::kText, Change::kAtRestart, TIER_FIELD(daemon.admin_group), "\"tierd\"",
     "Processes in this group may use admin.sock; root and the daemon's own user always may. A user who was just made\n"
     "a member logs in again first. For any group but the default the daemon's user has to be in it, by\n"
     "SupplementaryGroups= of the unit: else it may not give admin.sock to the group, which the log then says."},
    {"daemon.private", Kind::kBool, Change::kAtRestart, TIER_FIELD(daemon.is_private), "false",
     "A daemon that one program starts for itself: no TCP port, an SSD file without a name, only its own user;\n"
     "it ends 5 s after its last session, or 30 s after its starter died without any session."},
    {"daemon.starter_pid", Kind::kInteger, Change::kAtRestart, TIER_FIELD(daemon.starter_pid), "0",
     "The process that started a private daemon; 0: none.", 0, 1 << 30},
    {"arena.maximum", Kind::kSizeOrShare, Change::kAtRestart, TIER_FIELD(arena.maximum), "\"25%\"",
     "All memory that tensors may take, as a size or a share of the machine's (or the cgroup's) memory.", kBlockSize,
     1024 * kTiB},
    {"arena.minimum", Kind::kSizeOrShare, Change::kAtRunTime, TIER_FIELD(arena.minimum), "0",
     "What the arena keeps when the host, or a control group above the daemon, is short of memory: it gives nothing\n"
     "back below that. Memory under leases is never given back.",
     0, 1024 * kTiB},
    {"arena.window_size", Kind::kSize, Change::kAtRestart, TIER_FIELD(arena.window_size), "0",
     "Size of the largest windows, a power of two. 0: maximum / 2048, within 2 MiB and 1 GiB.\n"
     "A job's windows grow with what it holds, from 2 MiB on.",
     kWindowSizeMin, kWindowSizeMax},
    {"arena.prefault", Kind::kBool, Change::kAtRestart, TIER_FIELD(arena.prefault), "false",
     "Make all of the arena at start, instead of growing on demand."},
    {"arena.host_reserve", Kind::kSizeOrShare, Change::kAtRunTime, TIER_FIELD(arena.host_reserve), "0",
     "Memory that is left to everybody else, of the machine and of each control group above the daemon: the arena\n"
     "does not grow into it, and gives memory back when less than three quarters of it are left.\n"
     "0: a sixteenth of the memory, within 64 MiB and 16 GiB.",
     0, 1024 * kTiB},
    {"arena.huge_pages", Kind::kChoice, Change::kAtRestart, TIER_FIELD(arena.huge_pages), "\"auto\"",
     "2 MiB pages of the kernel's pool: auto takes what is there, always refuses to start without.\n"
     "Small tensors and tails lie in 4 KiB pages in any case.",
     0, UINT64_MAX, "auto|always|never"},
    {"arena.collapse", Kind::kChoice, Change::kAtRestart, TIER_FIELD(arena.collapse), "\"auto\"",
     "Whether windows without pages of the pool are made of transparent huge pages (MADV_COLLAPSE).", 0, UINT64_MAX,
     "auto|never"},
    {"arena.numa_node", Kind::kInteger, Change::kAtRestart, TIER_FIELD(arena.numa_node), "-1",
     "NUMA node that all memory comes from, and no other has to give any. -1: rather the node of the client's GPU, or\n"
     "of its processors where all are on one; else any.",
     static_cast<uint64_t>(int64_t{-1}), 1023},
    {"ssd.devices", Kind::kPaths, Change::kAtRestart, TIER_FIELD(ssd.devices), "[]",
     "Block devices or files of the SSD tier; foreign content is refused, never overwritten.\n"
     "Empty: one file, tier.ssd, in daemon.data_directory. [\"none\"]: no SSD tier."},
    {"ssd.file_size", Kind::kSize, Change::kAtRestart, TIER_FIELD(ssd.file_size), "0",
     "Size of each file of the SSD tier. A file that is made has it, or the start is refused where it does not fit.\n"
     "A smaller one that is there grows to it at the next start, and keeps all that it holds; where its disk lacks\n"
     "the room it serves as it is, and tierd says so. A larger one keeps its size: a file does not shrink.\n"
     "0: a file stays as it is, and one that is made has the smaller of 64 GiB and 25 % of the free space, or less,\n"
     "down to 1 GiB, so that 10 GiB and 10 % stay free. With less room and without ssd.devices there is no SSD tier:\n"
     "tensors stay in RAM.",
     64 * kMiB, 1024 * kTiB},
    {"ssd.engine", Kind::kChoice, Change::kAtRestart, TIER_FIELD(ssd.engine), "\"auto\"",
     "How devices are driven: auto takes io_uring where the machine allows it.", 0, UINT64_MAX,
     "auto|io_uring|threads"},
    {"ssd.queue_depth", Kind::kCount, Change::kAtRestart, TIER_FIELD(ssd.queue_depth), "64",
     "Requests at a time on one device.", 1, storage::kIoDepthMax},
    {"ssd.discard", Kind::kBool, Change::kAtRestart, TIER_FIELD(ssd.discard), "true",
     "Discard a block device's content when it is formatted."},
    {"ssd.drive_writes_per_day", Kind::kNumber, Change::kAtRunTime, TIER_FIELD(ssd.drive_writes_per_day), "0",
     "How often a day tierd may write over its areas of the SSD devices, so that they do not wear out early: the size\n"
     "of all these areas together times this is a budget in bytes. It counts what tierd writes there, not what others\n"
     "write to the same drives, nor what a drive writes for itself. What is not used is saved up, and what was "
     "written\n"
     "beyond it is paid back, both for an hour at most: until then nothing is written ahead of need, for prefetches\n"
     "neither, and jobs that would have turns, of as many bytes each. Some writes are never held back, and may exceed\n"
     "it: what requests wait for, what empties memory that another job or the host is owed, since that would come\n"
     "hours later, and what is moved off a device. 0: no budget; else at least 0.001.",
     0, 1000, "", 0.001},
    {"ssd.smart_file", Kind::kText, Change::kAtRunTime, TIER_FIELD(ssd.smart_file), "\"/run/tierd-smart/devices\"",
     "What tierd-smart (tierd-smart.timer) found out about the health of the devices; absent: nothing is known. It is\n"
     "read every 30 s, and another one within a second. Empty: it is not read."},
    {"ssd.any_file_system", Kind::kBool, Change::kAtRestart, TIER_FIELD(ssd.any_file_system), "false",
     "Take files on tmpfs, overlay and network file systems too, where direct I/O is slow or a pretence. For tests."},
    {"engine.spin", Kind::kChoice, Change::kAtRunTime, TIER_FIELD(engine.spin), "\"auto\"",
     "How the engine waits: auto looks for work for 20 us before it sleeps (not at all on fewer than 4 CPUs),\n"
     "always keeps looking for as long as nothing else wants its core, never sleeps at once.",
     0, UINT64_MAX, "auto|always|never"},
    {"engine.deadline", Kind::kDuration, Change::kAtRunTime, TIER_FIELD(engine.deadline), "\"60s\"",
     "How long a request waits for memory, SSD or a lease when its caller does not say. Another one is for processes\n"
     "that attach from then on.",
     10 * kMillisecond, 24 * kHour},
    {"engine.write_behind", Kind::kShare, Change::kAtRunTime, TIER_FIELD(engine.write_behind), "\"50%\"",
     "Unwritten bytes, of a job's share of memory, from which on the coldest are written to SSD ahead of need;\n"
     "earlier by what of the job's tensors does not fit in its share, at most by half.\n"
     "Of a tensor that is being created and cannot fit, the first are written at once."},
    {"engine.evict", Kind::kShare, Change::kAtRunTime, TIER_FIELD(engine.evict), "\"90%\"",
     "Use of a job's share of memory from which on clean, cold tensors leave it."},
    {"engine.prefetch_maximum", Kind::kSize, Change::kAtRunTime, TIER_FIELD(engine.prefetch_maximum), "0",
     "Bytes of one job being prefetched at a time. 0: a quarter of its share.", 0, 1024 * kTiB},
    {"engine.workers", Kind::kCount, Change::kAtRestart, TIER_FIELD(engine.workers), "0",
     "Threads for zeroing, checksums and the like. 0: half of the CPUs, at most 16.", 0, 256},
    {"engine.drain_timeout", Kind::kDuration, Change::kAtRunTime, TIER_FIELD(engine.drain_timeout), "\"30s\"",
     "How long an orderly stop waits for transfers under way. systemd is told, and waits as long, whatever\n"
     "TimeoutStopSec= of the unit says.",
     0, kHour},
    {"jobs.max_sessions", Kind::kCount, Change::kAtRunTime, TIER_FIELD(jobs.max_sessions), "1024",
     "Processes attached at a time; one user's take at most seven eighths of that.", 1, 16384},
    {"jobs.max_jobs_per_uid", Kind::kCount, Change::kAtRunTime, TIER_FIELD(jobs.max_jobs_per_uid), "64",
     "Jobs of one user at a time.", 1, 65536},
    {"jobs.max_attaches_per_second", Kind::kCount, Change::kAtRunTime, TIER_FIELD(jobs.max_attaches_per_second), "50",
     "Processes of one user that attach in a second, when more than 256 came at once; further ones wait.", 1, 100000},
    {"jobs.max_tensors", Kind::kCount, Change::kAtRunTime, TIER_FIELD(jobs.max_tensors), "16777216",
     "Tensors of one job at a time.", 1, 1u << 28},
    {"jobs.max_leases", Kind::kCount, Change::kAtRunTime, TIER_FIELD(jobs.max_leases), "65536",
     "Leases of one session at a time.", 1, 1u << 24},
    {"jobs.max_metadata", Kind::kSize, Change::kAtRunTime, TIER_FIELD(jobs.max_metadata), "\"1GiB\"",
     "The daemon's own memory for records of one user: some 300 bytes a small tensor, 72 for each 2 MiB of a large\n"
     "one, and 80 more while it is persisted; leases, string keys, requests that wait, answers that are not read.\n"
     "Beyond it requests get NO_MEMORY.",
     1 * kMiB, 1 * kTiB},
    {"jobs.max_ssd_per_uid", Kind::kSize, Change::kAtRunTime, TIER_FIELD(jobs.max_ssd_per_uid), "0",
     "What the tensors of one user's jobs, and what these jobs are guaranteed of SSD devices, may take together. 0: "
     "no\n"
     "quota. Beyond it new tensors get NO_SPACE; what is there stays.",
     0, 1024 * kTiB},
    {"jobs.reclaim_deadline", Kind::kDuration, Change::kAtRunTime, TIER_FIELD(jobs.reclaim_deadline), "\"30s\"",
     "How long a job waits for memory that it is promised while leases of others keep more than they are promised.\n"
     "Then the session whose leases keep most windows beyond its part is closed (REVOKED), and so on until the job\n"
     "has what it is promised; an unnamed job whose last session that was ends with its tensors. Empty windows that a\n"
     "process is asked for and does not return for so long are taken without its answer: it loses nothing. No session\n"
     "is closed while no request waits, so let engine.deadline be longer by some seconds; --check-config warns else.",
     kSecond, 24 * kHour},
    {"jobs.on_unreturned", Kind::kChoice, Change::kAtRunTime, TIER_FIELD(jobs.on_unreturned), "\"charge\"",
     "What becomes of a process that keeps windows which were taken from it. charge: they count as held by its\n"
     "job until it unmaps them or ends. kill: the same, and after another jobs.reclaim_deadline it is killed,\n"
     "because it may have pinned that memory, and nothing else brings it back; only for windows that were asked\n"
     "back because a job was owed memory that it is promised, or, where its job is gone, while one has been owed\n"
     "such memory for that long. That needs CAP_KILL (tierd.service.d/kill.conf), and is refused without it. Set\n"
     "while tierd runs, it leaves out processes whose sessions had ended before.",
     0, UINT64_MAX, "charge|kill"},
    {"jobs.idle_after", Kind::kDuration, Change::kAtRunTime, TIER_FIELD(jobs.idle_after), "\"60s\"",
     "A job without a session, or without requests and leases for so long, is idle: what it holds in RAM and SSD\n"
     "has as well may be lent to jobs that could use it, and comes back as soon as it asks for it. 0s: never.",
     0, 24 * kHour},
    {"jobs.stall_threshold", Kind::kDuration, Change::kAtRunTime, TIER_FIELD(jobs.stall_threshold), "\"10ms\"",
     "A request that waits, or waited, so long is listed by tierctl job stalls, with what it waited for; of each job "
     "the\n"
     "last 128 that ended.",
     0, kHour},
    {"metrics.listen", Kind::kAddress, Change::kAtRunTime, TIER_FIELD(metrics.listen), "\"auto\"",
     "Where Prometheus scrapes /metrics, ADDRESS:PORT; port 0 takes a free one (it is written to metrics.port in\n"
     "the socket directory); empty: nowhere. auto: 127.0.0.1:9464 for the daemon of /run/tierd, a free port of\n"
     "127.0.0.1 for others. A private daemon never listens. Every client that reaches the address, and so each\n"
     "user of this machine, reads the names and uids of all jobs: empty, or a firewall rule on the port, keeps them\n"
     "private. While tierd runs, an address that is taken, or a name in place of an address, is refused, and\n"
     "scrapes under way at the old address are closed; counters go on."},
    {"log.level", Kind::kChoice, Change::kAtRunTime, TIER_FIELD(log.level), "\"info\"",
     "What is logged to standard error.", 0, UINT64_MAX, "debug|info|warning|error"},
    {"log.format", Kind::kChoice, Change::kAtRunTime, TIER_FIELD(log.format), "\"auto\"",
     "auto: journal under systemd (priorities, no time), else text.", 0, UINT64_MAX, "auto|text|journal"},
});

#undef TIER_FIELD

std::string_view LastPart(std::string_view key) { return key.substr(key.rfind('.') + 1); }

// An option in the wrong section is a likelier mistake than most others.
size_t Unlikeness(std::string_view typed, std::string_view key) {
  return std::min(EditDistance(typed, key), EditDistance(LastPart(typed), LastPart(key)) + 1);
}

// A letter in three may be wrong, or the end be missing.
bool MayBeMeant(std::string_view typed, std::string_view key) {
  constexpr size_t kBeginningMin = 3;
  const auto is_near = [](std::string_view a, std::string_view b) {
    return EditDistance(a, b) <= std::max<size_t>(a.size() / 3, 1);
  };
  return is_near(typed, key) || is_near(LastPart(typed), LastPart(key)) ||
         (typed.size() >= kBeginningMin && key.starts_with(typed));
}

}  // namespace

std::span<const Option> Options() { return kOptions; }

const Option* FindOption(std::string_view key) {
  const auto place = std::find_if(kOptions.begin(), kOptions.end(), [key](const Option& o) { return o.key == key; });
  return place == kOptions.end() ? nullptr : &*place;
}

const Option* NearestOption(std::string_view key) {
  constexpr size_t kLettersMax = 64;  // Longer than any option.
  if (key.size() > kLettersMax) return nullptr;
  const auto unlikeness = [key](const Option& option) { return Unlikeness(key, option.key); };
  const Option& nearest = *std::ranges::min_element(kOptions, {}, unlikeness);
  return MayBeMeant(key, nearest.key) ? &nearest : nullptr;
}

std::string UnknownOptionText(std::string_view key, std::string_view lists_all) {
  const Option* const nearest = NearestOption(key);
  return nearest == nullptr ? fmt::format("unknown option '{}'; {} lists all", key, lists_all)
                            : fmt::format("unknown option '{}'; the nearest is '{}'", key, nearest->key);
}

bool NamesAnOption(std::string_view sentence) {
  return std::ranges::any_of(
      kOptions, [sentence](const Option& option) { return sentence.find(option.key) != std::string_view::npos; });
}

std::string_view NearestSection(std::string_view name) {
  name = name.substr(0, 64);
  const auto section = [](const Option& option) { return option.key.substr(0, option.key.find('.')); };
  return section(*std::min_element(kOptions.begin(), kOptions.end(), [&](const Option& a, const Option& b) {
    return EditDistance(name, section(a)) < EditDistance(name, section(b));
  }));
}

}  // namespace tier::config

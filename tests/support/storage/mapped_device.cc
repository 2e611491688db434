#include "tests/support/storage/mapped_device.h"

#include <fcntl.h>
#include <linux/dm-ioctl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "daemon/base/check.h"

namespace tier::storage::testing {
namespace {

constexpr const char* kControl = "/dev/mapper/control";

// One command with what follows it; large enough for every table here.
struct Command {
  explicit Command(const std::string& name, uint32_t flags = 0) {
    header.version[0] = DM_VERSION_MAJOR;
    header.data_size = sizeof(Command);
    header.data_start = offsetof(Command, data);
    header.flags = flags;
    TIER_CHECK(name.size() < sizeof(header.name), "{}", name);
    std::memcpy(header.name, name.c_str(), name.size() + 1);
  }
  dm_ioctl header{};
  alignas(8) std::array<char, 4096> data{};
};

void Call(int control, unsigned long request, Command& command) {
  TIER_CHECK(::ioctl(control, request, &command) == 0, "device mapper command {:#x} on {}: errno {}", request,
             command.header.name, errno);
}

// Zeroes the device; its size in sectors.
uint64_t Clear(const std::string& path) {
  const proto::FileDescriptor device(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  std::array<uint64_t, 2> range = {};  // From 0, so many bytes.
  TIER_CHECK(device && ::ioctl(device.get(), BLKGETSIZE64, &range[1]) == 0, "{} errno {}", path, errno);
  TIER_CHECK(::ioctl(device.get(), BLKZEROOUT, range.data()) == 0, "{} errno {}", path, errno);
  return range[1] / 512;
}

}  // namespace

bool MappedDevice::Supported() { return ::access(kControl, R_OK | W_OK) == 0; }

MappedDevice::MappedDevice(const std::string& name, std::string beneath)
    : name_(name),
      beneath_(std::move(beneath)),
      sectors_(Clear(beneath_)),
      control_(::open(kControl, O_RDWR | O_CLOEXEC)) {
  TIER_CHECK(control_, "{} errno {}", kControl, errno);
  Command create(name_);
  Call(control_.get(), DM_DEV_CREATE, create);
  path_ = "/dev/dm-" + std::to_string(minor(create.header.dev));
  Work();
}

MappedDevice::~MappedDevice() {
  Work();  // Ends what waits for it.
  Command remove(name_);
  (void)::ioctl(control_.get(), DM_DEV_REMOVE, &remove);  // Best effort: the device may still be open.
}

void MappedDevice::Work() { Load({{.begin = 0, .count = sectors_, .type = "linear", .parameters = Beneath(0)}}); }

void MappedDevice::FailAll() { Load({{.begin = 0, .count = sectors_, .type = "error", .parameters = ""}}); }

void MappedDevice::FailWrites() {
  // Up for no second, down for an hour; down, it fails writes.
  Load({{.begin = 0, .count = sectors_, .type = "flakey", .parameters = Beneath(0) + " 0 3600 1 error_writes"}});
}

void MappedDevice::FailPlace(uint64_t begin, uint64_t count) {
  const uint64_t end = begin + count;
  Load({{.begin = 0, .count = begin, .type = "linear", .parameters = Beneath(0)},
        {.begin = begin, .count = count, .type = "error", .parameters = ""},
        {.begin = end, .count = sectors_ - end, .type = "linear", .parameters = Beneath(end)}});
}

void MappedDevice::Delay(int ms) {
  const std::string parameters = Beneath(0) + " " + std::to_string(ms);
  Load({{.begin = 0, .count = sectors_, .type = "delay", .parameters = parameters}});
}

void MappedDevice::Hang() {
  // Suspended without waiting for what is under way.
  Command suspend(name_, DM_SUSPEND_FLAG | DM_SKIP_LOCKFS_FLAG | DM_NOFLUSH_FLAG);
  Call(control_.get(), DM_DEV_SUSPEND, suspend);
}

void MappedDevice::Resume() {
  Command resume(name_);
  Call(control_.get(), DM_DEV_SUSPEND, resume);
}

void MappedDevice::Load(const std::vector<Target>& table) {
  Command load(name_);
  size_t at = 0;
  for (const Target& target : table) {
    dm_target_spec spec{};
    spec.sector_start = target.begin;
    spec.length = target.count;
    std::memcpy(spec.target_type, target.type.c_str(), target.type.size() + 1);
    const size_t size = (sizeof(spec) + target.parameters.size() + 1 + 7) / 8 * 8;
    spec.next = static_cast<uint32_t>(size);
    TIER_CHECK(at + size <= load.data.size(), "{} targets", table.size());
    std::memcpy(load.data.data() + at, &spec, sizeof(spec));
    std::memcpy(load.data.data() + at + sizeof(spec), target.parameters.c_str(), target.parameters.size() + 1);
    at += size;
  }
  load.header.target_count = static_cast<uint32_t>(table.size());
  Call(control_.get(), DM_TABLE_LOAD, load);
  Command suspend(name_, DM_SUSPEND_FLAG | DM_SKIP_LOCKFS_FLAG | DM_NOFLUSH_FLAG);
  Call(control_.get(), DM_DEV_SUSPEND, suspend);
  Resume();
}

}  // namespace tier::storage::testing

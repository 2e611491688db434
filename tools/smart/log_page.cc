#include "tools/smart/log_page.h"

#include <fcntl.h>
#include <linux/nvme_ioctl.h>
#include <sys/ioctl.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#include <fmt/format.h>

#include "proto/mapping.h"

namespace tier::smart {
namespace {

constexpr uint8_t kGetLogPage = 0x02;
constexpr uint32_t kWholeDevice = 0xffff'ffff;
constexpr uint32_t kTimeoutMs = 0;  // The kernel's own: a shorter one would reset a controller that is busy.

Code CodeOf(int error) {
  switch (error) {
    case EACCES:
    case EPERM: return Code::kDenied;
    case ENOENT:
    case ENXIO:
    case ENODEV: return Code::kNotFound;
    case ENOTTY:
    case EINVAL: return Code::kInvalid;
    default: return Code::kIoError;
  }
}

std::unexpected<Error> Failed(const std::string& disk, int error) {
  const char* const advice = CodeOf(error) == Code::kDenied ? "; run it as root" : "";
  return Fail(CodeOf(error), fmt::format("{}: {}{}", disk, std::strerror(error), advice));
}

}  // namespace

Result<LogPage> ReadSmartLog(const std::string& disk) {
  const proto::FileDescriptor file(::open(disk.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file) return Failed(disk, errno);
  LogPage page{};
  nvme_admin_cmd command{};
  command.opcode = kGetLogPage;
  command.nsid = kWholeDevice;
  command.addr = reinterpret_cast<uintptr_t>(page.data());
  command.data_len = static_cast<uint32_t>(page.size());
  // The page's number, and how many words of four bytes are asked for, less one.
  command.cdw10 = storage::kSmartLogPage | (static_cast<uint32_t>(page.size() / sizeof(uint32_t)) - 1) << 16;
  command.timeout_ms = kTimeoutMs;
  const int status = ::ioctl(file.get(), NVME_IOCTL_ADMIN_CMD, &command);
  if (status < 0) return Failed(disk, errno);
  if (status > 0) return Fail(Code::kIoError, fmt::format("{}: it refused with NVMe status {:#x}", disk, status));
  return page;
}

}  // namespace tier::smart

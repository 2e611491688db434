// See device_file.h. Order matters: locked before it is read, read before it is believed, and nothing is written before
// the label area was seen to be blank or ours.
#include "daemon/storage/device_file.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <new>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/base/allocated_bytes.h"
#include "daemon/base/check.h"
#include "daemon/base/format_bytes.h"
#include "daemon/storage/device_lock.h"
#include "daemon/storage/os_error.h"

namespace tier::storage {
namespace {

using base::FormatBytes;

constexpr int kOpenFlags = O_RDWR | O_DIRECT | O_CLOEXEC;
constexpr int kLookFlags = O_RDONLY | O_DIRECT | O_CLOEXEC;
constexpr mode_t kFileMode = 0600;

struct AlignedFree {
  void operator()(std::byte* memory) const { std::free(memory); }
};
using AlignedBuffer = std::unique_ptr<std::byte, AlignedFree>;

AlignedBuffer ZeroedBuffer(uint64_t size) {
  auto* memory = static_cast<std::byte*>(std::aligned_alloc(kPageSize, size));
  if (memory == nullptr) throw std::bad_alloc();  // As operator new does: not ours to prevent.
  std::memset(memory, 0, size);
  return AlignedBuffer(memory);
}

Status ReadFully(int fd, std::byte* to, uint64_t length, uint64_t* got) {
  *got = 0;
  while (*got < length) {
    const ssize_t moved = ::pread(fd, to + *got, length - *got, static_cast<off_t>(*got));
    if (moved < 0 && errno == EINTR) continue;
    if (moved < 0) return FailErrno(errno, fmt::format("reading the label at {}", *got));
    if (moved == 0) return {};
    *got += static_cast<uint64_t>(moved);
  }
  return {};
}

Status WriteFully(int fd, const std::byte* from, uint64_t length, uint64_t offset) {
  for (uint64_t done = 0; done < length;) {
    const ssize_t moved = ::pwrite(fd, from + done, length - done, static_cast<off_t>(offset + done));
    if (moved < 0 && errno == EINTR) continue;
    if (moved <= 0) return FailErrno(moved == 0 ? EIO : errno, fmt::format("writing the label at {}", offset + done));
    done += static_cast<uint64_t>(moved);
  }
  return {};
}

Result<proto::Superblock> ReadLabelOf(int fd) {
  const AlignedBuffer buffer = ZeroedBuffer(proto::kLabelAreaSize);
  uint64_t got = 0;
  if (Status status = ReadFully(fd, buffer.get(), proto::kLabelAreaSize, &got); !status) {
    return std::unexpected(status.error());
  }
  return ReadLabel({buffer.get(), got});
}

// What to tell the one who configured a path whose label is not usable.
std::unexpected<Error> Refusal(const std::string& path, const Error& why) {
  if (why.code != Code::kInvalid && why.code != Code::kCorrupt) return Fail(why.code, path + ": " + why.message);
  return Fail(why.code, fmt::format("{} is left untouched: {}; if nothing on it is needed, type: tierctl device format "
                                    "--force {}",
                                    path, why.message, path));
}

std::string DirectoryOf(const std::string& path) {
  const auto parent = std::filesystem::path(path).parent_path();
  return parent.empty() ? "." : parent.string();
}

std::unexpected<Error> OpenFailure(int error, const std::string& path) {
  if (error == EINVAL) {
    return Fail(Code::kInvalid, path +
                                    ": its file system does no direct I/O (O_DIRECT); name another place in "
                                    "daemon.data_directory or ssd.devices");
  }
  if (error == EBUSY) {
    return Fail(Code::kAlreadyExists,
                path +
                    " is mounted, or part of a volume or RAID (lsblk shows it): free it, or name another device "
                    "in ssd.devices");
  }
  return FailErrno(error, "opening " + path);
}

}  // namespace

DeviceFile::~DeviceFile() {
  if (fd_) UnlockDevice(fd_.get());
}

Result<DeviceFile> DeviceFile::Open(const DeviceFileOptions& options) {
  DeviceFile file;
  file.plan_ = options.plan;
  file.path_ = options.private_file ? fmt::format("(private file in {})", options.path) : options.path;
  struct stat about{};
  Status status;
  if (options.private_file) {
    status = file.OpenPrivate(options);
  } else if (::stat(options.path.c_str(), &about) == 0) {
    status = file.OpenPresent(options);
  } else if (errno == ENOENT) {
    status = file.OpenNew(options);
  } else {
    status = FailErrno(errno, "looking at " + options.path);
  }
  if (!status) return std::unexpected(status.error());
  return file;
}

Status DeviceFile::OpenPrivate(const DeviceFileOptions& options) {
  TIER_CHECK(plan_ == nullptr, "a plan of a file without a name in {}", options.path);
  if (!options.allow_any_file_system) {
    if (Status status = CheckFileSystem(options.path); !status) return status;
  }
  private_file_ = true;
  fd_ = proto::FileDescriptor(::open(options.path.c_str(), O_TMPFILE | kOpenFlags, kFileMode));
  if (!fd_ && (errno == EOPNOTSUPP || errno == EISDIR)) {  // A file system without O_TMPFILE: a name for an instant.
    std::string name = options.path + "/.tierd-XXXXXX";
    fd_ = proto::FileDescriptor(::mkostemp(name.data(), O_DIRECT | O_CLOEXEC));
    if (fd_) (void)::unlink(name.c_str());  // Fails only if another process removed it: the same outcome.
  }
  if (!fd_) return OpenFailure(errno, options.path);
  if (Status status = Lock(); !status) return status;
  if (Status status = MakeRoom(options, options.path); !status) return status;
  if (Status status = CheckAlignment(); !status) return status;
  return FormatNow(/*discard=*/false);
}

Status DeviceFile::OpenNew(const DeviceFileOptions& options) {
  if (!options.may_make) return Fail(Code::kNotFound, path_ + " is not there");
  if (Status status = CheckNewFile(path_); !status) return status;
  std::string directory = DirectoryOf(path_);
  // A start makes its data directory first.
  if (plan_ && directory == options.data_dir) directory = ExistingPartOf(directory);
  if (!options.allow_any_file_system) {
    if (Status status = CheckFileSystem(directory); !status) return status;
  }
  if (plan_) {
    Status status = MakeRoom(options, directory);
    return status ? FormatNow(/*discard=*/false) : status;
  }
  fd_ = proto::FileDescriptor(::open(path_.c_str(), kOpenFlags | O_CREAT | O_EXCL, kFileMode));
  if (!fd_) {
    const int error = errno;
    if (error == EINVAL) (void)::unlink(path_.c_str());  // Linux makes the file before it refuses O_DIRECT.
    return OpenFailure(error, path_);
  }
  Status status = Lock();
  if (status) status = MakeRoom(options, directory);
  if (status) status = CheckAlignment();
  if (status) status = FormatNow(/*discard=*/false);
  made_ = true;
  if (!status) RemoveIfMade();
  return status;
}

std::string DeviceFile::Misplaced() const {
  return block_device_ || private_file_ ? std::string() : WhyMisplaced(fd_.get(), path_);
}

void DeviceFile::RemoveIfMade() const {
  if (made_) (void)::unlink(path_.c_str());  // Ours, and of no use: leaves the directory as it was.
}

Status DeviceFile::OpenNode(bool allow_any_file_system) {
  struct stat about{};
  if (::stat(path_.c_str(), &about) != 0) return FailErrno(errno, "looking at " + path_);
  block_device_ = S_ISBLK(about.st_mode);
  if (!block_device_ && !S_ISREG(about.st_mode)) {
    return Fail(Code::kInvalid, path_ + " is neither a block device nor a regular file");
  }
  if (!block_device_ && !allow_any_file_system) {
    if (Status status = CheckFileSystem(path_); !status) return status;
  }
  // O_EXCL on a block device: refused while it is mounted or part of something.
  const int flags = plan_ ? kLookFlags : kOpenFlags | (block_device_ ? O_EXCL : 0);
  fd_ = proto::FileDescriptor(::open(path_.c_str(), flags));
  if (!fd_) return OpenFailure(errno, path_);
  const Result<uint64_t> size = SizeOf(fd_.get(), path_);
  if (!size) return std::unexpected(size.error());
  size_ = *size;
  planned_ = base::AllocatedBytes(about);
  if (Status status = Lock(); !status) return status;
  return CheckAlignment();
}

Status DeviceFile::OpenPresent(const DeviceFileOptions& options) {
  if (Status status = OpenNode(options.allow_any_file_system); !status) return status;
  const Result<proto::Superblock> label = ReadLabelOf(fd_.get());
  if (label) return Adopt(options, *label);
  if (label.error().code != Code::kNotFound) return Refusal(path_, label.error());
  if (!options.may_make) return Fail(Code::kNotFound, path_ + " is blank where its label was");
  if (!block_device_) {
    const std::string directory = DirectoryOf(path_);
    const bool as_it_stands = size_ != 0 && options.size == 0;
    Status status = as_it_stands ? Preallocate(size_, directory) : MakeRoom(options, directory);
    if (!status) return status;
  }
  if (size_ < proto::kDiskSizeMin) {
    return Fail(Code::kInvalid, fmt::format("{} holds {}, at least {} are needed: name a larger one in ssd.devices",
                                            path_, FormatBytes(size_), FormatBytes(proto::kDiskSizeMin)));
  }
  return FormatNow(options.discard_at_format);
}

Status DeviceFile::Adopt(const DeviceFileOptions& options, const proto::Superblock& found) {
  if (found.device_size > size_) {
    return Fail(
        Code::kCorrupt,
        fmt::format("{} was formatted with {} and holds only {} now: it was cut short; restore it, or give up what it "
                    "held by: tierctl device format --force {}",
                    path_, FormatBytes(found.device_size), FormatBytes(size_), path_));
  }
  superblock_ = found;
  if (block_device_) {
    // It is not known what lies behind the size that was formatted: RAID and DRBD keep their own data at the end.
    if (size_ - found.device_size >= kBlockSize) {
      size_note_ = fmt::format(
          "{} has {} by now, and tierd uses the {} that it was formatted with; to use all of it, move or remove what "
          "jobs persisted on it (tierctl device drain, tierctl job remove --purge), stop tierd and type: tierctl "
          "device format --force {}",
          path_, FormatBytes(size_), FormatBytes(found.device_size), path_);
    }
    return {};
  }
  size_note_ = KeptSizeNote(path_, found.device_size, options.size);
  return Preallocate(found.device_size, DirectoryOf(path_));
}

bool DeviceFile::IsToGrow(const DeviceFileOptions& options) const {
  if (block_device_ || private_file_) return false;
  return GrownSize(superblock_.device_size, options.size) != superblock_.device_size;
}

Status DeviceFile::Grow(const DeviceFileOptions& options) {
  TIER_CHECK(IsToGrow(options), "{} of {} bytes is to have {}", path_, superblock_.device_size, options.size);
  const uint64_t before = superblock_.device_size;
  const uint64_t after = GrownSize(before, options.size);
  Status status = Extend(after, options);
  if (!status) CutExcess();  // Not behind a superblock that could not be written: it may say the new size.
  if (status) status = SetSize(after);
  if (status) {
    grown_from_ = before;
    return {};
  }
  return Fail(status.error().code, fmt::format("{} keeps its {}, and ssd.file_size is {}: {}", path_,
                                               FormatBytes(before), FormatBytes(after), status.error().message));
}

// The new length is durable before a superblock says so: else a crash would leave a file that looks cut short.
Status DeviceFile::Extend(uint64_t size, const DeviceFileOptions& options) {
  const std::string directory = DirectoryOf(path_);
  const Result<FileSystemSpace> space = SpaceIn(directory, options);
  if (!space) return std::unexpected(space.error());
  const uint64_t before = size_;  // Of the file, which a start that was killed may have left longer than its device.
  if (Status fits = CheckGrowth(*space, size - std::min(before, size), directory, options.for_index); !fits)
    return fits;
  if (Status allocated = Preallocate(size, directory); !allocated) {
    (void)!::ftruncate(fd_.get(), static_cast<off_t>(before));  // Best effort: what is too much is no part of it.
    return allocated;
  }
  if (!plan_ && ::fsync(fd_.get()) != 0) return FailErrno(errno, "flushing " + path_);
  return {};
}

// One copy alone may be an older one, with what jobs persisted behind its end.
bool DeviceFile::BothCopiesSay(uint64_t size) const {
  const AlignedBuffer buffer = ZeroedBuffer(proto::kLabelAreaSize);
  uint64_t got = 0;
  if (!ReadFully(fd_.get(), buffer.get(), proto::kLabelAreaSize, &got) || got < proto::kLabelAreaSize) return false;
  for (const uint64_t offset : proto::kSuperblockOffsets) {
    const auto copy = ParseSuperblock({buffer.get() + offset, proto::kSuperblockSize});
    if (!copy || copy->device_size != size) return false;
  }
  return true;
}

void DeviceFile::CutExcess() {
  const uint64_t size = superblock_.device_size;
  if (block_device_ || private_file_ || size_ <= size || !BothCopiesSay(size)) return;
  if (plan_) {
    if (planned_ > size) plan_->Take(DirectoryOf(path_), -static_cast<int64_t>(planned_ - size));
    return;
  }
  if (::ftruncate(fd_.get(), static_cast<off_t>(size)) != 0) return;
  if (!size_note_.empty()) size_note_ += "; ";
  size_note_ += fmt::format(
      "{} was cut from {} to the {} that tierd uses of it: the rest was of a growth that was "
      "interrupted",
      path_, FormatBytes(size_), FormatBytes(size));
  size_ = size;
}

Status DeviceFile::SetSize(uint64_t size) {
  proto::Superblock next = superblock_;
  SetDeviceSize(&next, size);
  if (Status written = WriteNext(next); !written) return written;
  // Both copies have it then, as at format: damage to one does not bring the old size back. The first one counts.
  (void)WriteNext(next);
  return {};
}

Result<FileSystemSpace> DeviceFile::SpaceIn(const std::string& directory, const DeviceFileOptions& options) const {
  return plan_ ? plan_->Of(directory) : options.space(directory);
}

// As Preallocate.
Status DeviceFile::Plan(uint64_t size, const std::string& directory) {
  if (size > planned_) {
    const Result<FileSystemSpace> space = plan_->Of(directory);
    if (space && space->available < size - planned_) {
      return FailErrno(ENOSPC, fmt::format("preallocating {} in {}", FormatBytes(size), directory));
    }
    plan_->Take(directory, static_cast<int64_t>(size - planned_));
    planned_ = size;
  }
  size_ = std::max(size_, size);
  return {};
}

Status DeviceFile::MakeRoom(const DeviceFileOptions& options, const std::string& directory) {
  const Result<FileSystemSpace> space = SpaceIn(directory, options);
  if (!space) return std::unexpected(space.error());
  if (options.size != 0) {
    const Result<uint64_t> size = PlanFileSize(*space, options.size, directory);
    return size ? Preallocate(*size, directory) : std::unexpected(size.error());
  }
  DefaultFile file = PlanDefaultFile(*space, directory);
  if (file.size == 0) {
    return Fail(Code::kNoSpace, fmt::format("no room for an SSD file of {} or more: {}; free some space, or set "
                                            "ssd.file_size, daemon.data_directory or ssd.devices",
                                            FormatBytes(kDefaultFileMin), file.shortage));
  }
  shortage_ = std::move(file.shortage);
  return Preallocate(file.size, directory);
}

Status DeviceFile::Preallocate(uint64_t size, const std::string& directory) {
  if (plan_) return Plan(size, directory);
  // An io_uring that was closed on this thread may interrupt it (seen on Linux 6.1).
  if (TEMP_FAILURE_RETRY(::fallocate(fd_.get(), 0, 0, static_cast<off_t>(size))) == 0) {
    size_ = std::max(size_, size);
    return {};
  }
  if (errno == EOPNOTSUPP) {
    return Fail(Code::kInvalid, fmt::format("the file system of {} cannot preallocate files: name another place in "
                                            "daemon.data_directory or ssd.devices",
                                            directory));
  }
  return FailErrno(errno, fmt::format("preallocating {} in {}", FormatBytes(size), directory));
}

Status DeviceFile::Lock() { return plan_ ? Status() : LockDevice(fd_.get(), path_); }

Status DeviceFile::CheckAlignment() {
  struct statx about{};
  alignment_ = kPageSize;
  if (::statx(fd_.get(), "", AT_EMPTY_PATH, STATX_DIOALIGN, &about) == 0 && (about.stx_mask & STATX_DIOALIGN) != 0) {
    if (about.stx_dio_offset_align == 0) {
      return Fail(Code::kInvalid, path_ + ": direct I/O is not supported there (STATX_DIOALIGN); name another device");
    }
    alignment_ = std::max(about.stx_dio_offset_align, about.stx_dio_mem_align);
  } else if (int sector = 0; block_device_ && ::ioctl(fd_.get(), BLKSSZGET, &sector) == 0) {
    alignment_ = static_cast<uint32_t>(sector);
  }
  if (alignment_ <= kDeviceAlignmentMax) return {};
  return Fail(Code::kInvalid, fmt::format("{} needs I/O aligned to {} bytes, more than the {} of a page", path_,
                                          alignment_, kDeviceAlignmentMax));
}

Status DeviceFile::FormatNow(bool discard) {
  if (plan_) {
    superblock_ = MakeSuperblock(DrawUuid(), size_, static_cast<uint64_t>(::time(nullptr)));
    created_ = true;
    return {};
  }
  if (block_device_ && discard) {
    const uint64_t range[2] = {0, size_};
    (void)::ioctl(fd_.get(), BLKDISCARD, range);  // Best effort: many devices cannot.
  }
  const AlignedBuffer zeros = ZeroedBuffer(proto::kLabelAreaSize);
  if (Status status = WriteFully(fd_.get(), zeros.get(), proto::kLabelAreaSize, 0); !status) return status;
  superblock_ = MakeSuperblock(DrawUuid(), size_, static_cast<uint64_t>(::time(nullptr)));
  for (int copy = 0; copy < 2; ++copy) {
    if (copy == 1) ++superblock_.commit;
    SealSuperblock(&superblock_);
    if (Status status = WriteCopy(superblock_); !status) return status;
  }
  created_ = true;
  return {};
}

// It counts once it is written.
Status DeviceFile::WriteNext(proto::Superblock next) {
  next.commit = superblock_.commit + 1;
  SealSuperblock(&next);
  if (Status status = WriteCopy(next); !status) return status;
  superblock_ = next;
  return {};
}

Status DeviceFile::WriteCopy(const proto::Superblock& superblock) {
  if (plan_) return {};
  const AlignedBuffer buffer = ZeroedBuffer(proto::kSuperblockSize);
  std::memcpy(buffer.get(), &superblock, sizeof superblock);
  const uint64_t offset = CopyOffset(superblock.commit);
  if (Status status = WriteFully(fd_.get(), buffer.get(), proto::kSuperblockSize, offset); !status) {
    return Fail(status.error().code, path_ + ": " + status.error().message);
  }
  return Flush();
}

Status DeviceFile::Flush() {
  if (::fdatasync(fd_.get()) != 0) return FailErrno(errno, "flushing " + path_);
  return {};
}

Status DeviceFile::CommitIndex(const Uuid& index, uint64_t index_commit) {
  proto::Superblock next = superblock_;
  const bool is_other = std::memcmp(next.index_uuid, index.data(), index.size()) != 0;
  std::memcpy(next.index_uuid, index.data(), index.size());
  next.index_commit = index_commit;
  if (Status written = WriteNext(next); !written || !is_other) return written;
  return WriteNext(next);  // Damage to one copy does not make it another index's, or none's.
}

Result<DeviceFile> DeviceFile::Format(const std::string& path, bool force) {
  DeviceFile file;
  file.path_ = path;
  if (Status status = file.OpenNode(/*allow_any_file_system=*/true); !status) return std::unexpected(status.error());
  if (file.size_ < proto::kDiskSizeMin) {
    return Fail(Code::kInvalid, fmt::format("{} holds {}, at least {} are needed", path, FormatBytes(file.size_),
                                            FormatBytes(proto::kDiskSizeMin)));
  }
  const Result<proto::Superblock> label = ReadLabelOf(file.fd());
  if (!force && label) {
    return Fail(Code::kInvalid, fmt::format("{} already belongs to tierd (uuid {}): what it holds would be lost; to "
                                            "format it anyhow, type: tierctl device format --force {}",
                                            path, FormatUuid(UuidOf(*label)), path));
  }
  if (!force && label.error().code != Code::kNotFound) return Refusal(path, label.error());
  if (Status status = file.FormatNow(/*discard=*/true); !status) return std::unexpected(status.error());
  return file;
}

Result<proto::Superblock> DeviceFile::ReadSuperblock(const std::string& path) {
  const proto::FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return FailErrno(errno, "opening " + path);
  Result<proto::Superblock> label = ReadLabelOf(fd.get());
  if (!label) return Fail(label.error().code, path + ": " + label.error().message);
  return label;
}

}  // namespace tier::storage

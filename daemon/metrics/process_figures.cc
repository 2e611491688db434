#include "daemon/metrics/process_figures.h"

#include <linux/magic.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <system_error>

#include "daemon/memory/kernel_text.h"

namespace tier::metrics {
namespace {

// Fields of /proc/self/stat (proc(5)), counted from the one after the name, which is the third.
constexpr size_t kUserTicks = 11;
constexpr size_t kSystemTicks = 12;
constexpr size_t kThreads = 17;
constexpr size_t kStartTicks = 19;
constexpr size_t kVirtualBytes = 20;
constexpr size_t kResidentPages = 21;
constexpr size_t kFields = 22;

// The name may hold blanks and brackets: what follows the last bracket counts.
bool ReadStat(const std::string& path, std::array<uint64_t, kFields>* fields) {
  const std::string text = memory::ReadText(path).value_or("");
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return false;
  std::istringstream rest(text.substr(name_end + 1));
  std::string word;
  for (uint64_t& field : *fields) {
    if (!(rest >> word)) return false;
    field = std::strtoull(word.c_str(), nullptr, 10);  // The state, and what is below 0, are not used.
  }
  return true;
}

double BootTime(const std::string& path) {
  return static_cast<double>(memory::Field(memory::ReadText(path).value_or(""), "btime").value_or(0));
}

// Linux 6.2 and later tell the number as the folder's size. Of thousands, counting takes milliseconds.
uint64_t CountOpenFiles(const std::string& folder) {
  struct statfs system{};
  struct stat status{};
  const bool of_kernel = ::statfs(folder.c_str(), &system) == 0 && system.f_type == PROC_SUPER_MAGIC;
  if (of_kernel && ::stat(folder.c_str(), &status) == 0 && status.st_size > 0) {
    return static_cast<uint64_t>(status.st_size);
  }
  std::error_code error;
  uint64_t count = 0;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
    ++count;
  return count;
}

}  // namespace

ProcessFigures ReadProcessFigures(const std::string& root) {
  ProcessFigures figures;
  const auto ticks = static_cast<double>(::sysconf(_SC_CLK_TCK));
  std::array<uint64_t, kFields> fields{};
  if (ReadStat(root + "/proc/self/stat", &fields)) {
    figures.cpu_seconds = static_cast<double>(fields[kUserTicks] + fields[kSystemTicks]) / ticks;
    figures.start_time_seconds = BootTime(root + "/proc/stat") + static_cast<double>(fields[kStartTicks]) / ticks;
    figures.virtual_bytes = fields[kVirtualBytes];
    figures.resident_bytes = fields[kResidentPages] * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
    figures.threads = fields[kThreads];
  }
  figures.open_fds = CountOpenFiles(root + "/proc/self/fd");
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) == 0) figures.max_fds = files.rlim_cur;
  return figures;
}

}  // namespace tier::metrics

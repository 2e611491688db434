#include "proto/socket_places.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace tier::proto {
namespace {

constexpr mode_t kOthersMode = 077;

std::string Octal(mode_t mode) {
  char text[8];
  std::snprintf(text, sizeof text, "%o", mode & 0777);
  return text;
}

}  // namespace

std::string UserSocketDirectory(uint32_t uid) {
  return uid == 0 ? "/run/tierd-private" : "/tmp/tierd-" + std::to_string(uid);
}

std::vector<std::string> SocketDirectories(const char* runtime, uint32_t uid) {
  std::vector<std::string> directories;
  if (runtime != nullptr && *runtime != '\0') directories.push_back(std::string(runtime) + "/tierd");
  directories.push_back(UserSocketDirectory(uid));
  directories.emplace_back(kSystemSocketDirectory);
  return directories;
}

std::string HowToStartAt(const std::string& socket) {
  const size_t slash = socket.rfind('/');
  const std::string directory = slash == std::string::npos ? "." : socket.substr(0, slash == 0 ? 1 : slash);
  if (!socket.ends_with(".sock"))
    return "name a socket of tierd, such as " + directory + "/tierd.sock, or its directory (TIERD_SOCKET)";
  const std::string system(kSystemSocketDirectory);
  if (directory == system || directory.starts_with(system + "/")) return {};
  return "start the daemon of " + directory + " (tierd --set daemon.socket_directory=" + directory +
         ", with its other options), or name another socket (TIERD_SOCKET)";
}

std::string SocketIn(std::string path, const char* name) {
  struct stat about{};
  if (::stat(path.c_str(), &about) != 0 || !S_ISDIR(about.st_mode)) return path;
  if (!path.ends_with('/')) path += '/';
  return path + name;
}

Status CheckUserDirectory(const std::string& directory, uint32_t uid) {
  constexpr const char* kElsewhere = ", or set XDG_RUNTIME_DIR to a directory that only this user may write";
  struct stat about{};
  if (::lstat(directory.c_str(), &about) != 0)
    return Fail(errno == ENOENT ? Code::kNotFound : Code::kDenied, std::strerror(errno));
  if (!S_ISDIR(about.st_mode) || about.st_uid != uid) {
    const std::string what = S_ISDIR(about.st_mode) ? " belongs to uid " : " is no directory and belongs to uid ";
    return Fail(Code::kDenied, directory + what + std::to_string(about.st_uid) + ", and uid " + std::to_string(uid) +
                                   " does not use it: have it removed (sudo rm -r " + directory + ")" + kElsewhere);
  }
  if ((about.st_mode & kOthersMode) == 0) return {};
  return Fail(Code::kDenied, directory + " is open to other users (mode " + Octal(about.st_mode) + "): chmod 700 " +
                                 directory + kElsewhere);
}

Status CheckSocketPlace(const std::string& socket, uint32_t uid) {
  const size_t slash = socket.rfind('/');
  const std::string directory = socket.substr(0, slash == std::string::npos ? 0 : slash);
  return directory == UserSocketDirectory(uid) ? CheckUserDirectory(directory, uid) : Status{};
}

}  // namespace tier::proto

// What --check-config finds out about this host: whether the paths that the configuration names can be what they are to
// be, and whether the system knows whom it names. Nothing is made or written, so a daemon may run meanwhile.
// Thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/config/config.h"
#include "daemon/daemon_paths.h"
#include "daemon/session/user_directory.h"
#include "proto/result.h"

namespace tier {

// Said after a check that found nothing.
inline constexpr char kNotChecked[] =
    "not checked, but at the start: rights on files and devices, whether sockets, devices and the metrics address are "
    "free, parts of the index that only its writer reads and the room for it, free memory and huge pages";

// The first path that cannot serve, with the option that names it and the reason. Or sentences on what is no mistake: a
// device that tierd can start without, as the index of its last run tells, a file that ssd.file_size makes grow, or
// cannot, and what this user may not read or write. Devices and index are read beside a daemon that has them open.
Result<std::vector<std::string>> CheckHostPaths(const config::Config& config, const DaemonPaths& paths);
// What a daemon with this configuration takes of memory, with a full arena, and disk, by what it is for, as lines of a
// report. Empty where the host does not tell its memory, or the arena has no size on it (CheckHostLimits says why).
std::vector<std::string> DescribeSizes(const config::Config& config, const DaemonPaths& paths);
// Of each quota for a user or group that neither the system nor the daemon's table of owners knows, a sentence, as a
// start and a reload log it. It is no mistake: the user may come later. Waits for the user database.
std::vector<std::string> CheckQuotaNames(const config::Config& config, const DaemonPaths& paths,
                                         session::UserDirectory& system);
// A sentence, as the start logs it too, where the system does not know the group of daemon.admin_group: no user has its
// rights. Empty else, and of the group that is the default. Waits for the user database.
std::string CheckAdminGroup(const config::DaemonConfig& config, session::UserDirectory& system);
// A sentence, as the start logs it too, where requests that name no deadline are refused before forced return comes to
// what their jobs are promised. Empty else, and of a private daemon, which has one job.
std::string CheckDeadlines(const config::Config& config);
// INVALID: root's tierd-smart would refuse to write ssd.smart_file.
Status CheckSmartFile(const config::Config& config);
// A sentence where so many sessions as jobs.max_sessions allows would need more than `open_files`. Empty else, and of a
// private daemon.
std::string CheckSessionsMax(const config::Config& config, uint64_t open_files);
// A sentence where the records of one user may take more than `memory`. Empty else, and of a private daemon.
std::string CheckMetadataMax(const config::Config& config, uint64_t memory);
// What a start, a reload and `config set` log of options that are well-formed each, and go badly together or with what
// this process may have, and --check-config prints: the three above. `key`: what concerns this option alone.
std::vector<std::string> CheckTogether(const config::Config& config, std::string_view key = {});
// Why a reload cannot take metrics.listen, though a start can. Empty: it can try.
std::string CheckMetricsReload(const config::Config& config);
// A sentence where admin.sock, at that path, is not of the group that daemon.admin_group names, as this process may not
// give it away: no user has the group's rights. Empty else, and as CheckAdminGroup is.
std::string CheckAdminSocket(const config::DaemonConfig& config, session::UserDirectory& system,
                             const std::string& socket);

}  // namespace tier

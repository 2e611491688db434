// What SIGHUP does: the configuration is read again. log.level and quotas take effect at once; the other options that
// changed are named in the log, as they take effect at the next start. Main thread.
#pragma once

#include <functional>
#include <string>

#include "daemon/config/config.h"

namespace tier {

// Where the configuration came from, to read it again.
struct ConfigSource {
  std::string file;                              // Empty: none was named.
  std::function<Result<config::Config>()> read;  // The file as it is now, under the same command line.
};

// `started_with` is the configuration that the daemon runs with, except log.level and quotas. `set_quotas` takes these
// over; true: they are others than before. A file that cannot be read or is wrong changes nothing; the log says why.
void ReloadConfig(const config::Config& started_with, const ConfigSource& source,
                  const std::function<bool(const session::QuotaTable&)>& set_quotas);

}  // namespace tier

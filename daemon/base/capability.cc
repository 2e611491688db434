#include "daemon/base/capability.h"

#include <linux/capability.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstddef>

#include "daemon/base/check.h"

namespace tier::base {

bool HasCapability(int capability) {
  TIER_CHECK(capability >= 0 && capability <= CAP_LAST_CAP, "capability {}", capability);
  __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3> sets{};
  if (::syscall(SYS_capget, &header, sets.data()) != 0) return false;
  return (sets[static_cast<size_t>(CAP_TO_INDEX(capability))].effective & CAP_TO_MASK(capability)) != 0;
}

}  // namespace tier::base

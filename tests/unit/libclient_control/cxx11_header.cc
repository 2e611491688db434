// The headers are also for C++ before designated initializers: every struct can be begun with its macro.
#include "tier/control.h"
#include "tier/tier.h"

int main() {
  const tier_control_job job = TIER_CONTROL_JOB_INIT;
  const tier_control_event event = TIER_CONTROL_EVENT_INIT;
  const tier_control_open_options open = TIER_CONTROL_OPEN_OPTIONS_INIT;
  const tier_connect_options connect = TIER_CONNECT_OPTIONS_INIT;
  const tier_copy_options copy = TIER_COPY_OPTIONS_INIT;
  const tier_optimizer_options optimizer = TIER_OPTIMIZER_OPTIONS_INIT;
  const bool sized = job.struct_size == sizeof job && event.struct_size == sizeof event &&
                     open.struct_size == sizeof open && connect.struct_size == sizeof connect &&
                     copy.struct_size == sizeof copy && optimizer.struct_size == sizeof optimizer;
  return sized ? 0 : 1;
}

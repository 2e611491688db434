// What `status`, `top`, `doctor`, `drain` and `device drain` say in the same words: how the node is, how much SSD space
// there is, and what follows from a drain.
#pragma once

#include <cstdint>
#include <string>

#include "libclient/control/channel.h"

namespace tier::tierctl {

using Devices = google::protobuf::RepeatedPtrField<v1::Device>;

// "as configured", "reduced", "none"; why is one of the causes of "degraded".
std::string SsdModeText(const v1::NodeStatus& status);

// "degraded: memory is not pinned: …; draining: no new job or process is taken". Empty: it is well.
std::string LackText(const v1::NodeStatus& status);

// The same for a first line: "ok" where it is well; and that the last reload was refused, which makes a node no lesser
// one.
std::string HealthText(const v1::NodeStatus& status);

// When the last reload of the configuration was refused, and why. Empty: it was not.
std::string ReloadText(const v1::NodeStatus& status);

// What follows for who drains the node from an index that failed. Empty: it did not.
std::string UnpersistedText(const v1::NodeStatus& status);

// What follows from draining `device` where no other one takes new tensors. Empty: another does.
std::string LastDeviceText(const Devices& devices, uint32_t device);

}  // namespace tier::tierctl

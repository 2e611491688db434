// What `status`, `top`, `doctor`, `drain`, `device drain` and `device purge` say in the same words: how the node is,
// how much SSD space there is, and what follows from a drain or a purge.
#pragma once

#include <cstdint>
#include <string>

#include "libclient/control/channel.h"

namespace tier::tierctl {

using Devices = google::protobuf::RepeatedPtrField<v1::Device>;

// "as configured", "reduced", "none"; why is one of the causes of "degraded".
std::string SsdModeText(const v1::NodeStatus& status);

// "hugetlb", "thp", "small"; "none yet" before there is a window.
std::string PagesText(const v1::NodeStatus& status);

// What brings back a device that no job needs, or no longer.
inline constexpr char kBehindAPurge[] = "restart tierd, which makes it again where nothing is at its path";
// What to do next about a device that is missing.
std::string MissingAdvice(const v1::MissingDevice& device);

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

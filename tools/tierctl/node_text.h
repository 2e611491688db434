// What an administrator has drained, in words: the same for `status`, `doctor` and `device drain`.
#pragma once

#include <cstdint>
#include <string>

#include "libclient/control/channel.h"

namespace tier::tierctl {

using Devices = google::protobuf::RepeatedPtrField<v1::Device>;

// "draining: no new job or process is taken; no SSD device takes new tensors: …". Empty: nothing is drained, or a
// device beside which others take new tensors.
std::string DrainedText(const v1::NodeStatus& status);

// What follows from draining `device` where no other one takes new tensors. Empty: another does.
std::string LastDeviceText(const Devices& devices, uint32_t device);

}  // namespace tier::tierctl

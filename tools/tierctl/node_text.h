// What `status`, `doctor` and `device drain` say in the same words: how much SSD space there is, and what is drained.
#pragma once

#include <cstdint>
#include <string>

#include "libclient/control/channel.h"

namespace tier::tierctl {

using Devices = google::protobuf::RepeatedPtrField<v1::Device>;

// "as configured", "none", "reduced (the disk is full)": the reason of a mode that is none of the causes of "degraded".
std::string SsdModeText(const v1::NodeStatus& status);

// "draining: no new job or process is taken; no SSD device takes new tensors: …". Empty: nothing is drained, or a
// device beside which others take new tensors.
std::string DrainedText(const v1::NodeStatus& status);

// What follows from draining `device` where no other one takes new tensors. Empty: another does.
std::string LastDeviceText(const Devices& devices, uint32_t device);

}  // namespace tier::tierctl

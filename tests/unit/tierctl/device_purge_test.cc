// What `device purge` shows before it gives anything up.
#include "tools/tierctl/device_purge.h"

#include <gtest/gtest.h>

namespace tier::tierctl {
namespace {

v1::MissingDevice Missing(uint64_t jobs) {
  v1::MissingDevice device;
  device.set_uuid("956cd917");
  device.set_path("/dev/nvme1n1");
  device.set_reason("No such file or directory");
  device.set_lost_job_count(jobs);
  return device;
}

void AddStored(v1::ListJobsResponse* jobs, const char* name, uint32_t uid, const char* device) {
  v1::StoredManifest* const stored = jobs->add_stored_manifests();
  stored->set_name(name);
  stored->set_uid(uid);
  stored->set_ssd_bytes(3 << 20);
  if (device != nullptr) stored->add_lost_devices(device);
}

TEST(PurgePreview, NamesTheJobsThatLoseWhatTheyPersisted) {
  v1::ListJobsResponse jobs;
  AddStored(&jobs, "whole", 1000, nullptr);
  AddStored(&jobs, "training", 1000, "956cd917");
  AddStored(&jobs, "elsewhere", 1000, "0a0a0a0a");
  AddStored(&jobs, "\033[2J", 1001, "956cd917");
  EXPECT_EQ(PurgePreview(Missing(2), jobs, {}),
            "device 956cd917 (/dev/nvme1n1) is missing: No such file or directory\n"
            "to be given up, on the missing device and on all others (HERE: what those that are here have of it):\n"
            "JOB        UID      HERE\n"
            "training  1000  3.00 MiB\n"
            "\\x1b[2J   1001  3.00 MiB\n");
}

TEST(PurgePreview, CountsThoseThatAreNotListed) {
  v1::ListJobsResponse jobs;
  AddStored(&jobs, "training", 1000, "956cd917");
  EXPECT_TRUE(PurgePreview(Missing(3), jobs, {}).ends_with("\nand that of 2 other jobs\n"));
}

}  // namespace
}  // namespace tier::tierctl

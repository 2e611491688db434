// MappedDevice: a device-mapper device whose table a test exchanges, so that what lies on it fails, hangs and comes
// back. Needs root and a kernel with dm-mod; the devices beneath are the test's to overwrite.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "proto/mapping.h"

namespace tier::storage::testing {

// Sectors of 512 bytes: what device mapper counts in.
struct Target {
  uint64_t begin = 0;
  uint64_t count = 0;
  std::string type;        // linear, error, flakey, delay
  std::string parameters;  // As dmsetup takes them.
};

class MappedDevice {
 public:
  // Over all of `beneath`, zeroed, and working.
  MappedDevice(const std::string& name, std::string beneath);
  ~MappedDevice();
  MappedDevice(const MappedDevice&) = delete;
  MappedDevice& operator=(const MappedDevice&) = delete;

  const std::string& path() const { return path_; }
  uint64_t sectors() const { return sectors_; }

  void Work();                                     // As at first.
  void FailAll();                                  // EIO.
  void FailWrites();                               // EIO; reads succeed.
  void FailPlace(uint64_t begin, uint64_t count);  // EIO within these sectors.
  void Delay(int ms);                              // Each request.
  void Hang();                                     // No request comes back until Resume(), or the next table.
  void Resume();

  // Whether this machine has device mapper.
  static bool Supported();

 private:
  void Load(const std::vector<Target>& table);
  std::string Beneath(uint64_t begin) const { return beneath_ + " " + std::to_string(begin); }

  std::string name_;
  std::string beneath_;
  std::string path_;
  uint64_t sectors_ = 0;
  proto::FileDescriptor control_;
};

}  // namespace tier::storage::testing

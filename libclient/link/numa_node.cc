#include "libclient/link/numa_node.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <fstream>
#include <vector>

#include "proto/handshake.h"
#include "proto/number_list.h"

namespace tier::link {
namespace {

std::string FirstLine(const std::string& path) {
  std::string line;
  std::ifstream file(path);
  std::getline(file, line);  // Stays empty where there is no such file.
  return line;
}

std::vector<uint32_t> ListIn(const std::string& path) {
  return proto::ParseNumberList(FirstLine(path)).value_or(std::vector<uint32_t>());
}

// A name of a directory is made of it: nothing but what a PCI address has.
bool IsPciAddress(const std::string& text) {
  return !text.empty() &&
         std::ranges::all_of(text, [](unsigned char c) { return std::isxdigit(c) != 0 || c == ':' || c == '.'; }) &&
         text.find("..") == std::string::npos;
}

std::optional<uint16_t> NodeOfGpu(const std::string& gpu, const std::string& sysfs) {
  if (!IsPciAddress(gpu)) return std::nullopt;
  std::string address = gpu;
  std::ranges::transform(address, address.begin(), [](unsigned char c) { return std::tolower(c); });
  const std::string line = FirstLine(sysfs + "/bus/pci/devices/" + address + "/numa_node");
  int node = -1;  // As the kernel writes where the firmware has not told.
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), node);
  if (error != std::errc() || end != line.data() + line.size()) return std::nullopt;
  if (node < 0 || node >= proto::kNumaNodesMax) return std::nullopt;
  return static_cast<uint16_t>(node);
}

bool Holds(const std::vector<uint32_t>& of_node, const cpu_set_t& processors) {
  for (uint32_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &processors) && std::ranges::find(of_node, cpu) == of_node.end()) return false;
  }
  return CPU_COUNT(&processors) != 0;
}

}  // namespace

cpu_set_t AllowedProcessors() {
  cpu_set_t processors;
  CPU_ZERO(&processors);
  if (::sched_getaffinity(0, sizeof processors, &processors) != 0) CPU_ZERO(&processors);
  return processors;
}

std::optional<uint16_t> NodeOf(const CallerPlace& caller, const std::string& sysfs) {
  const std::string directory = sysfs + "/devices/system/node/";
  const std::vector<uint32_t> nodes = ListIn(directory + "online");
  if (nodes.size() < 2) return std::nullopt;
  if (const auto node = NodeOfGpu(caller.gpu, sysfs); node) return node;
  for (const uint32_t node : nodes) {
    if (node >= proto::kNumaNodesMax) continue;
    if (Holds(ListIn(directory + "node" + std::to_string(node) + "/cpulist"), caller.processors)) {
      return static_cast<uint16_t>(node);
    }
  }
  return std::nullopt;
}

}  // namespace tier::link

// How much CPU time the control group of this process may use: version 2 (one file), version 1 (two), both at once.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>

#include "base/cpu.h"

namespace pop {
namespace {

// "max 100000", "150000 100000": microseconds of CPU time per period.
double quota_v2(const std::string& folder) {
  std::ifstream in(folder + "/cpu.max");
  std::string quota;
  double period = 0, value = 0;
  if (!(in >> quota >> period) || !(std::istringstream(quota) >> value) || value <= 0 || period <= 0) return INFINITY;
  return value / period;
}

double quota_v1(const std::string& folder) {  // no limit is written as -1
  std::ifstream quota_in(folder + "/cpu.cfs_quota_us"), period_in(folder + "/cpu.cfs_period_us");
  double quota = 0, period = 0;
  if (!(quota_in >> quota) || !(period_in >> period) || quota <= 0 || period <= 0) return INFINITY;
  return quota / period;
}

// The least of a group and all groups above it: a limit holds for everything below. Seen from inside a container the group's
// path may not exist under `mount`, whose own files are then those that count.
double least_up(double (*quota)(const std::string&), const std::string& mount, std::string group) {
  double least = INFINITY;
  while (group.size() > 1) {
    least = std::min(least, quota(mount + group));
    const size_t slash = group.find_last_of('/');
    if (slash == std::string::npos) break;
    group.resize(slash);
  }
  return std::min(least, quota(mount));
}

bool has_word(const std::string& list, const std::string& word) {
  return ("," + list + ",").find("," + word + ",") != std::string::npos;
}

}  // namespace

double cgroup_cpu_quota(const std::string& root) {
  const std::string mounts = root + "/sys/fs/cgroup";
  double least = INFINITY;
  std::ifstream self(root + "/proc/self/cgroup");
  for (std::string line; std::getline(self, line);) {  // "3:cpu,cpuacct:/group" in version 1, "0::/group" in version 2
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1), group = line.substr(second + 1);
    if (controllers.empty()) {
      for (const char* mount : {"", "/unified"}) least = std::min(least, least_up(quota_v2, mounts + mount, group));
    } else if (has_word(controllers, "cpu")) {
      for (const std::string& mount : {"/" + controllers, std::string("/cpu")})
        least = std::min(least, least_up(quota_v1, mounts + mount, group));
    }
  }
  return least;
}

}  // namespace pop

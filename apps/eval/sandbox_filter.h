// Which system calls a confined program may make: a filter for the kernel (seccomp, in classic BPF).
#pragma once
#include <linux/filter.h>

#include <cstddef>
#include <vector>

namespace pop::app {

struct SandboxFilter {
  std::vector<sock_filter> program;
  std::vector<std::size_t> own_pid;  // instructions whose constant has to become the confined process's id
};

// Everything that is not on the list fails with EPERM: sockets, new processes and threads, changes of files, tracing, mounts.
// Files can be opened for reading only, signals sent to the process itself only. Empty for a machine that it does not know.
SandboxFilter sandbox_filter();

}  // namespace pop::app

#include "apps/eval/sandbox_filter.h"

#include <asm/ioctls.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/seccomp.h>
#include <sys/syscall.h>
#include <sys/utsname.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <initializer_list>

namespace pop::app {
namespace {

// What an interpreter needs to start, to read its library, to compute and to write to what is open. A call that an architecture
// does not have is left out.
constexpr long kAllowed[] = {
    SYS_read,
    SYS_write,
    SYS_readv,
    SYS_writev,
    SYS_pread64,
    SYS_close,
    SYS_lseek,
    SYS_dup,
    SYS_dup3,
    SYS_pipe2,
    SYS_fstat,
    SYS_newfstatat,
    SYS_statx,
    SYS_getdents64,
    SYS_readlinkat,
    SYS_faccessat,
    SYS_faccessat2,
    SYS_getcwd,
    SYS_mmap,
    SYS_munmap,
    SYS_mprotect,
    SYS_mremap,
    SYS_madvise,
    SYS_brk,
    SYS_futex,
    SYS_set_robust_list,
    SYS_set_tid_address,
    SYS_rseq,
    SYS_membarrier,
    SYS_rt_sigaction,
    SYS_rt_sigprocmask,
    SYS_rt_sigreturn,
    SYS_sigaltstack,
    SYS_clock_gettime,
    SYS_clock_getres,
    SYS_clock_nanosleep,
    SYS_nanosleep,
    SYS_gettimeofday,
    SYS_times,
    SYS_getrusage,
    SYS_getrandom,
    SYS_getpid,
    SYS_gettid,
    SYS_getppid,
    SYS_getuid,
    SYS_geteuid,
    SYS_getgid,
    SYS_getegid,
    SYS_getgroups,
    SYS_uname,
    SYS_sysinfo,
    SYS_sched_getaffinity,
    SYS_sched_yield,
    SYS_ppoll,
    SYS_pselect6,
    SYS_restart_syscall,
    SYS_execve,
    SYS_exit,
    SYS_exit_group,
#ifdef SYS_arch_prctl
    SYS_arch_prctl,
#endif
#ifdef SYS_stat
    SYS_stat,
    SYS_lstat,
    SYS_access,
    SYS_readlink,
    SYS_dup2,
    SYS_pipe,
    SYS_poll,
    SYS_select,
    SYS_time,
    SYS_getpgrp,
#endif
};

constexpr unsigned kAllow = SECCOMP_RET_ALLOW;
constexpr unsigned refuse(int error) { return SECCOMP_RET_ERRNO | static_cast<unsigned>(error); }

class Builder {
 public:
  SandboxFilter out;

  void load(size_t offset) { add(BPF_LD | BPF_W | BPF_ABS, static_cast<unsigned>(offset)); }
  void give(unsigned action) { add(BPF_RET | BPF_K, action); }
  // Goes on behind the next `skip` instructions unless the loaded word is `value`.
  void unless(unsigned value, unsigned char skip) { add(BPF_JMP | BPF_JEQ | BPF_K, value, 0, skip); }
  void require(unsigned value, unsigned otherwise) {
    add(BPF_JMP | BPF_JEQ | BPF_K, value, 1, 0);
    give(otherwise);
  }
  void allow(long call) {
    unless(static_cast<unsigned>(call), 1);
    give(kAllow);
  }
  // The low half of an argument; both machines are little-endian.
  void load_argument(int index) { load(offsetof(seccomp_data, args) + 8 * static_cast<size_t>(index)); }

  // The call passes if its argument is one of `values`, else it fails with `error`.
  void allow_values(long call, int argument, std::initializer_list<unsigned> values, int error) {
    unless(static_cast<unsigned>(call), static_cast<unsigned char>(2 + 2 * values.size()));
    load_argument(argument);
    for (const unsigned value : values) {
      unless(value, 1);
      give(kAllow);
    }
    give(refuse(error));
  }

  void allow_reading(long call, int flags_argument) {
    constexpr unsigned kWriting = O_WRONLY | O_RDWR | O_CREAT | O_TRUNC;
    unless(static_cast<unsigned>(call), 4);
    load_argument(flags_argument);
    add(BPF_JMP | BPF_JSET | BPF_K, kWriting, 0, 1);
    give(refuse(EACCES));
    give(kAllow);
  }

  void allow_to_itself(long call) {
    allow_values(call, 0, {0}, EPERM);
    const size_t comparison = out.program.size() - 3;
    out.own_pid.push_back(comparison);
  }

  // prlimit64 with no new limit: a question.
  void allow_asking_limits() {
    unless(SYS_prlimit64, 6);
    load_argument(2);
    unless(0, 3);
    load(offsetof(seccomp_data, args) + 8 * 2 + 4);
    unless(0, 1);
    give(kAllow);
    give(refuse(EPERM));
  }

 private:
  void add(int code, unsigned k, unsigned char if_true = 0, unsigned char if_false = 0) {
    out.program.push_back({static_cast<unsigned short>(code), if_true, if_false, k});
  }
};

unsigned machine() {
  utsname name{};
  if (uname(&name) != 0) return 0;
  if (std::strcmp(name.machine, "x86_64") == 0) return AUDIT_ARCH_X86_64;
  if (std::strcmp(name.machine, "aarch64") == 0) return AUDIT_ARCH_AARCH64;
  return 0;
}

}  // namespace

SandboxFilter sandbox_filter() {
  const unsigned arch = machine();
  if (arch == 0) return {};
  Builder b;
  b.load(offsetof(seccomp_data, arch));
  b.require(arch, SECCOMP_RET_KILL_PROCESS);
  b.load(offsetof(seccomp_data, nr));
  for (const long call : kAllowed) b.allow(call);
  b.allow_reading(SYS_openat, 2);
#ifdef SYS_open
  b.allow_reading(SYS_open, 1);
#endif
  b.allow_values(SYS_ioctl, 1, {TCGETS, FIOCLEX, FIONCLEX}, ENOTTY);
  b.allow_values(SYS_fcntl, 1, {F_DUPFD, F_DUPFD_CLOEXEC, F_GETFD, F_SETFD, F_GETFL}, EPERM);
  b.allow_asking_limits();
  b.allow_to_itself(SYS_kill);
  b.allow_to_itself(SYS_tgkill);
  b.give(refuse(EPERM));
  return b.out;
}

}  // namespace pop::app

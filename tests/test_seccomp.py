"""The shipped programs, judged call by call by a small cBPF machine, and profiles of one's own."""

from __future__ import annotations

import errno
import json
import os
import platform
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher import libseccomp, seccomp, seccomp_bpf, seccomp_cache
from launcher.seccomp import DEBUG, DEFAULT, MACHINES, OFF, SeccompError, describe, load, program
from launcher.seccomp_profile import parse

ROOT = Path(__file__).parents[1]
BUILT_WITH = (2, 5, 4)  # the libseccomp that made the shipped programs

ALLOW, LOG, TRAP, KILL_THREAD, KILL_PROCESS = 0x7FFF0000, 0x7FFC0000, 0x30000, 0, 0x80000000
EPERM, ENOSYS = 0x50000 | errno.EPERM, 0x50000 | errno.ENOSYS
TOKENS = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
I386, ARM = 0x40000003, 0x40000028
X32_BIT = 0x40000000
BOTH = pytest.mark.parametrize("machine", MACHINES)


# --- a machine for seccomp's subset of cBPF -------------------------------------------------------------


def execute(code: bytes, arch: int, number: int, args: tuple[int, ...] = ()) -> int:
    """The value that the kernel would get from the program."""
    data = struct.pack("<IIQ6Q", number & 0xFFFFFFFF, arch, 0, *(*args, 0, 0, 0, 0, 0, 0)[:6])
    lines = list(struct.iter_unpack("<HBBI", code))
    at, a = 0, 0
    while True:
        op, yes, no, k = lines[at]
        at += 1
        if op == 0x06:
            return k
        if op == 0x20:
            a = struct.unpack_from("<I", data, k)[0]
        elif op == 0x54:
            a &= k
        elif op == 0x05:
            at += k
        else:
            at += yes if {0x15: a == k, 0x25: a > k, 0x35: a >= k, 0x45: bool(a & k)}[op] else no


def number_of(name: str, machine: str) -> int:
    return seccomp_bpf.RECENT.get(name) or libseccomp.Library(TOKENS[machine]).number(name)


def verdict(choice: str, machine: str, name: str, *args: int) -> int:
    (code,) = program(choice, machine)
    return execute(code, TOKENS[machine], number_of(name, machine), args)


# --- the shipped programs, every number ------------------------------------------------------------------


def listed(names: str) -> list[str]:
    return names.split()


DENIED = listed("""
    ptrace process_vm_readv process_vm_writev kcmp pidfd_getfd mount umount2 pivot_root chroot swapon swapoff
    unshare setns keyctl add_key request_key bpf perf_event_open fanotify_init lookup_dcookie init_module
    finit_module delete_module create_module query_module get_kernel_syms kexec_load kexec_file_load reboot syslog
    settimeofday clock_settime clock_adjtime adjtimex acct quotactl quotactl_fd sethostname setdomainname vhangup
    name_to_handle_at open_by_handle_at migrate_pages move_pages iopl ioperm modify_ldt _sysctl sysfs uselib ustat
    nfsservctl vserver afs_syscall getpmsg putpmsg security tuxcall epoll_ctl_old epoll_wait_old
""")
ABSENT = listed("""
    clone3 io_uring_setup io_uring_enter io_uring_register userfaultfd memfd_secret listns
    fsopen fsconfig fsmount fspick move_mount open_tree open_tree_attr mount_setattr statmount listmount
""")
ORDINARY = listed("""
    read write openat openat2 close close_range fstat newfstatat statx lseek mmap mprotect munmap mremap brk madvise
    mlock mincore memfd_create rt_sigaction rt_sigprocmask rt_sigreturn rt_sigtimedwait sigaltstack pread64 writev
    pipe2 dup dup3 sched_yield sched_setaffinity nanosleep clock_nanosleep clock_gettime gettimeofday getpid gettid
    connect accept4 sendto sendmsg recvmsg shutdown bind listen getsockname setsockopt getsockopt execve execveat
    exit exit_group wait4 waitid kill tgkill uname fcntl flock fsync truncate ftruncate getdents64 getcwd chdir fchdir
    renameat2 mkdirat unlinkat symlinkat linkat readlinkat fchmodat fchmodat2 fchownat umask prctl setrlimit prlimit64
    getrusage sysinfo getuid setuid setgid setresuid setgroups capget capset setsid setpgid futex futex_waitv
    set_robust_list rseq set_tid_address getrandom epoll_create1 epoll_ctl epoll_pwait epoll_pwait2 eventfd2 signalfd4
    timerfd_create inotify_init1 inotify_add_watch splice tee vmsplice sendfile copy_file_range fallocate
    seccomp landlock_create_ruleset landlock_add_rule landlock_restrict_self pidfd_open pidfd_send_signal membarrier
    shmget semop msgsnd mq_open getxattr setxattr setxattrat io_setup mbind set_mempolicy process_madvise
    cachestat mseal map_shadow_stack getpriority setpriority ioprio_set tkill timer_create mknodat utimensat
""")
OLD_ON_X86 = listed("open stat access pipe select poll fork vfork dup2 rename mkdir unlink arch_prctl alarm time")
LAST_OWN = {"x86_64": 336, "aarch64": 294}
NEWEST = 471


def expected(number: int, machine: str) -> int:
    if LAST_OWN[machine] < number < 424 or number > NEWEST:
        return ENOSYS
    if number in {number_of(name, machine) for name in ABSENT}:
        return ENOSYS
    refused = {number_of(name, machine) for name in (*DENIED, "socket", "socketpair")}  # of AF_UNSPEC
    return EPERM if number in refused else ALLOW


@BOTH
def test_every_number_has_the_verdict_that_the_lists_above_give_it(machine: str) -> None:
    (code,) = program(DEFAULT, machine)
    for number in range(1100):
        assert execute(code, TOKENS[machine], number) == expected(number, machine), number


@BOTH
def test_ordinary_calls_pass_whatever_their_arguments(machine: str) -> None:
    for name in ORDINARY + (OLD_ON_X86 if machine == "x86_64" else []):
        assert verdict(DEFAULT, machine, name) == ALLOW, name
        assert verdict(DEFAULT, machine, name, *[2**64 - 1] * 6) == ALLOW, name


@pytest.mark.parametrize(
    ("machine", "number", "answer"),
    [
        ("x86_64", 101, EPERM),  # ptrace
        ("x86_64", 165, EPERM),  # mount
        ("x86_64", 272, EPERM),  # unshare
        ("x86_64", 250, EPERM),  # keyctl
        ("x86_64", 321, EPERM),  # bpf
        ("x86_64", 323, ENOSYS),  # userfaultfd
        ("x86_64", 0, ALLOW),
        ("aarch64", 117, EPERM),  # ptrace
        ("aarch64", 40, EPERM),  # mount
        ("aarch64", 97, EPERM),  # unshare
        ("aarch64", 219, EPERM),  # keyctl
        ("aarch64", 280, EPERM),  # bpf
        ("aarch64", 282, ENOSYS),  # userfaultfd
        ("aarch64", 63, ALLOW),  # read
        *((machine, number, ENOSYS) for machine in MACHINES for number in (425, 428, 430, 435, 442, 447, 457, 467)),
        *((machine, number, ALLOW) for machine in MACHINES for number in (436, 437, 439, 444, 449, 452, 462, 469)),
        *((machine, number, ENOSYS) for machine in MACHINES for number in (337, 423, 472, 512, 547, 0x7FFFFFFF, -1)),
    ],
)
def test_numbers_written_out_agree_with_the_names(machine: str, number: int, answer: int) -> None:
    assert execute(program(DEFAULT, machine)[0], TOKENS[machine], number) == answer


@BOTH
@pytest.mark.parametrize("choice", [DEFAULT, DEBUG])
def test_other_architectures_never_get_through(machine: str, choice: str) -> None:
    (code,) = program(choice, machine)
    others = {I386, ARM, 0, *TOKENS.values()} - {TOKENS[machine]}
    for number in range(600):
        assert {execute(code, other, number) for other in others} == {ENOSYS}


def test_x32_calls_never_get_through() -> None:
    (code,) = program(DEFAULT, "x86_64")
    assert {execute(code, TOKENS["x86_64"], number | X32_BIT) for number in range(600)} == {ENOSYS}


# --- the shipped programs, calls whose arguments count ---------------------------------------------------

words = st.integers(0, 2**64 - 1)
dirty = st.sampled_from([0, 1 << 32, 0xDEADBEEF << 32, 0xFFFFFFFF << 32])  # the half that the kernel throws away
machines = st.sampled_from(MACHINES)


@given(machine=machines, high=dirty, command=st.sampled_from([0x5412, 0x541C, 0x5423]), others=words)
def test_terminal_input_cannot_be_forged_by_dirty_high_bits(machine: str, high: int, command: int, others: int) -> None:
    for choice in (DEFAULT, DEBUG):
        assert verdict(choice, machine, "ioctl", others, high | command, others) == EPERM


@given(machine=machines, command=words)
def test_other_ioctls_pass(machine: str, command: int) -> None:
    answer = EPERM if command & 0xFFFFFFFF in (0x5412, 0x541C, 0x5423) else ALLOW
    assert verdict(DEFAULT, machine, "ioctl", 0, command) == answer


@pytest.mark.parametrize("command", [0x5401, 0x5413, 0x5414, 0x541B, 0x540E, 0x5410, 0x5421, 0x80045430])
@BOTH
def test_a_terminal_works(machine: str, command: int) -> None:
    assert verdict(DEFAULT, machine, "ioctl", 0, command) == ALLOW


NEW_NAMESPACES = (0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000)


@given(machine=machines, flags=words)
def test_clone_passes_without_a_namespace_flag_and_only_so(machine: str, flags: int) -> None:
    asks = any(flags & new for new in NEW_NAMESPACES)
    assert verdict(DEFAULT, machine, "clone", flags) == (EPERM if asks else ALLOW)


@pytest.mark.parametrize("new", NEW_NAMESPACES)
@BOTH
def test_each_namespace_flag_alone_is_refused(machine: str, new: int) -> None:
    threads = 0x003D0F00  # what a thread of libc is made with
    assert verdict(DEFAULT, machine, "clone", threads) == ALLOW
    assert verdict(DEFAULT, machine, "clone", threads | new) == EPERM


def may_open(family: int, kind: int, protocol: int) -> bool:
    """The intention, in the kernel's own 32-bit terms."""
    family, kind, protocol = family & 0xFFFFFFFF, kind & 0xF, protocol & 0xFFFFFFFF
    if family == 1:
        return True
    if family == 16:
        return protocol == 0
    return family in (2, 10) and (kind, protocol) in {(1, 0), (1, 6), (2, 0), (2, 17)}


@given(
    machine=machines,
    family=st.integers(0, 50) | words,
    kind=st.integers(0, 15),
    flags=st.sampled_from([0, 0x800, 0x80000, 0x80800]),
    protocol=st.sampled_from([0, 1, 4, 6, 9, 16, 17, 58, 115, 132, 136, 255, 256, 262]) | words,
    high=dirty,
)
def test_sockets_are_of_the_families_and_types_that_programs_need(
    machine: str, family: int, kind: int, flags: int, protocol: int, high: int
) -> None:
    answer = ALLOW if may_open(family, kind, protocol) else EPERM
    assert verdict(DEFAULT, machine, "socket", family | high, kind | flags | high, protocol | high) == answer


@pytest.mark.parametrize(
    ("family", "kind", "protocol", "answer"),
    [
        (1, 1, 0, ALLOW),
        (1, 5, 0, ALLOW),
        (2, 1 | 0x80800, 6, ALLOW),
        (10, 2, 17, ALLOW),
        (16, 3 | 0x80000, 0, ALLOW),  # how libc lists interfaces
        (16, 3, 9, EPERM),  # audit
        (16, 3, 12, EPERM),  # netfilter
        (16, 3, 15, EPERM),  # uevent
        (16, 3, 16, EPERM),  # generic
        (2, 3, 1, EPERM),  # raw ICMP
        (2, 3 | 0x80800, 255, EPERM),
        (10, 3, 58, EPERM),
        (2, 10, 0x0300, EPERM),  # SOCK_PACKET
        (2, 1, 132, EPERM),  # SCTP
        (17, 3, 0x0300, EPERM),  # packet
        (38, 5, 0, EPERM),  # alg
        (40, 1, 0, EPERM),  # vsock
        (0, 1, 0, EPERM),
        (1 << 32 | 40, 1, 0, EPERM),
        (1 << 32 | 1, 1, 0, ALLOW),
    ],
)
@BOTH
def test_sockets_by_example(machine: str, family: int, kind: int, protocol: int, answer: int) -> None:
    assert verdict(DEFAULT, machine, "socket", family, kind, protocol) == answer


@given(machine=machines, family=st.integers(0, 50) | words)
def test_socket_pairs_are_unix(machine: str, family: int) -> None:
    answer = ALLOW if family & 0xFFFFFFFF == 1 else EPERM
    assert verdict(DEFAULT, machine, "socketpair", family, 1, 0) == answer


@given(machine=machines, persona=words | st.sampled_from([0, 8, 0x20000, 0x40000, 0x400000, 0xFFFFFFFF]), high=dirty)
def test_a_personality_is_that_of_linux(machine: str, persona: int, high: int) -> None:
    low = persona & 0xFFFFFFFF
    for choice, allowed in ((DEFAULT, (0, 0x20000, 0xFFFFFFFF)), (DEBUG, (0, 0x20000, 0x40000, 0xFFFFFFFF))):
        assert verdict(choice, machine, "personality", persona | high) == (ALLOW if low in allowed else EPERM)


# --- debug -----------------------------------------------------------------------------------------------


@BOTH
def test_debug_is_default_with_three_calls_more(machine: str) -> None:
    (strict,), (debug,) = program(DEFAULT, machine), program(DEBUG, machine)
    token = TOKENS[machine]
    differ = {n for n in range(600) if execute(strict, token, n) != execute(debug, token, n)}
    assert differ == {number_of(name, machine) for name in ("ptrace", "process_vm_readv", "process_vm_writev")}
    assert {execute(debug, token, number) for number in differ} == {ALLOW}


def test_the_sources_of_default_and_debug_differ_in_those_calls_alone() -> None:
    def told(choice: str) -> set[str]:
        rules = json.loads((ROOT / f"launcher/profiles/{choice}.json").read_text())["syscalls"]
        return {
            json.dumps([name, rule["action"], rule.get("errnoRet"), rule.get("args")])
            for rule in rules
            for name in rule["names"]
        }

    assert {json.loads(line)[0] for line in told(DEFAULT) ^ told(DEBUG)} == {
        "ptrace",
        "process_vm_readv",
        "process_vm_writev",
        "personality",
    }


# --- what ships ------------------------------------------------------------------------------------------


def test_the_shipped_programs_are_what_the_sources_compile_to(tmp_path: Path) -> None:
    build = [ROOT / "scripts/build-seccomp", tmp_path]
    subprocess.run(build, check=True, capture_output=True, env={**os.environ, "PYTHON": sys.executable})
    made = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    shipped = {path.name: path.read_bytes() for path in (ROOT / "launcher/profiles").glob("*.bpf")}
    assert made.keys() == shipped.keys()
    if libseccomp.Library(TOKENS["x86_64"]).version() == BUILT_WITH:
        assert made == shipped
    for name, code in made.items():  # other releases may choose other instructions for the same verdicts
        token = TOKENS[name.split(".")[1]]
        cases = [(n, (a, b, 0)) for n in range(600) for a in (0, 1, 2, 16, 40) for b in (0, 1, 3, 0x5412, 0x5423)]
        assert all(execute(code, token, n, args) == execute(shipped[name], token, n, args) for n, args in cases)


def test_the_kernel_would_take_each_program() -> None:
    for choice in (DEFAULT, DEBUG):
        for machine in MACHINES:
            (code,) = program(choice, machine)
            lines = list(struct.iter_unpack("<HBBI", code))
            assert len(lines) <= 4096
            assert lines[-1][0] == 0x06
            for at, (op, yes, no, k) in enumerate(lines):
                assert at + 1 + (k if op == 0x05 else max(yes, no)) < len(lines) or op == 0x06


def test_starting_with_a_shipped_profile_imports_no_compiler() -> None:
    script = (
        "import sys; from launcher.seccomp import program; program('default', 'x86_64');"
        "print({'ctypes', 'json', 'hashlib', 'pathlib', 'struct', 'launcher.seccomp_bpf'} & sys.modules.keys())"
    )
    done = subprocess.run([sys.executable, "-S", "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_off_is_no_program_on_any_machine() -> None:
    assert program(OFF, "riscv64") == []
    assert describe(OFF, "riscv64") == ["off: system calls are not filtered"]


def test_a_choice_is_told_in_a_line() -> None:
    assert describe(DEFAULT, "x86_64") == [f"default: {len(program(DEFAULT, 'x86_64')[0]) // 8} instructions"]


def test_a_machine_without_a_filter_is_refused() -> None:
    with pytest.raises(SeccompError, match="no seccomp filter for machine 'riscv64'") as raised:
        program(DEFAULT, "riscv64")
    assert raised.value.hint == "choose --seccomp off"


@pytest.mark.parametrize("damage", [b"", b"1234567", bytes(4097 * 8)])
def test_a_damaged_program_is_not_loaded(damage: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seccomp, "_SHIPPED", str(tmp_path))
    with pytest.raises(SeccompError, match="No such file"):
        program(DEFAULT, "x86_64")
    (tmp_path / "default.x86_64.bpf").write_bytes(damage)
    with pytest.raises(SeccompError, match="damaged"):
        program(DEFAULT, "x86_64")


# --- profiles of one's own -------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache/egress/seccomp"


def written(tmp_path: Path, profile: object) -> str:
    path = tmp_path / "profile.json"
    path.write_text(profile if isinstance(profile, str) else json.dumps(profile))
    return str(path)


def rule(names: str, action: str, **more: object) -> dict[str, object]:
    return {"names": names.split(), "action": f"SCMP_ACT_{action}", **more}


def when(index: int, op: str, value: int, other: int = 0) -> dict[str, object]:
    return {"index": index, "value": value, "valueTwo": other, "op": f"SCMP_CMP_{op}"}


def allowing(*rules: dict[str, object]) -> dict[str, object]:
    return {"defaultAction": "SCMP_ACT_ALLOW", "syscalls": list(rules)}


def refusing(*rules: dict[str, object], **more: object) -> dict[str, object]:
    return {"defaultAction": "SCMP_ACT_ERRNO", "syscalls": list(rules), **more}


SKETCH = refusing(
    rule("openat read write close mmap execve exit_group ioctl socket", "ALLOW"),
    archMap=[{"architecture": "SCMP_ARCH_X86_64", "subArchitectures": ["SCMP_ARCH_X86", "SCMP_ARCH_X32"]}],
)


@BOTH
def test_an_allowlist_allows_its_list(tmp_path: Path, machine: str) -> None:
    path = written(tmp_path, SKETCH)
    assert verdict(path, machine, "openat") == ALLOW
    assert verdict(path, machine, "mount") == EPERM
    assert verdict(path, machine, "fchmodat2") == EPERM
    assert execute(program(path, machine)[0], TOKENS[machine], 999) == ENOSYS


def test_an_allowlist_of_more_architectures_opens_only_the_machines_own(tmp_path: Path) -> None:
    path = written(tmp_path, SKETCH)
    (code,) = program(path, "x86_64")
    assert {execute(code, I386, number) for number in range(500)} == {ENOSYS}
    assert {execute(code, TOKENS["x86_64"], number | X32_BIT) for number in range(500)} == {ENOSYS}
    assert load(path, "x86_64").warnings == (
        "the profile lists SCMP_ARCH_X32, SCMP_ARCH_X86: their system calls stay denied",
        "the profile does not allow arch_prctl: programs will not start",
    )
    assert describe(path, "aarch64")[1:] == [
        "warning: the profile does not list SCMP_ARCH_AARCH64: its rules hold for it all the same"
    ]


@BOTH
def test_no_profile_opens_the_terminals_input(tmp_path: Path, machine: str) -> None:
    path = written(tmp_path, SKETCH)
    assert verdict(path, machine, "ioctl", 0, 0x5401) == ALLOW
    assert verdict(path, machine, "ioctl", 0, 1 << 32 | 0x5412) == EPERM


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ALLOW", ALLOW),
        ("LOG", LOG),
        ("ERRNO", EPERM),
        ("TRAP", TRAP),
        ("KILL", KILL_THREAD),
        ("KILL_THREAD", KILL_THREAD),
        ("KILL_PROCESS", KILL_PROCESS),
    ],
)
def test_each_action_reaches_the_kernel(tmp_path: Path, name: str, value: int) -> None:
    path = written(tmp_path, allowing(rule("getcwd mseal", name)))
    assert verdict(path, "x86_64", "getcwd") == verdict(path, "x86_64", "mseal") == value
    path = written(tmp_path, {"defaultAction": f"SCMP_ACT_{name}"})
    assert verdict(path, "aarch64", "getcwd") == verdict(path, "aarch64", "mseal") == value


@pytest.mark.parametrize("action", ["SCMP_ACT_TRACE", "SCMP_ACT_NOTIFY"])
def test_actions_that_need_a_supervisor_are_refused(tmp_path: Path, action: str) -> None:
    for profile in ({"defaultAction": action}, allowing({"names": ["read"], "action": action})):
        with pytest.raises(SeccompError, match=f"'{action}' needs a supervising process"):
            program(written(tmp_path, profile), "x86_64")


def test_errors_are_numbers_or_names(tmp_path: Path) -> None:
    rules = (rule("read", "ERRNO", errnoRet=13), rule("write", "ERRNO", errno="EINVAL"), rule("dup", "ERRNO"))
    path = written(tmp_path, allowing(*rules))
    answers = [verdict(path, "x86_64", name) & 0xFFFF for name in ("read", "write", "dup")]
    assert answers == [errno.EACCES, errno.EINVAL, errno.EPERM]
    assert verdict(written(tmp_path, refusing(defaultErrnoRet=38)), "x86_64", "read") == ENOSYS
    assert verdict(written(tmp_path, refusing(defaultErrno="ENOSYS")), "x86_64", "read") == ENOSYS


COMPARISONS = {
    "NE": lambda a, v: a != v,
    "LT": lambda a, v: a < v,
    "LE": lambda a, v: a <= v,
    "EQ": lambda a, v: a == v,
    "GE": lambda a, v: a >= v,
    "GT": lambda a, v: a > v,
}


@pytest.mark.parametrize("op", COMPARISONS)
@pytest.mark.parametrize("value", [0, 5, 1 << 32 | 5, 2**64 - 1])
def test_each_comparison_is_of_64_bits(tmp_path: Path, op: str, value: int) -> None:
    path = written(tmp_path, allowing(rule("dup", "ERRNO", args=[when(0, op, value)])))
    for given_value in (0, 4, 5, 6, 1 << 32, 1 << 32 | 5, 1 << 32 | 6, 2 << 32, 2**64 - 1):
        assert (verdict(path, "x86_64", "dup", given_value) == EPERM) == COMPARISONS[op](given_value, value)


def test_conditions_of_one_rule_hold_together(tmp_path: Path) -> None:
    conditions = [when(0, "EQ", 7), when(2, "MASKED_EQ", 0xF0, 0x30)]
    path = written(tmp_path, refusing(rule("lseek", "ALLOW", args=conditions)))
    calls = {(7, 0, 0x3F): ALLOW, (7, 0, 0x4F): EPERM, (8, 0, 0x3F): EPERM}
    assert {args: verdict(path, "x86_64", "lseek", *args) for args in calls} == calls


@BOTH
def test_rules_with_arguments_speak_before_the_one_without(tmp_path: Path, machine: str) -> None:
    exception = rule("lseek", "ERRNO", errnoRet=22, args=[when(2, "EQ", 4)])
    path = written(tmp_path, refusing(rule("lseek", "ALLOW"), exception))
    assert verdict(path, machine, "lseek", 0, 0, 0) == ALLOW
    assert verdict(path, machine, "lseek", 0, 0, 4) == 0x50000 | 22


def test_of_rules_with_arguments_the_strictest_speaks_first(tmp_path: Path) -> None:
    wide = rule("lseek", "ALLOW", args=[when(0, "GE", 3)])
    narrow = rule("lseek", "ERRNO", args=[when(2, "EQ", 4)])
    for rules in ((wide, narrow), (narrow, wide)):
        path = written(tmp_path, refusing(*rules))
        assert verdict(path, "x86_64", "lseek", 3, 0, 0) == ALLOW
        assert verdict(path, "x86_64", "lseek", 3, 0, 4) == EPERM
        assert verdict(path, "x86_64", "lseek", 2, 0, 0) == EPERM


def test_a_rule_said_twice_is_one(tmp_path: Path) -> None:
    twice = rule("lseek dup", "ALLOW", args=[when(0, "EQ", 3)]), rule("read", "ALLOW")
    path = written(tmp_path, refusing(*twice, *twice, {"name": "write", "action": "SCMP_ACT_ALLOW", "args": None}))
    assert [verdict(path, "x86_64", name, 3) for name in ("lseek", "read", "write", "close")] == [ALLOW] * 3 + [EPERM]


@pytest.mark.parametrize(
    ("conditions", "release", "machine", "holds"),
    [
        ({"includes": {"caps": ["CAP_SYS_ADMIN"]}}, "6.1", "x86_64", False),
        ({"excludes": {"caps": ["CAP_SYS_ADMIN"]}}, "6.1", "x86_64", True),
        ({"includes": {"arches": ["amd64", "x32"]}}, "6.1", "x86_64", True),
        ({"includes": {"arches": ["amd64"]}}, "6.1", "aarch64", False),
        ({"excludes": {"arches": ["arm64"]}}, "6.1", "aarch64", False),
        ({"includes": {"minKernel": "4.8"}}, "4.8.0-1-amd64", "x86_64", True),
        ({"includes": {"minKernel": "4.8"}}, "4.7", "x86_64", False),
        ({"includes": {"minKernel": "4.8"}}, "4.10.1", "x86_64", True),
        ({"excludes": {"minKernel": "5.0"}}, "6.18.1", "x86_64", False),
        ({"excludes": {"minKernel": "5.0"}}, "4.19", "x86_64", True),
        ({"includes": {}, "excludes": None}, "6.1", "x86_64", True),
        ({"includes": {"arches": ["amd64"]}, "excludes": {"minKernel": "6.0"}}, "6.1", "x86_64", False),
    ],
)
def test_rules_hold_where_their_conditions_do(
    conditions: dict[str, object], release: str, machine: str, holds: bool
) -> None:
    text = json.dumps(allowing(rule("read", "ERRNO", **conditions))).encode()
    assert bool(parse(text, machine, release).rules) == holds


def test_calls_of_other_machines_are_passed_over(tmp_path: Path) -> None:
    path = written(tmp_path, allowing(rule("iopl vm86 arm_fadvise64_64 mount", "ERRNO")))
    assert verdict(path, "aarch64", "mount") == EPERM


def test_a_name_nobody_knows_stays_denied_or_is_an_error(tmp_path: Path) -> None:
    path = written(tmp_path, refusing(rule("read nosuchcall", "ALLOW")))
    assert verdict(path, "x86_64", "read") == ALLOW
    with pytest.raises(SeccompError, match="denies an unknown system call 'mounts'"):
        program(written(tmp_path, allowing(rule("mounts", "ERRNO"))), "x86_64")


@pytest.mark.parametrize(
    ("profile", "says"),
    [
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ('{"defaultAction": "SCMP_ACT_ALLOW", "defaultAction": "SCMP_ACT_ERRNO"}', "one key twice"),
        ([], "profile is '\\[\\]', expected an object"),
        ({}, "defaultAction is None, expected one of"),
        ({"defaultAction": "ALLOW"}, "defaultAction is 'ALLOW'"),
        ({"defaultAction": ["SCMP_ACT_ALLOW"]}, "defaultAction is"),
        (refusing(listenerPath="/x"), "unknown key 'listenerPath'"),
        (refusing(syscall=[]), "unknown key 'syscall'"),
        (refusing({"names": "read", "action": "SCMP_ACT_ALLOW"}), "names is 'read', expected a list"),
        (refusing({"names": [1], "action": "SCMP_ACT_ALLOW"}), "expected a list of words"),
        (refusing({"names": [], "action": "SCMP_ACT_ALLOW"}), "rule names 'None'"),
        (refusing(rule("read\0x", "ALLOW")), r"rule names 'read\\x00x'"),
        (refusing(rule("read", "ALLOW", arg=[])), "unknown key 'arg'"),
        (refusing(rule("read", "ALLOW", args=[when(6, "EQ", 0)])), "index is 6, expected a whole number from 0 to 5"),
        (refusing(rule("read", "ALLOW", args=[when(0, "EQ", -1)])), "value is -1"),
        (refusing(rule("read", "ALLOW", args=[when(0, "EQ", 2**64)])), "value is 18446744073709551616"),
        (refusing(rule("read", "ALLOW", args=[{**when(0, "EQ", 0), "value": True}])), "value is True"),
        (refusing(rule("read", "ALLOW", args=[when(0, "LIKE", 0)])), "'SCMP_CMP_LIKE' is not one of"),
        (refusing(rule("read", "ALLOW", args=[when(0, "GE", 1), when(0, "LE", 3)])), "compares one argument twice"),
        (refusing(rule("mseal", "ALLOW", args=[when(0, "GE", 1)])), "cannot compare the arguments of 'mseal'"),
        (refusing(rule("read", "ALLOW"), rule("read", "KILL")), "two actions for 'read'"),
        (refusing(rule("mseal", "ALLOW"), rule("mseal", "KILL")), "two actions for 'mseal'"),
        (allowing(rule("read", "ERRNO", errnoRet=4096)), "errnoRet is 4096"),
        (allowing(rule("read", "ERRNO", errno="ENOPE")), "errno is 'ENOPE'"),
        (allowing(rule("read", "ERRNO", includes={"minKernel": "new"})), "minKernel is 'new'"),
        (allowing(rule("read", "ERRNO", includes={"kernel": "4.8"})), "unknown key 'kernel'"),
        (
            allowing(*(rule("dup", "ERRNO", args=[when(0, "EQ", n << 32 | n)]) for n in range(2000))),
            "the kernel takes 4096",
        ),
    ],
)
def test_what_is_not_understood_is_refused(tmp_path: Path, profile: object, says: str) -> None:
    with pytest.raises(SeccompError, match=says):
        program(written(tmp_path, profile), "x86_64")


def test_flags_of_the_loader_are_named_and_ignored(tmp_path: Path) -> None:
    path = written(tmp_path, {"defaultAction": "SCMP_ACT_ALLOW", "flags": ["SECCOMP_FILTER_FLAG_LOG"]})
    assert load(path, "x86_64").warnings == ("the profile's flags are ignored: SECCOMP_FILTER_FLAG_LOG",)


def test_a_choice_that_is_no_file_says_what_would_do() -> None:
    with pytest.raises(SeccompError, match="seccomp profile 'strict': No such file") as raised:
        program("strict", "x86_64")
    assert raised.value.hint == "choose default, debug, off or the path of a JSON profile"


def test_a_huge_profile_is_not_read(tmp_path: Path) -> None:
    with pytest.raises(SeccompError, match="larger than"):
        program(written(tmp_path, " " * (1 << 20) + "{}"), "x86_64")


def test_without_the_library_shipped_profiles_work_and_others_say_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(_: str) -> None:
        raise OSError("libseccomp.so.2: cannot open shared object file")

    monkeypatch.setattr(libseccomp.ctypes, "CDLL", missing)
    assert program(DEFAULT, "x86_64")
    with pytest.raises(SeccompError, match="cannot open shared object file") as raised:
        program(written(tmp_path, SKETCH), "x86_64")
    assert raised.value.hint == "apt-get install libseccomp2"


# --- the cache -------------------------------------------------------------------------------------------

LITTLE = allowing(rule("dup", "ERRNO"))
FAKE = struct.pack("<HBBI", 0x06, 0, 0, ALLOW)


def only_file(cache: Path) -> Path:
    (path,) = cache.iterdir()
    return path


def test_a_profile_is_compiled_once(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, LITTLE)
    first = program(path, "x86_64")
    assert only_file(cache).stat().st_mode & 0o777 == 0o600
    monkeypatch.setattr(seccomp_bpf, "compile_profile", None)
    assert program(path, "x86_64") == first


def test_warnings_are_given_each_time(tmp_path: Path) -> None:
    path = written(tmp_path, SKETCH)
    assert load(path, "x86_64").warnings == load(path, "x86_64").warnings != ()


def test_another_text_machine_or_kernel_is_another_program(tmp_path: Path) -> None:
    keys = {
        seccomp_cache.key(text, machine, release)
        for text in (b"{}", b"{} ")
        for machine in MACHINES
        for release in ("6.1.0-1", "6.12")
    }
    assert len(keys) == 8
    assert seccomp_cache.key(b"{}", "x86_64", "6.1.0-1") == seccomp_cache.key(b"{}", "x86_64", "6.1.0-2")


def plant(path: Path, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path.write_bytes(FAKE)
    if how == "writable by others":
        path.chmod(0o620)
    elif how == "a link":
        path.rename(path.with_suffix(".other"))
        path.symlink_to(path.with_suffix(".other"))
    elif how == "of another user":
        monkeypatch.setattr(seccomp_cache.os, "geteuid", lambda: 4242)
    elif how == "cut short":
        path.write_bytes(FAKE[:-1])
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "too long":
        path.write_bytes(FAKE * 4097)
    elif how == "a pipe":
        path.unlink()
        os.mkfifo(path)


@pytest.mark.parametrize(
    ("how", "taken"),
    [
        ("as it should be", True),
        ("writable by others", False),
        ("a link", False),
        ("of another user", False),
        ("cut short", False),
        ("empty", False),
        ("too long", False),
        ("a pipe", False),
    ],
)
def test_a_cached_program_is_taken_only_if_it_must_be_ours(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, how: str, taken: bool
) -> None:
    path = written(tmp_path, LITTLE)
    program(path, "x86_64")
    plant(only_file(cache), how, monkeypatch)
    assert (program(path, "x86_64") == [FAKE]) == taken


def test_a_cache_that_cannot_be_written_costs_nothing_but_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    for nowhere in (str(tmp_path / "file"), "/proc/nowhere"):
        monkeypatch.setenv("XDG_CACHE_HOME", nowhere)
        assert verdict(written(tmp_path, LITTLE), "x86_64", "dup") == EPERM


def test_a_write_that_fails_leaves_nothing(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(source: str, target: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(seccomp_cache.os, "rename", full)
    assert verdict(written(tmp_path, LITTLE), "x86_64", "dup") == EPERM
    assert list(cache.iterdir()) == []


@pytest.mark.parametrize(
    ("environment", "place"),
    [
        ({"XDG_CACHE_HOME": "/c", "HOME": "/h"}, "/c/egress/seccomp"),
        ({"XDG_CACHE_HOME": "relative", "HOME": "/h"}, "/h/.cache/egress/seccomp"),
        ({"HOME": "/h"}, "/h/.cache/egress/seccomp"),
        ({"HOME": ""}, None),
    ],
)
def test_the_cache_is_where_the_specification_says(
    environment: dict[str, str], place: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seccomp_cache.os, "environ", environment)
    assert seccomp_cache.directory() == place


def test_this_machine_has_a_filter() -> None:
    assert platform.machine() in MACHINES

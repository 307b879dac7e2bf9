"""Forces races: walks a thread of another process from system call to system call, and holds it there while others act.

Linux only, as the product; needs the right to trace (root, or one user's processes where Yama allows it). A thread is
seized by ptrace(2), which stops it nowhere but where it is asked to, and lets go of it when the test is over. All calls
must come from one thread of the test, since a tracer is a thread.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import re
import signal
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from lpstage import wait_for

LIMIT_S = 60.0

CONT, SYSCALL, DETACH = 7, 24, 17
SEIZE, INTERRUPT, LISTEN, GET_SYSCALL_INFO = 0x4206, 0x4207, 0x4208, 0x420E
SYSGOOD, EVENT_STOP, WALL = 1, 128, 0x40000000

# Numbers by <asm/unistd.h>; `at` is the argument with a path, -1 none.
CALLS: dict[str, tuple[int, int, int]] = {  # x86-64, the generic table (aarch64), at
    "read": (0, 63, -1),
    "write": (1, 64, -1),
    "close": (3, 57, -1),
    "pread64": (17, 67, -1),
    "pwrite64": (18, 68, -1),
    "madvise": (28, 233, -1),
    "fcntl": (72, 25, -1),
    "flock": (73, 32, -1),
    "fsync": (74, 82, -1),
    "rmdir": (84, -84, 0),  # the generic table has unlinkat only
    "futex": (202, 98, -1),
    "clock_nanosleep": (230, 115, -1),
    "epoll_wait": (232, 22, -1),  # there: epoll_pwait
    "openat": (257, 56, 1),
    "newfstatat": (262, 79, 1),
    "unlinkat": (263, 35, 1),
    "renameat": (264, 38, 3),
    "pidfd_open": (434, 434, -1),
}
MACHINE = {"x86_64": 0, "aarch64": 1}.get(platform.machine(), -1)
NAMES = {numbers[MACHINE]: name for name, numbers in CALLS.items()} if MACHINE >= 0 else {}

libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
libc.ptrace.restype = ctypes.c_long


def ptrace(request: int, thread: int, address: int | None = None, data: object = None) -> int:
    pointer = ctypes.cast(data, ctypes.c_void_p) if isinstance(data, ctypes.Array) else data
    result = int(libc.ptrace(request, thread, address, pointer))
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


@dataclass(frozen=True)
class Call:
    """Where a thread stands: before a system call, or after one."""

    name: str  # of those in CALLS; others by their number
    path: str  # its path argument as it stands there, "" none
    entered: bool  # before it; else after
    result: int  # after it: a negative errno when it failed
    first: int  # argument, before it


class Halted:
    """A thread that stands still between two calls of this object's methods."""

    def __init__(self, thread: int) -> None:
        self.thread = thread
        self.ended = False
        self.pending = 0  # signal that it gets when it goes on
        self.last: Call | None = None
        try:
            ptrace(SEIZE, thread, None, SYSGOOD)
        except PermissionError:
            pytest.skip("this user may trace no other process")
        ptrace(INTERRUPT, thread)
        self._wait()

    def _wait(self) -> int | None:
        """Status at its next stop; None: it has ended."""
        deadline = time.monotonic() + LIMIT_S
        while True:
            pid, status = os.waitpid(self.thread, WALL | os.WNOHANG)
            if pid:
                break
            assert time.monotonic() < deadline, f"thread {self.thread} does not come to a system call"
            time.sleep(0.0002)
        if not os.WIFSTOPPED(status):
            self.ended = True
            return None
        return status

    def _info(self) -> Call:
        room = ctypes.create_string_buffer(128)
        size = ptrace(GET_SYSCALL_INFO, self.thread, len(room), room)
        kind, first = room.raw[0], 24
        assert size > first
        if kind == 2:
            (result,) = struct.unpack_from("q", room.raw, first)
            last = self.last
            return Call(last.name if last else "?", last.path if last else "", False, result, 0)
        assert kind == 1, kind
        number, *arguments = struct.unpack_from("7Q", room.raw, first)
        name = NAMES.get(number, str(number))
        at = CALLS[name][2] if name in CALLS else -1
        return Call(name, self._text(arguments[at]) if at >= 0 else "", True, 0, arguments[0])

    def _text(self, address: int) -> str:
        found = b""
        with contextlib.suppress(OSError), open(f"/proc/{self.thread}/mem", "rb", buffering=0) as memory:
            while b"\0" not in found and len(found) < 4096:  # not across a page that may not be there
                memory.seek(address + len(found))
                found += memory.read(256 - (address + len(found)) % 256)
        return os.fsdecode(found.split(b"\0")[0])

    def step(self) -> Call | None:
        """Goes on to the next beginning or end of a system call; None: the thread has ended."""
        while not self.ended:
            ptrace(SYSCALL, self.thread, None, self.pending)
            self.pending = 0
            status = self._wait()
            if status is None:
                break
            number = os.WSTOPSIG(status)
            if number == signal.SIGTRAP | 0x80:
                self.last = self._info()
                return self.last
            if status >> 16 == 0:
                self.pending = number  # a signal on its way to it
        return None

    def run_to(self, name: str, path: str = "", *, after: bool = False) -> Call:
        """Goes on to where it is about to make (or, `after`, has made) that call (one of several: "a|b"), with a path
        in which `path` is found."""
        deadline = time.monotonic() + LIMIT_S
        while call := self.step():
            assert time.monotonic() < deadline, f"thread {self.thread} does not come to {name} {path}"
            if call.name in name.split("|") and call.entered != after and re.search(path, call.path):
                return call
        raise AssertionError(f"thread {self.thread} ended before {name} {path}")

    def let_go(self) -> None:
        if not self.ended:
            with contextlib.suppress(ProcessLookupError):
                ptrace(DETACH, self.thread, None, self.pending)
            self.ended = True


@contextlib.contextmanager
def halted(thread: int) -> Iterator[Halted]:
    """Seizes and stops a thread (a process's id is that of its first one); lets go of it at the end."""
    if MACHINE < 0:
        pytest.skip("system calls of this machine are not known here")
    held = Halted(thread)
    try:
        yield held
    finally:
        held.let_go()


def thread_named(pid: int, name: str) -> int:
    """The thread of that name of a process, which may have begun just now: a thread names itself."""
    found: list[int] = []

    def is_there() -> bool:
        found[:] = [int(t.name) for t in Path(f"/proc/{pid}/task").iterdir() if (t / "comm").read_text() == name + "\n"]
        return bool(found)

    wait_for(is_there, f"thread {name}", LIMIT_S)
    (one,) = found
    return one

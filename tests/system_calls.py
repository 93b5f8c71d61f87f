"""Watches the system calls with which a program writes, syncs and responds, or makes them fail.

The kernel suspends the program at each of them until this process decides (seccomp user
notification). This needs Linux 5.5 or newer, but no privileges.
"""

from __future__ import annotations

import ctypes
import os
import platform
import select
import socket
import struct
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from fcntl import ioctl
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

from tests.waiting import LIMIT_SECONDS

_NUMBERS: Final = {
    "x86_64": {"fsync": 74, "fdatasync": 75, "pwrite64": 18, "sendto": 44, "seccomp": 317},
    "aarch64": {"fsync": 82, "fdatasync": 83, "pwrite64": 68, "sendto": 206, "seccomp": 277},
}
"""The numbers of the watched calls, and of seccomp, by machine."""

SYNCS: Final = ("fsync", "fdatasync")
"""The calls that make earlier writes survive a loss of power."""
WRITES: Final = ("pwrite64",)
"""The calls by which SQLite writes."""

# From <linux/prctl.h>, <linux/seccomp.h> and <linux/bpf_common.h>.
_PR_SET_NO_NEW_PRIVS: Final = 38
_SECCOMP_SET_MODE_FILTER: Final = 1
_SECCOMP_FILTER_FLAG_NEW_LISTENER: Final = 8
_SECCOMP_RET_ALLOW: Final = 0x7FFF0000
_SECCOMP_RET_USER_NOTIF: Final = 0x7FC00000
_SECCOMP_USER_NOTIF_FLAG_CONTINUE: Final = 1
_NOTIF_RECV: Final = 0xC0502100
_NOTIF_SEND: Final = 0xC0182101
_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_INSTRUCTION: Final = struct.Struct("HBBI")
# The notification's id, process and flags; then the call's number, architecture, instruction
# pointer and arguments.
_NOTIFICATION: Final = struct.Struct("QIIiIQ6Q")
_RESPONSE: Final = struct.Struct("QqiI")


class Call(NamedTuple):
    """A system call with its file and its thread. The name of a socket begins with `socket`."""

    name: str
    file: str
    thread: int


class SystemCalls:
    """The system calls of a program: `made` lists them in order.

    The program must be started from the text that `source` returns, and then attached.
    """

    def __init__(self) -> None:
        self.made: list[Call] = []
        self._errors: dict[str, int] = {}
        self._names = {number: name for name, number in _numbers().items()}
        self._threads: list[threading.Thread] = []
        # Linux chooses an abstract name, without a file.
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind("")
        self._socket.listen()
        self._socket.settimeout(LIMIT_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Wait until the programs have ended. The caller must have stopped them."""
        self._socket.close()
        for thread in self._threads:
            thread.join(LIMIT_SECONDS)

    def source(self, program: str) -> str:
        """Return the source of a program that can be attached."""
        name = self._socket.getsockname()
        return f"from tests.system_calls import report_to\nreport_to({name!r})\n{program}"

    def attach(self) -> None:
        """Watch a program that was just started. It waits until this method is called."""
        connection, _ = self._socket.accept()
        with connection:
            _, (listener,), _, _ = socket.recv_fds(connection, 1, 1)
        self._threads.append(threading.Thread(target=self._watch, args=(listener,)))
        self._threads[-1].start()

    @contextmanager
    def failing(self, names: Collection[str], error: int) -> Iterator[None]:
        """Make each call with one of these names fail without effect."""
        self._errors = dict.fromkeys(names, error)
        try:
            yield
        finally:
            self._errors = {}

    def _watch(self, listener: int) -> None:
        poll = select.poll()
        poll.register(listener, select.POLLIN)
        # Any other event is the end of the program.
        while poll.poll()[0][1] & select.POLLIN:
            # The program may be killed while it is suspended.
            with suppress(FileNotFoundError):
                self._respond(listener)
        os.close(listener)

    def _respond(self, listener: int) -> None:
        held = bytearray(_NOTIFICATION.size)
        ioctl(listener, _NOTIF_RECV, held)
        number_of_notification, thread, _, number, _, _, descriptor, *_ = _NOTIFICATION.unpack(held)
        file = Path(f"/proc/{thread}/fd/{descriptor}").readlink().name
        name = self._names[number]
        self.made.append(Call(name, file, thread))
        error = self._errors.get(name, 0)
        go_on = 0 if error else _SECCOMP_USER_NOTIF_FLAG_CONTINUE
        ioctl(listener, _NOTIF_SEND, _RESPONSE.pack(number_of_notification, 0, -error, go_on))


def report_to(name: bytes) -> None:
    """Suspend this process, and those it starts, at the watched calls."""
    libc = ctypes.CDLL(None, use_errno=True)
    numbers = _numbers()
    seccomp = numbers.pop("seccomp")
    # A number that matches jumps over those after it, and over the instruction to allow the call.
    jumps = [(_JUMP_IF_EQUAL, len(numbers) - each, 0, n) for each, n in enumerate(numbers.values())]
    last = [(_RETURN, 0, 0, _SECCOMP_RET_ALLOW), (_RETURN, 0, 0, _SECCOMP_RET_USER_NOTIF)]
    program = [(_LOAD, 0, 0, 0), *jumps, *last]
    instructions = ctypes.create_string_buffer(
        b"".join(_INSTRUCTION.pack(*each) for each in program)
    )
    filter_program = struct.pack("HP", len(program), ctypes.addressof(instructions))
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    listener = libc.syscall(
        seccomp, _SECCOMP_SET_MODE_FILTER, _SECCOMP_FILTER_FLAG_NEW_LISTENER, filter_program
    )
    if listener < 0:
        reason = os.strerror(ctypes.get_errno())
        raise RuntimeError(f"this kernel has no seccomp user notification (Linux 5.5): {reason}")
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(name)
        socket.send_fds(connection, [b"."], [listener])
    os.close(listener)


def _numbers() -> dict[str, int]:
    machine = platform.machine()
    assert machine in _NUMBERS, f"the numbers of the system calls of {machine} are not listed here"
    return dict(_NUMBERS[machine])

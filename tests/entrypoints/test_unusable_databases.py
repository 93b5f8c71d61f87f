"""Database files that cannot be used. The error names the file and the reason."""

from __future__ import annotations

import ctypes
import os
import struct
from concurrent.futures import ThreadPoolExecutor

from tests.databases import make_database
from tests.entrypoints.conftest import CommandLine
from tests.programs import free_port

COMMANDS = [("migrate",), ("token", "list"), ("reconcile",)]


def stop_overriding_file_modes() -> None:
    """Take from root, in this thread, the two capabilities with which root overrides file modes."""
    if os.geteuid() != 0:
        return
    libc = ctypes.CDLL(None, use_errno=True)
    # From <linux/capability.h>: version 3, and effective, permitted and inheritable sets of 64 bits.
    header, sets = struct.pack("Ii", 0x20080522, 0), ctypes.create_string_buffer(24)
    assert libc.capget(header, sets) == 0
    fewer = [each & ~(1 << 1 | 1 << 2) for each in struct.unpack("6I", sets.raw)]
    assert libc.capset(header, struct.pack("6I", *fewer)) == 0


def test_a_folder_in_place_of_the_database_file_is_refused(unmigrated: CommandLine) -> None:
    unmigrated.database.mkdir()

    for arguments in COMMANDS:
        assert unmigrated.refuses(*arguments) == (
            f"the database cannot be used ({unmigrated.database}: unable to open database file; "
            "this path is a folder): check that it can be reached, has free space and is not locked"
        )


def test_a_folder_in_place_of_the_fake_psps_database_file_is_refused(
    cardonfile: CommandLine,
) -> None:
    file = cardonfile.database.with_name("cards-fake-psp.db")
    file.mkdir()

    complaint = cardonfile.refuses("reconcile")

    assert complaint.startswith(f"the fake PSP cannot use its database ({file}: ")


def test_the_refusal_of_an_inaccessible_database_file_states_the_reason(
    unmigrated: CommandLine,
) -> None:
    read_only, fixed, hidden = (unmigrated.folder / name / "cards.db" for name in ("a", "b", "c"))
    for database in (read_only, fixed):
        database.parent.mkdir()
        make_database(database)
    read_only.chmod(0o400)
    fixed.parent.chmod(0o500)
    hidden.parent.mkdir(mode=0)

    unmigrated.environment["CARDONFILE_FAKE_PSP_DATABASE"] = str(unmigrated.folder / "fake-psp.db")
    serve, token_list = ("serve", "--port", str(free_port())), ("token", "list")
    reasons = (
        (serve, read_only, "a readonly database; this user may not read and write the file"),
        (serve, fixed, "this user may not write in its folder"),
        (token_list, hidden, "the file does not exist, or this user may not search its folder"),
    )
    with ThreadPoolExecutor(1, initializer=stop_overriding_file_modes) as thread:
        for command, database, reason in reasons:
            settings = {"CARDONFILE_DATABASE_URL": f"sqlite:///{database}"}
            complaint = thread.submit(unmigrated.refuses, *command, **settings).result()
            assert complaint.startswith(f"the database cannot be used ({database}: ")
            assert f"{reason}): check that" in complaint
    fixed.parent.chmod(0o700)
    hidden.parent.chmod(0o700)

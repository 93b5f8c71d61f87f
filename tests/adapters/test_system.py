from __future__ import annotations

import os
import pwd
from base64 import urlsafe_b64decode
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from adapters.system import RandomIds, SystemClock, operating_system_user
from tests.waiting import wait_until


def test_the_system_clock_returns_the_time_in_utc() -> None:
    before, now, after = datetime.now(UTC), SystemClock().now(), datetime.now(UTC)

    assert before <= now <= after
    assert now.tzinfo is UTC


def test_the_system_clock_counts_as_steady_after_a_period_without_a_jump() -> None:
    elapsed = [0.0]
    clock = SystemClock(lambda: elapsed[0], steady_after=timedelta(seconds=0.2))
    wait_until(clock.is_steady)
    # Seconds pass that the clock does not show.
    elapsed[0] = 59.0
    assert clock.is_steady()
    elapsed[0] = 62.0
    assert not clock.is_steady()
    wait_until(clock.is_steady)
    assert not SystemClock().is_steady()


# Shows S3.
def test_generated_ids_are_random_uuids() -> None:
    uuids = {RandomIds().uuid() for _ in range(1000)}

    assert len(uuids) == 1000
    assert all(UUID(uuid).version == 4 and str(UUID(uuid)) == uuid for uuid in uuids)


def test_generated_secrets_have_256_random_bits() -> None:
    secrets = {RandomIds().secret() for _ in range(1000)}

    assert len(secrets) == 1000
    assert all(len(urlsafe_b64decode(secret + "=")) == 32 for secret in secrets)


def test_the_operating_system_user_is_read_from_the_process_instead_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("LOGNAME", "USER"):
        monkeypatch.setenv(name, "somebody-else")
    assert operating_system_user() == f"user:{pwd.getpwuid(os.getuid()).pw_name}"

    # A container may run as a user that is not in the password file.
    monkeypatch.setattr(os, "getuid", lambda: 2**31 - 7)
    assert operating_system_user() == f"user:{2**31 - 7}"

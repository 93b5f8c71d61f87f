from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import datetime, timedelta

import pytest

from adapters.identity import OpaqueTokens
from adapters.sqlite.storage import SqliteStorage
from domain.access.token import Identity, TokenState
from tests.installation import Installation, Later

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)


@pytest.fixture
def identity(installation: Installation) -> Identity:
    return installation.container.identity()


def used_at(installation: Installation) -> datetime | None:
    (token,) = installation.access_tokens()
    return token.used_at


def test_the_last_use_of_a_token_is_written_at_most_once_an_hour(
    installation: Installation, identity: Identity
) -> None:
    token, noon = installation.token_for(installation.caller), installation.clock.now()
    for expected, step in ((1, timedelta(0)), (0, timedelta(minutes=59)), (1, MINUTE)):
        installation.clock.advance(step)
        for _ in range(3):
            identity.authenticate(token)
        assert installation.token_uses.run() == expected
    assert used_at(installation) == noon + HOUR

    installation.clock.advance(DAY)
    assert identity.authenticate(token) is TokenState.EXPIRED
    assert installation.token_uses.run() == 0


def test_the_last_use_of_a_token_is_not_written_again_by_a_second_process(
    installation: Installation,
) -> None:
    token = installation.token_for(installation.caller)
    ran = []
    for writer in (Later(), Later()):
        OpaqueTokens(
            storage=installation.storage, clock=installation.clock, writer=writer
        ).authenticate(token)
        ran.append(writer.run())
    assert ran == [1, 0]
    assert used_at(installation) == installation.clock.now()


def test_a_request_does_not_wait_until_the_use_of_its_token_is_written(
    installation: Installation,
) -> None:
    token, other = installation.token_for(installation.caller), SqliteStorage(installation.database)
    with ThreadPoolExecutor() as writer, closing(other):
        identity = OpaqueTokens(
            storage=installation.storage, clock=installation.clock, writer=writer
        )
        with other.write():
            assert identity.authenticate(token) == installation.caller
    assert used_at(installation) == installation.clock.now()

    # While the process ends, no use is noted.
    installation.clock.advance(HOUR)
    assert identity.authenticate(token) == installation.caller


def test_writing_the_last_use_of_a_token_is_retried_an_hour_after_a_failure(
    installation: Installation,
) -> None:
    token, other = installation.token_for(installation.caller), SqliteStorage(installation.database)
    impatient = SqliteStorage(installation.database, busy_timeout_seconds=0)
    with closing(other), closing(impatient):
        identity = OpaqueTokens(
            storage=impatient, clock=installation.clock, writer=installation.token_uses
        )
        with other.write():
            identity.authenticate(token)
            assert installation.token_uses.run() == 1
        identity.authenticate(token)
        assert installation.token_uses.run() == 0
        assert used_at(installation) is None
        installation.clock.advance(HOUR)
        identity.authenticate(token)
        assert installation.token_uses.run() == 1
    assert used_at(installation) == installation.clock.now()

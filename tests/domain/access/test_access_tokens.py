"""Access tokens: issued, listed and revoked."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

import pytest

from adapters.psp_suite.samples import GUEST_ID
from domain.access.revoke_token import TokenAmbiguous, TokenNotFound
from domain.access.token import AccessToken, TokenState
from domain.centers.center import CenterNotFound
from domain.errors import InvalidField
from domain.identifiers import CallerName, CenterId
from domain.permissions import Caller, Permission
from tests.builders import CENTER_ID, a_center, an_access_token
from tests.databases import committed
from tests.installation import Installation

HOUR = timedelta(hours=1)
LIFETIME = HOUR
MICROSECOND = timedelta(microseconds=1)


# Any: these are arguments of the use case by name, some of them invalid.
def issue(installation: Installation, **changes: Any) -> str:
    request: dict[str, Any] = {
        "caller": "web-store",
        "permissions": {Permission.GUESTS_ADD},
        "lifetime": LIFETIME,
    }
    return installation.container.issue_token()(**(request | changes))


class TestIssuingTokens:
    def test_only_the_hash_of_an_access_token_is_stored(self, installation: Installation) -> None:
        token = issue(installation)

        assert re.fullmatch(r"cof_[A-Za-z0-9_-]{22,}", token)
        assert installation.access_tokens() == (
            AccessToken(
                token_hash=sha256(token.encode()).hexdigest(),
                prefix=token[:12],
                caller=Caller(
                    name=CallerName("web-store"), permissions=frozenset({Permission.GUESTS_ADD})
                ),
                issued_at=installation.clock.now(),
                expires_at=installation.clock.now() + LIFETIME,
            ),
        )

    def test_a_token_may_be_limited_to_some_centers(self, installation: Installation) -> None:
        spa = CenterId("abcdefab-cdef-4abc-8def-abcdefabcdef")
        installation.has_center(a_center(id=spa))

        issue(installation, centers=[CENTER_ID, spa.upper()])
        issue(installation, centers=[])

        some, none = (token.caller.centers for token in installation.access_tokens())
        assert (some, none) == (frozenset({CENTER_ID, spa}), frozenset())

    @pytest.mark.parametrize("lifetime", [timedelta(minutes=1), timedelta(days=3650)])
    def test_an_access_token_may_have_the_shortest_or_the_longest_allowed_lifetime(
        self, installation: Installation, lifetime: timedelta
    ) -> None:
        issue(installation, lifetime=lifetime, caller="x" * 100)

        (kept,) = installation.access_tokens()
        assert kept.expires_at == kept.issued_at + lifetime
        assert kept.caller.name == "x" * 100

    @pytest.mark.parametrize(
        ("field", "value", "expected"),
        [
            ("lifetime", timedelta(minutes=1) - MICROSECOND, "from 1 minute to 3650 days"),
            ("lifetime", timedelta(days=3650) + MICROSECOND, "from 1 minute to 3650 days"),
            ("caller", "", "1 to 100 characters"),
            ("caller", "x" * 101, "1 to 100 characters"),
            ("caller", "web\nstore", "1 to 100 characters"),
            ("caller", "jwt:web-store", "a name that does not begin with jwt:"),
            ("centers", [CENTER_ID, "harbor"], "a UUID such as"),
        ],
    )
    def test_issuing_a_token_with_an_invalid_value_is_refused(
        self, installation: Installation, field: str, value: object, expected: str
    ) -> None:
        with pytest.raises(InvalidField) as refused:
            issue(installation, **{field: value})

        assert refused.value.field == field
        assert refused.value.expected.startswith(expected)
        assert not installation.access_tokens()

    def test_a_token_for_an_unknown_center_is_refused(self, installation: Installation) -> None:
        with pytest.raises(
            CenterNotFound, match=f"^there is no center {GUEST_ID}: import it first$"
        ):
            issue(installation, centers=[CENTER_ID, GUEST_ID])

        assert not installation.access_tokens()


def test_an_access_token_is_active_until_it_expires_or_is_revoked() -> None:
    token = an_access_token()

    assert token.state(token.expires_at - MICROSECOND) is TokenState.ACTIVE
    assert token.state(token.expires_at) is TokenState.EXPIRED
    revoked = an_access_token(revoked_at=token.issued_at)
    assert revoked.state(token.issued_at) is TokenState.REVOKED
    assert revoked.state(token.expires_at) is TokenState.REVOKED


def test_the_time_of_a_tokens_last_use_is_updated_at_most_once_an_hour() -> None:
    hour = datetime(2026, 11, 20, 12, tzinfo=UTC)
    token = an_access_token()

    assert token.hour_to_note(hour) == hour
    assert token.hour_to_note(hour + HOUR - MICROSECOND) == hour
    used = replace(token, used_at=hour)
    assert used.hour_to_note(hour + HOUR - MICROSECOND) is None
    assert used.hour_to_note(hour + HOUR) == hour + HOUR
    assert used.hour_to_note(hour - MICROSECOND) is None


class TestRevokingTokens:
    @pytest.mark.parametrize("length", [8, 14, 999])
    def test_an_access_token_can_be_revoked_by_its_prefix_or_its_full_text(
        self, installation: Installation, length: int
    ) -> None:
        token = issue(installation)
        revoked_at = installation.clock.now()

        revoked = installation.container.revoke_token()(token[:length])

        assert revoked.revoked_at == revoked_at
        assert installation.access_tokens() == (revoked,)
        installation.clock.advance(LIFETIME)
        assert installation.container.revoke_token()(token) == revoked

    @pytest.mark.parametrize("prefix", ["", "c", "cof_"])
    def test_the_prefix_that_all_tokens_share_does_not_revoke_a_token(
        self, installation: Installation, prefix: str
    ) -> None:
        issue(installation)

        with pytest.raises(InvalidField, match=r"^prefix must be longer than cof_, the beginning"):
            installation.container.revoke_token()(prefix)

        assert installation.access_tokens()[0].revoked_at is None

    def test_revoking_an_unknown_prefix_has_no_effect(self, installation: Installation) -> None:
        issue(installation)
        # An argument from the shell that is not valid UTF-8 becomes a lone surrogate.
        for unknown in ("cof_unknown", "\udcff"):
            with pytest.raises(TokenNotFound):
                installation.container.revoke_token()(unknown)

        assert installation.access_tokens()[0].revoked_at is None

    def test_a_prefix_that_two_tokens_share_does_not_revoke_either_token(
        self, installation: Installation
    ) -> None:
        for secret in ("same-text-1", "same-text-2"):
            _, kept = AccessToken.issue(
                an_access_token().caller,
                secret=secret,
                now=installation.clock.now(),
                lifetime=LIFETIME,
            )
            with committed(installation.storage) as unit:
                unit.access_tokens.add(kept)

        for shared in ("cof_same-tex", "cof_same-text-"):
            with pytest.raises(TokenAmbiguous, match="or the whole token"):
                installation.container.revoke_token()(shared)

        revoked = installation.container.revoke_token()("cof_same-text-2")
        assert revoked.is_token("cof_same-text-2")
        assert [token.revoked_at for token in installation.access_tokens() if token != revoked] == [
            None
        ]

from __future__ import annotations

import pytest

from domain.installation.recognize_origin import AnotherOrigin, RecognizeOrigin
from tests.installation import Installation

A, B = "https://a.example", "https://b.example"


def at(installation: Installation, origin: str | None) -> RecognizeOrigin:
    return RecognizeOrigin(storage=installation.storage, origin=origin)


# Shows F49.
@pytest.mark.parametrize("other", [B, "https://a.example:8443", "http://a.example", None])
def test_a_database_claimed_by_one_public_origin_is_refused_at_another_origin(
    installation: Installation, other: str | None
) -> None:
    at(installation, A)(claims=True)

    for claims in (False, True):
        with pytest.raises(AnotherOrigin) as refused:
            at(installation, other)(claims=claims)
        assert str(refused.value) == (
            f"this database belongs to {A}. If the installation has moved, run `cardonfile installation "
            "move`. If the database is a copy, run `cardonfile installation copy`"
        )
    at(installation, A)()


def test_a_database_accepts_any_origin_until_it_is_claimed(installation: Installation) -> None:
    at(installation, None)(claims=True)
    at(installation, B)()
    at(installation, A)(claims=True)

    with pytest.raises(AnotherOrigin):
        at(installation, B)()


def test_the_second_of_two_claims_of_an_origin_is_refused(installation: Installation) -> None:
    installation.before_next_write(lambda: at(installation, A)(claims=True))

    with pytest.raises(AnotherOrigin):
        at(installation, B)(claims=True)

from __future__ import annotations

from collections.abc import Sequence

import pytest

from adapters.psp_suite.samples import GUEST_ID
from domain.cards.account import Account
from domain.cards.find_account import account_with
from domain.cards.queries import consents_of
from domain.consents.given_consent import GivenConsent
from domain.errors import PaymentAccountNotFound
from tests.builders import a_center
from tests.installation import Installation


def consents(installation: Installation, account: Account) -> Sequence[GivenConsent]:
    return installation.use_cases.read_consent(
        installation.caller, guest_id=GUEST_ID, account_id=account.account_id
    )


# Shows I11.
def test_a_card_keeps_the_consent_of_each_of_its_sessions(installation: Installation) -> None:
    first = installation.stored_card()
    installation.has_center(a_center(name="Harbor Spa & Sauna"))
    session = installation.session_with_card(expiry=(9, 2035))
    installation.settle(session.token_id)
    renewed = installation.account(first.account_id)
    # Delete the sessions, as docs/scaling.md recommends.
    installation.loses("card_sessions")

    applies, earlier = consents(installation, first)

    assert applies.text is not None
    assert "Harbor Spa & Sauna" in applies.text
    assert earlier.text == applies.text.replace(" & Sauna", "")
    for consent, account, token_id in (
        (applies, renewed, session.token_id),
        (earlier, first, first.token_id),
    ):
        assert (consent.version, consent.language) == ("2026-11", "en")
        assert consent.agreed_at == account.consented_at
        assert (consent.account_id, consent.token_id) == (first.account_id, token_id)


def test_a_consent_can_still_be_read_after_its_text_is_lost(installation: Installation) -> None:
    account = installation.stored_card()
    for table in ("card_sessions", "consents"):
        installation.loses(table)

    assert list(consents(installation, account)) == [
        GivenConsent(
            account_id=account.account_id,
            token_id=account.token_id,
            version=account.consent_version,
            language=None,
            text=None,
            agreed_at=account.consented_at,
        )
    ]


def test_only_operators_can_read_the_consent_for_a_removed_card(installation: Installation) -> None:
    account = installation.stored_card()
    before = consents(installation, account)
    installation.remove_card(account)

    with pytest.raises(PaymentAccountNotFound):
        consents(installation, account)
    with installation.storage.read() as unit:
        assert consents_of(unit, account_with(unit, account.account_id.upper())) == before

"""Import of cards that a PSP has already stored."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from adapters.psp_suite.samples import GUEST_ID, OTHER_GUEST_ID
from domain.cards.account import READINGS_PER_MINUTE
from domain.cards.compare_cards import Comparison
from domain.cards.import_card import IMPORTS_PER_MINUTE, CardToImport, Fate
from domain.cards.queries import consents_of
from domain.centers.payment_configuration import CardsPerGuest
from domain.errors import InvalidField
from domain.identifiers import CardToken, MerchantAccount, ProviderName, PspAccount
from domain.psps.card import Card, CardAtPsp, CardList
from tests.builders import CENTER_ID, OTHER_CENTER_ID, a_card_to_import, a_guest, an_account
from tests.databases import references_of
from tests.installation import GOOD_CARD, MERCHANT, MISMATCHING_CARD, OTHER_GOOD_CARD, Installation

FAKE = ProviderName("fake")


def brought(installation: Installation, card: Card, **changes: Any) -> Fate:
    return installation.container.import_card()(a_card_to_import(card, **changes))


def test_an_imported_card_has_the_details_that_its_psp_reports(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead = installation.clock.now() + timedelta(days=400)
    monkeypatch.setattr(installation.psp, "clock", SimpleNamespace(now=lambda: ahead))
    card = installation.card_at_psp()

    assert brought(installation, card) is Fate.STORED

    (account,) = installation.accounts()
    assert {field: getattr(account, field) for field in Card.__slots__} == {
        field: getattr(card, field) for field in Card.__slots__
    }
    assert (account.psp_account, account.is_default) == ((FAKE, MERCHANT), True)
    assert timedelta(days=27) <= (account.due_at or account.created_at) - account.created_at
    now = installation.clock.now()
    assert (account.expiry_notice_at, account.read_at) == (card.next_expiry_notice(now), now)
    assert account.expiry_notice_at is not None
    assert installation.read_cards() == 0


@pytest.mark.parametrize("text", [None, "You may charge my card."])
def test_an_import_stores_the_consent_together_with_the_card(
    installation: Installation, text: str | None
) -> None:
    language = "en" if text else None
    brought(installation, installation.card_at_psp(), consent_text=text, consent_language=language)

    (account,) = installation.accounts()
    with installation.storage.read() as unit:
        (consent,) = consents_of(unit, account)
    agreed = a_card_to_import(account)
    assert (consent.version, consent.agreed_at) == (agreed.consent_version, agreed.consented_at)
    assert (consent.language, consent.text) == (language, text)


# Shows I10.
def test_the_event_about_an_imported_card_states_that_the_card_was_imported(
    installation: Installation,
) -> None:
    installation.has_endpoint()
    card = installation.card_at_psp()
    brought(installation, card, consent_text="Sie dürfen.", consent_language="de")

    (event,) = [each.event for each in installation.deliveries()]
    (account,) = installation.accounts()
    assert (event.type, event.reason, event.language) == ("account.stored", "imported", "de")
    assert (event.account_id, event.status) == (account.account_id, "active")


# Shows I9.
@pytest.mark.parametrize("has_default", [True, False])
def test_an_imported_card_becomes_the_default_only_if_the_guest_has_no_default_card(
    installation: Installation, has_default: bool
) -> None:
    first = installation.stored_card()
    installation.put_account(replace(first, is_default=has_default))

    assert brought(installation, installation.card_at_psp(OTHER_GOOD_CARD)) is Fate.STORED

    assert [each.is_default for each in installation.accounts()] == [has_default, not has_default]


# Shows I2.
def test_importing_a_card_a_second_time_does_not_call_the_psp(installation: Installation) -> None:
    card = installation.card_at_psp()
    brought(installation, card)
    installation.provider.calls.clear()

    assert brought(installation, card) is Fate.ON_FILE
    assert installation.provider.calls == []
    assert len(installation.accounts()) == 1


# Shows I2, I7.
def test_a_card_on_file_under_another_token_is_not_imported(installation: Installation) -> None:
    stored = installation.stored_card()
    card = installation.card_at_psp()

    assert brought(installation, card) is Fate.SAME_CARD

    installation.reconcile()
    assert installation.tokens_at_psp() == {stored.token, card.token}
    installation.has_other_center()
    assert brought(installation, card, center_id=OTHER_CENTER_ID) is Fate.STORED


# Shows I5.
def test_an_import_does_not_assign_one_psp_customer_to_two_guests(
    installation: Installation,
) -> None:
    installation.has_guest(a_guest(id=OTHER_GUEST_ID))
    card = installation.card_at_psp()
    other = installation.card_at_psp(OTHER_GOOD_CARD, guest=card.guest_reference)
    brought(installation, card)

    # Otherwise, erasing the first guest would delete the card of the second guest.
    assert brought(installation, other, guest_id=OTHER_GUEST_ID) is Fate.SHARED
    assert brought(installation, other) is Fate.STORED


# Shows I5.
@pytest.mark.parametrize("known", [Installation.opened_session, Installation.removed_card])
def test_an_import_refuses_another_guests_psp_customer_even_if_that_guest_has_no_card_on_file(
    installation: Installation, known: Callable[[Installation], object]
) -> None:
    known(installation)
    installation.has_guest(a_guest(id=OTHER_GUEST_ID))
    ((_, reference),) = references_of(installation.storage, GUEST_ID)
    card = installation.card_at_psp(guest=reference)

    assert brought(installation, card, guest_id=OTHER_GUEST_ID) is Fate.SHARED


class TestRefusedImport:
    def test_a_card_deleted_at_the_psp_is_not_imported(self, installation: Installation) -> None:
        card = installation.card_at_psp()
        installation.psp.discard(MERCHANT, card.guest_reference, card.token)

        assert brought(installation, card) is Fate.GONE

    @pytest.mark.parametrize(
        ("changes", "fate"),
        [
            ({"guest_reference": "x"}, Fate.UNKNOWN),
            ({"token": "x"}, Fate.UNKNOWN),
            ({"guest_id": OTHER_GUEST_ID}, Fate.NO_GUEST),
        ],
    )
    def test_a_card_is_not_imported_if_the_card_or_its_guest_is_unknown(
        self, installation: Installation, changes: dict[str, str], fate: Fate
    ) -> None:
        assert brought(installation, installation.card_at_psp(), **changes) is fate

    # Shows I7.
    def test_a_card_that_was_removed_is_not_imported(self, installation: Installation) -> None:
        card = installation.card_at_psp()
        brought(installation, card)
        installation.remove_card(*installation.accounts())

        assert brought(installation, card) is Fate.REMOVED
        installation.reconcile()
        assert brought(installation, card) is Fate.REMOVED
        assert installation.tokens_at_psp() == set()

    def test_a_second_card_is_not_imported_if_the_center_allows_one_card_per_guest(
        self, installation: Installation
    ) -> None:
        installation.configure(cards_per_guest=CardsPerGuest.ONE)

        assert brought(installation, installation.card_at_psp()) is Fate.STORED
        assert brought(installation, installation.card_at_psp(OTHER_GOOD_CARD)) is Fate.ONE_CARD

    # Shows I12.
    @pytest.mark.parametrize("meanwhile", [False, True])
    def test_a_card_of_an_erased_guest_is_not_imported(
        self, installation: Installation, meanwhile: bool
    ) -> None:
        card = installation.card_at_psp()

        def erase() -> None:
            installation.container.erase_guest()(None, guest_id=GUEST_ID)

        installation.provider.meanwhile["read_card"] = erase
        if not meanwhile:
            installation.provider.meanwhile.pop("read_card")()

        assert brought(installation, card) is Fate.ERASED
        assert not installation.accounts()

    # Shows I2.
    def test_concurrent_imports_of_a_card_store_it_once(self, installation: Installation) -> None:
        card = installation.card_at_psp()
        installation.provider.meanwhile["read_card"] = lambda: brought(installation, card)

        assert brought(installation, card) is Fate.ON_FILE
        assert len(installation.accounts()) == 1


def test_card_imports_and_card_refreshes_share_the_limit_on_calls_to_the_psp(
    installation: Installation,
) -> None:
    assert IMPORTS_PER_MINUTE < READINGS_PER_MINUTE
    now, import_card = installation.clock.now(), installation.container.import_card()
    asked = {"merchant_account": MERCHANT, "asked_at": now}
    installation.add_accounts(*(an_account(number, **asked) for number in range(2)))
    first, second, third = (
        a_card_to_import(installation.card_at_psp(number))
        for number in (GOOD_CARD, OTHER_GOOD_CARD, MISMATCHING_CARD)
    )

    assert import_card(first, per_minute=3) is Fate.STORED
    assert import_card(second, per_minute=3) is Fate.LATER
    with installation.storage.read() as unit:
        assert unit.accounts.count_asked(now) == {PspAccount(FAKE, MERCHANT): 3}
    assert import_card(second) is Fate.STORED
    installation.clock.advance(timedelta(minutes=1))
    assert import_card(third, per_minute=1) is Fate.STORED


CELLS = {
    "guest_id": GUEST_ID,
    "center_id": CENTER_ID,
    "provider": "fake",
    "merchant_account": "default",
    "guest_reference": "cus_1",
    "token": "pm_1",
    "consented_at": "2024-05-31",
    "consent_version": "2024-05",
}


@pytest.mark.parametrize(
    ("time", "expected"),
    [
        ("2024-05-31", datetime(2024, 5, 31, tzinfo=UTC)),
        ("2024-05-31T14:30:00+02:00", datetime(2024, 5, 31, 12, 30, tzinfo=UTC)),
    ],
)
def test_a_valid_row_of_a_card_import_is_parsed(time: str, expected: datetime) -> None:
    card = CardToImport.parse(**{**CELLS, "consented_at": time})

    assert (card.consented_at, card.consent_text) == (expected, None)
    assert card.psp_account == PspAccount(FAKE, MerchantAccount("default"))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("guest_id", "7"), ("center_id", ""), ("guest_reference", ""), ("token", "a b")),
        *(("token", "4242424242424242"), ("token", "x" * 256), ("guest_reference", "é")),
        *(("consented_at", each) for each in ("", "31.5.2024", "2024-05-31T14:30", "1970-01-01")),
        *(("consented_at", "0001-01-01T00:00+14:00"), ("consent_version", "")),
        *(("consent_language", "en"), ("consent_text", "You may charge 4242424242424242.")),
    ],
)
def test_the_refusal_of_a_row_of_a_card_import_names_the_invalid_cell(
    field: str, value: str
) -> None:
    more = {"consent_language": "en"} if field == "consent_text" else {}

    with pytest.raises(InvalidField) as refused:
        CardToImport.parse(**{**CELLS, **more, field: value})

    assert refused.value.field == field
    assert "4242" not in refused.value.expected


def test_a_comparison_reports_cards_that_are_only_at_the_psp_or_only_on_file(
    installation: Installation,
) -> None:
    both = installation.stored_card()
    only_here = installation.stored_card(OTHER_GOOD_CARD)
    installation.psp.discard(MERCHANT, only_here.guest_reference, only_here.token)
    only_there = installation.card_at_psp()
    installation.clock.advance(timedelta(seconds=1))
    compare = installation.container.compare_cards()

    found = compare(PspAccount(FAKE, MERCHANT))

    there = CardAtPsp(only_there.guest_reference, only_there.token)
    assert found == Comparison([there], [only_here], 1)
    # A card that is being discarded is in neither list.
    installation.remove_card(both)
    again = compare(PspAccount(FAKE, MERCHANT))
    assert (again.only_at_psp, len(again.only_on_file), again.in_both) == ([there], 1, 0)
    assert compare(PspAccount(FAKE, MerchantAccount("other"))) == Comparison([], [], 0)


@pytest.mark.parametrize("is_there", [False, True])
def test_a_card_stored_during_a_comparison_with_the_psp_is_not_reported(
    installation: Installation, is_there: bool
) -> None:
    there = installation.card_at_psp() if is_there else None
    installation.provider.meanwhile["list_cards"] = lambda: brought(
        installation, there or installation.card_at_psp()
    )

    found = installation.container.compare_cards()(PspAccount(FAKE, MERCHANT))

    assert found == Comparison([], [], int(is_there))


def test_a_card_changed_during_a_comparison_is_not_reported(installation: Installation) -> None:
    installation.stored_card()
    removed = installation.stored_card(OTHER_GOOD_CARD)
    installation.clock.advance(timedelta(seconds=1))

    def change_both() -> None:
        installation.stored_card(expiry=(10, 2032))
        installation.remove_card(removed)
        installation.reconcile()

    installation.provider.meanwhile["list_cards"] = change_both

    found = installation.container.compare_cards()(PspAccount(FAKE, MERCHANT))

    assert found == Comparison([], [], 0)


def test_a_comparison_reports_both_tokens_if_a_card_has_another_token_at_the_psp(
    installation: Installation,
) -> None:
    card = installation.card_at_psp()
    brought(installation, card)
    (account,) = installation.accounts()
    installation.put_account(replace(account, token=CardToken("another")))
    installation.clock.advance(timedelta(seconds=1))

    found = installation.container.compare_cards()(PspAccount(FAKE, MERCHANT))

    assert [each.token for each in found.only_at_psp] == [card.token]
    assert [each.token for each in found.only_on_file] == ["another"]


def test_a_comparison_reads_every_page_of_the_psps_list_of_cards(
    installation: Installation,
) -> None:
    cards = [
        CardAtPsp(card.guest_reference, card.token)
        for card in (installation.card_at_psp(), installation.card_at_psp(OTHER_GOOD_CARD))
    ]
    pages = {None: CardList(cards[:1], "second"), "second": CardList(cards[1:], None)}
    installation.provider.list_cards = lambda _, place: pages.pop(place)

    found = installation.container.compare_cards()(PspAccount(FAKE, MERCHANT))

    assert found == Comparison(cards, [], 0)

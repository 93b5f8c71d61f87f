"""Charges of stored cards at the fake PSP, over HTTP."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest
from falcon.testing import Result

from adapters.fake_psp.charges import PATH
from adapters.fake_psp.psp import MAX_LISTED, ChargeRequest, ChargeStatus, FakePsp
from adapters.psp_suite.clock import SettableClock
from adapters.psp_suite.concurrency import at_once
from adapters.psp_suite.ids import SeededIds
from domain.cards.account import Account
from domain.identifiers import GuestReference
from tests.adapters.fake_psp.conftest import BASE_URL, MAIN, REQUEST, card_entry
from tests.adapters.http.api import refused_bare
from tests.installation import GOOD_CARD, Installation

CHARGE_DECLINED, CHARGE_UNCONFIRMED = "4000000000009995", "4000002760003184"


def request_of(account: Account, **changes: Any) -> dict[str, Any]:
    named = {"guest_reference": account.guest_reference, "token": account.token}
    return {**named, "amount": "84.00", "currency": "EUR", **changes}


def send(
    installation: Installation, body: object, *, key: str | None = None, method: str = "POST"
) -> Result:
    """Send a request with the charge key, and with the Idempotency-Key `key` if it is given."""
    headers = {"Authorization": f"Bearer {installation.psp.charge_key}"}
    if key is not None:
        headers["Idempotency-Key"] = key
    return installation.client().simulate_request(method, PATH, json=body, headers=headers)


def listed(installation: Installation) -> list[dict[str, Any]]:
    charges: list[dict[str, Any]] = send(installation, None, method="GET").json["charges"]
    return charges


@pytest.mark.parametrize(
    ("number", "status"),
    [
        (GOOD_CARD, "approved"),
        (CHARGE_DECLINED, "declined"),
        (CHARGE_UNCONFIRMED, "authentication_required"),
    ],
)
def test_the_number_of_the_test_card_decides_the_result_of_a_charge(
    installation: Installation, number: str, status: str
) -> None:
    account = installation.stored_card(number)

    answered = send(installation, request_of(account))

    assert (answered.status_code, answered.json["status"]) == (200, status)
    assert listed(installation) == [answered.json]
    assert answered.json.items() >= request_of(account).items()


def test_charging_a_removed_card_or_another_guests_card_returns_the_status_card_gone(
    installation: Installation,
) -> None:
    account = installation.stored_card()
    other = request_of(account, guest_reference="guest_other")
    assert send(installation, other).json["status"] == "card_gone"

    installation.remove_card(account)
    installation.reconcile()
    assert send(installation, request_of(account)).json["status"] == "card_gone"


def test_charging_an_expired_card_is_declined(psp: FakePsp, clock: SettableClock) -> None:
    card = psp.try_card(psp.start_page(REQUEST).reference, card_entry()).card
    assert card is not None
    clock.advance(timedelta(days=3_650))
    request = ChargeRequest(
        guest_reference=card.guest_reference, token=card.token, amount="1.00", currency="EUR"
    )

    assert psp.charge(request, None).status is ChargeStatus.DECLINED


def test_repeating_a_charge_with_its_idempotency_key_charges_the_card_once(
    installation: Installation,
) -> None:
    account = installation.stored_card()

    first = send(installation, request_of(account), key="booking-1")
    again = send(installation, request_of(account), key='"booking-1"')
    other = send(installation, request_of(account, amount="85.00"), key="booking-1")

    assert again.json == first.json
    assert refused_bare(other) == (422, "Idempotency-Key was used with a different request")
    assert listed(installation) == [first.json]


def test_concurrent_charges_with_one_idempotency_key_charge_the_card_once(
    psp: FakePsp, database: Path
) -> None:
    # A second FakePsp on the same file stands for a second process.
    other = FakePsp(database, base_url=BASE_URL, clock=psp.clock, ids=SeededIds(2))
    request = ChargeRequest(
        guest_reference="guest_1", token="card_1", amount="1.00", currency="EUR"
    )

    answers = at_once(4, lambda number: [psp, other][number % 2].charge(request, "booking-1"))

    assert psp.charges() == [answers[0]]
    assert set(answers) == {answers[0]}


def test_the_list_of_charges_contains_the_latest_charges(psp: FakePsp) -> None:
    for number in range(MAX_LISTED + 1):
        request = ChargeRequest(
            guest_reference="guest_1", token="card_1", amount=f"{number + 1}", currency="JPY"
        )
        psp.charge(request, None)

    amounts = [charge.amount for charge in psp.charges()]

    assert amounts == [str(number) for number in range(MAX_LISTED + 1, 1, -1)]


def test_charging_a_card_requires_the_charge_key(installation: Installation) -> None:
    body, client = request_of(installation.stored_card()), installation.client()
    basic = f"Basic {installation.psp.charge_key}"

    for method in ("GET", "POST"):
        for sent in ("", "Bearer", "Bearer x", "Bearer \u00e9", basic):
            headers = {"Authorization": sent}
            answered = client.simulate_request(method, PATH, json=body, headers=headers)
            assert refused_bare(answered) == (401, "User not authenticated")
    assert listed(installation) == []


INVALID: Final[list[dict[str, Any]]] = [
    *({"currency": "EURO"}, {"currency": "XAU", "amount": "1"}, {"currency": "JPY"}),
    *({"amount": each} for each in ("84", "0.00", "-1.00", 84, "84.00\n", "\u0668\u0664.00")),
    *({"token": GOOD_CARD}, {"guest_reference": GOOD_CARD}, {"token": None}),
]


def test_a_charge_with_invalid_values_is_refused(installation: Installation) -> None:
    account, client = installation.stored_card(), installation.client()

    for changes in INVALID:
        code, message = refused_bare(send(installation, request_of(account, **changes)))
        assert (changes, code, GOOD_CARD in message) == (changes, 400, False)
    headers = {"Authorization": f"Bearer {installation.psp.charge_key}"}
    for body in (b"", b"[]", b"{", b'{"amount": "' + b"1" * 20_000 + b'"}'):
        assert client.simulate_post(PATH, body=body, headers=headers).status_code == 400
    assert listed(installation) == []


def test_erasing_a_guest_deletes_the_charges_of_the_guest(psp: FakePsp, database: Path) -> None:
    card = psp.try_card(psp.start_page(REQUEST).reference, card_entry()).card
    assert card is not None
    kept, gone = (
        ChargeRequest(guest_reference=guest, token=card.token, amount="1.00", currency="EUR")
        for guest in ("guest_other", card.guest_reference)
    )
    psp.charge(kept, None)
    psp.charge(gone, None)

    psp.forget_guest(MAIN, GuestReference(card.guest_reference))

    assert [charge.guest_reference for charge in psp.charges()] == ["guest_other"]
    files = database.parent.glob(f"{database.name}*")
    assert not any(
        b'"guest_reference":"' + card.guest_reference.encode() in each.read_bytes()
        for each in files
    )


def test_a_deleted_charge_key_is_replaced_at_the_next_start(psp: FakePsp, database: Path) -> None:
    former = psp.charge_key
    with psp._database.write() as db:
        db.execute("DELETE FROM keys WHERE name = 'charge key'")

    again = FakePsp(database, base_url=BASE_URL, clock=psp.clock, ids=SeededIds(2))

    assert again.charge_key not in ("", former)
    assert again.webhook_secret == psp.webhook_secret

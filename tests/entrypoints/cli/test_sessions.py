"""The commands that list, show, count and cancel sessions."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest

from adapters.psp_suite.samples import OTHER_GUEST_ID, a_uuid
from domain.agreements.click import AgreementClick
from domain.errors import IncorrectBillingAddress
from domain.identifiers import TokenId, link_key_from
from domain.sessions.end import SessionStatus
from domain.sessions.result import SessionResult
from domain.sessions.session import CardSession
from tests.builders import (
    CALLER,
    CENTER_ID,
    OTHER_CENTER_ID,
    a_center,
    a_refused_card,
    a_session,
    an_account,
    an_agreement,
    an_attempt,
    terms_of_a_booking,
)
from tests.databases import committed
from tests.entrypoints.conftest import CommandLine
from tests.installation import (
    DECLINED_CARD,
    GOOD_CARD,
    NO_PREPAID,
    OTHER_GOOD_CARD,
    PREPAID_CARD,
    Installation,
    Trouble,
)

MINUTE: Final = timedelta(minutes=1)
NOBODY: Final = "TOKEN must be the beginning of exactly one session's token; no session matches"


@pytest.fixture
def installation(cardonfile: CommandLine) -> Iterator[Installation]:
    """Return an installation on the database of the command line."""
    with closing(Installation(cardonfile.folder)) as installed:
        yield installed


def token(number: int) -> TokenId:
    return TokenId(f"{number:08}-0000-4000-8000-000000000001")


def store(cardonfile: CommandLine, *sessions: CardSession) -> None:
    with committed(cardonfile.storage) as unit:
        unit.centers.put_many([a_center(), a_center(id=OTHER_CENTER_ID)])
        for session in sessions:
            unit.sessions.add(session)


def some_sessions(cardonfile: CommandLine) -> list[CardSession]:
    """Store sessions of each result, oldest first and a minute apart. The first is 8 days old."""
    now = datetime.now(UTC)
    failed = a_session(attempt=an_attempt())
    sessions = [
        a_session(due_at=now - MINUTE),
        a_session(due_at=now + MINUTE),
        a_session(guest_id=OTHER_GUEST_ID, unanswered_since=now),
        failed.failed(IncorrectBillingAddress(), now),
        a_session(center_id=OTHER_CENTER_ID).completed(an_account(1).account_id, now),
        a_session(attempt=an_attempt()).completed(an_account(1).account_id, now),
        a_session(status=SessionStatus.EXPIRED, attempt=an_attempt(over=True)),
        a_session(status=SessionStatus.EXPIRED, attempt=an_attempt(over=True)),
        a_session(status=SessionStatus.EXPIRED),
    ]
    stored = [
        replace(
            session,
            token_id=token(number),
            link_key=link_key_from(token(number)),
            created_at=now - MINUTE * (20 - number),
        )
        for number, session in enumerate(sessions)
    ]
    stored[0] = replace(stored[0], created_at=now - timedelta(days=8))
    store(cardonfile, *stored)
    with committed(cardonfile.storage) as unit:
        unit.accounts.add(an_account(1, token_id=token(4)))
        unit.refused_cards.add([a_refused_card(token_id=token(7))])
    return stored


@pytest.mark.parametrize(
    ("options", "numbers"),
    [
        ((), [8, 7, 6, 5, 4, 3, 2, 1]),
        (("--since", "999999999d"), [8, 7, 6, 5, 4, 3, 2, 1, 0]),
        (("--since", "15m"), [8, 7, 6]),
        (("--status", "expired"), [8, 7, 6]),
        (("--guest", OTHER_GUEST_ID), [2]),
        (("--center", CENTER_ID.upper(), "--status", "open"), [2, 1, 0]),
        (("--center", CENTER_ID, "--status", "open", "--since", "7d"), [2, 1]),
        (("--center", OTHER_CENTER_ID), [4]),
    ],
)
def test_session_list_shows_sessions_that_match_the_given_filters(
    cardonfile: CommandLine, options: tuple[str, ...], numbers: list[int]
) -> None:
    some_sessions(cardonfile)
    listed = json.loads(cardonfile.succeeds("session", "list", "--json", *options))
    assert [each["prefix"] for each in listed] == [f"{number:08}" for number in numbers]


def test_session_list_shows_that_a_guest_was_erased(
    cardonfile: CommandLine, installation: Installation
) -> None:
    session = installation.add_card()
    cardonfile.run("guest", "erase", session.guest_id)
    listed = cardonfile.run("session", "list", "--guest", session.guest_id)

    assert (listed.exit_code, listed.stdout.splitlines()[1][:8]) == (0, session.token_id[:8])
    assert re.fullmatch(rf"guest {session.guest_id} was erased at 20\S+Z\n", listed.stderr)
    nobody = cardonfile.run("card", "list", "--json", "--guest", session.guest_id)
    assert (nobody.stdout, nobody.stderr) == ("[]\n", listed.stderr)


def test_session_list_says_that_its_limit_may_have_left_out_sessions(
    cardonfile: CommandLine,
) -> None:
    failed = some_sessions(cardonfile)[3]
    assert cardonfile.succeeds("session", "list", "--limit", "2147483648")
    listed = cardonfile.run("session", "list", "--status", "failed", "--limit", "1")
    header, line = (each.split() for each in listed.stdout.splitlines())
    assert header == [
        *("PREFIX", "CREATED", "GUEST", "CENTER", "CALLER", "STATUS", "PROGRESS", "REASON")
    ]
    assert line == [
        *("00000003", f"{failed.created_at:%Y-%m-%dT%H:%M:%SZ}", failed.guest_id, CENTER_ID),
        *("web-store", "failed", "created", "incorrect_billing_address"),
    ]
    assert listed.stderr == "only 1 are listed, and there may be more; see --limit\n"


def test_session_stats_counts_sessions_by_result(cardonfile: CommandLine) -> None:
    some_sessions(cardonfile)

    header, *lines = cardonfile.succeeds("session", "stats", "--since", "9d").splitlines()
    assert header.split() == ["RESULT", "REASON", "SESSIONS"]
    assert ["refused_by_rule", "incorrect_billing_address", "1"] in map(str.split, lines)
    results = {*SessionResult} - {SessionResult.CARD_ON_FILE_USED}
    assert {line.split()[0] for line in lines} == results
    by_center = json.loads(
        cardonfile.succeeds("session", "stats", "--by", "center", "--since", "9d", "--json")
    )
    assert [each for each in by_center if each["result"] in ("open", "overdue", "stored")] == [
        {"center": CENTER_ID, "result": "open", "reason": None, "sessions": 1},
        {"center": CENTER_ID, "result": "overdue", "reason": None, "sessions": 1},
        {"center": OTHER_CENTER_ID, "result": "stored", "reason": None, "sessions": 1},
    ]
    by_merchant = cardonfile.succeeds("session", "stats", "--by", "merchant", "--since", "13m")
    assert [line.split() for line in by_merchant.splitlines()] == [
        ["MERCHANT", "RESULT", "REASON", "SESSIONS"],
        ["fake/main", "never_opened", "-", "1"],
    ]


def shown(cardonfile: CommandLine, session: CardSession) -> dict[str, Any]:
    """Return what `session show` prints about a session. It must not print the whole token."""
    printed = cardonfile.succeeds("session", "show", "--json", session.token_id[:8])
    for each in (printed, cardonfile.succeeds("session", "show", session.token_id)):
        assert session.token_id not in each
    decoded: dict[str, Any] = json.loads(printed)
    return decoded


def test_session_show_lists_the_steps_of_a_session_in_order(
    cardonfile: CommandLine, installation: Installation
) -> None:
    endpoint = installation.container.add_event_endpoint()(
        url="https://shop.example/events", types=["account.stored"]
    ).endpoint_id
    session = installation.add_card()
    for numbers in ((DECLINED_CARD,), (DECLINED_CARD, OTHER_GOOD_CARD)):
        installation.clock.advance(MINUTE)
        installation.open_page(session)
        for number in numbers:
            installation.type_card(session, number)
        installation.clock.advance(MINUTE)
        installation.return_to_shop(session)
    account = installation.accounts()[0].account_id

    seen = shown(cardonfile, session)

    begun = session.created_at.replace(microsecond=0)
    at = [begun + MINUTE * minutes for minutes in range(5)]
    expected = [
        (at[0], "created", {"caller": "web-shop"}),
        (at[1], "opened", {"pages": 1}),
        (at[2], "card_declined", {"code": "declined", "page": 1}),
        (at[2], "returned", {}),
        (at[4], "card_declined", {"code": "declined", "page": 1}),
        (at[4], "completed", {"account": account}),
    ]
    told = seen["steps"].pop()
    assert [
        (datetime.fromisoformat(step["at"]).replace(microsecond=0), step["step"], step["details"])
        for step in seen["steps"]
    ] == expected
    assert told["step"] == "account.stored"
    assert told["details"] == {
        "endpoint": endpoint,
        "delivery": "pending",
        "attempts": 0,
        "event": told["details"]["event"],
    }
    lines = cardonfile.succeeds("session", "show", session.token_id.upper()).splitlines()
    assert lines[lines.index("") + 4].split(maxsplit=2) == [
        *(f"{at[2]:%Y-%m-%dT%H:%M:%SZ}", "card_declined", "code: declined, page: 1")
    ]


def test_session_show_lists_the_click_by_which_the_guest_agreed_to_a_booking(
    cardonfile: CommandLine, installation: Installation
) -> None:
    session = installation.opened_session()
    click = AgreementClick(
        attempt=1,
        browser="a hash",
        agreed_at=installation.clock.now(),
        shown=an_agreement().shown,
        kept_until=installation.clock.now(),
    )
    installation.put_session(replace(session, agreement=terms_of_a_booking(), clicks=(click,)))

    seen = shown(cardonfile, session)

    assert seen["booking"] == "booking-17"
    (agreed,) = (each for each in seen["steps"] if each["step"] == "agreed")
    assert agreed["details"] == {"version": "2026-11", "page": 1}


def test_session_show_explains_why_a_session_ended_without_a_card(
    cardonfile: CommandLine, installation: Installation
) -> None:
    def steps_of(session: CardSession) -> list[tuple[str, dict[str, Any]]]:
        return [(each["step"], each["details"]) for each in shown(cardonfile, session)["steps"]]

    stored = installation.stored_card(GOOD_CARD)
    refused = installation.returned_session(GOOD_CARD)
    renewed = installation.opened_session()
    installation.type_card(renewed, GOOD_CARD, expiry=(1, 2035))
    installation.return_to_shop(renewed)
    cancelled = installation.session_with_card(DECLINED_CARD)
    installation.cancel_session(cancelled)
    silent = installation.opened_session()
    installation.provider.have(Trouble.BEFORE_IT_ACTED)
    installation.settle(silent.token_id)
    installation.provider.recover()
    installation.configure(**NO_PREPAID)
    prepaid = installation.returned_session(PREPAID_CARD)

    # The card that our rules refused is no card that the PSP refused.
    *steps, end = steps_of(refused)
    assert [step for step, _ in steps] == ["created", "opened", "returned"]
    assert end == ("failed", {"reason": "payment_method_already_exists"})
    assert steps_of(renewed)[-1][1] == {"account": stored.account_id}
    assert steps_of(cancelled)[-1][1] == {"reason": "cancelled"}
    steps = sorted(steps_of(cancelled), key=str)
    assert [step for step, _ in steps] == [
        *("cancelled", "card_declined", "created", "expired", "opened")
    ]
    not_accepted = {"code": "funding_not_accepted", "page": 1}
    assert ("card_not_accepted", not_accepted) in steps_of(prepaid)
    silent_since = shown(cardonfile, silent)["psp_silent_since"]
    assert datetime.fromisoformat(silent_since) == installation.clock.now()


def test_session_show_names_who_cancelled_the_session(
    cardonfile: CommandLine, installation: Installation
) -> None:
    by_caller, by_operator = installation.add_card(), installation.add_card()
    installation.cancel_session(by_caller)
    installation.token_for(installation.caller)
    cardonfile.succeeds("session", "cancel", "--caller", installation.caller.name)

    noted, _ = json.loads(cardonfile.succeeds("audit", "list", "--json"))
    for session, who in ((by_caller, "caller:web-shop"), (by_operator, noted["actor"])):
        (step,) = (it for it in shown(cardonfile, session)["steps"] if it["step"] == "cancelled")
        assert step["details"] == {"by": who}
    assert noted["actor"].startswith("user:")


def test_session_show_refuses_an_unknown_or_ambiguous_prefix_of_a_session_id(
    cardonfile: CommandLine,
) -> None:
    twin = TokenId(token(1).replace("4000", "4001"))
    store(cardonfile, a_session(token_id=token(1)), a_session(token_id=twin))

    assert cardonfile.refuses("session", "show", "00000009") == NOBODY
    assert cardonfile.refuses("session", "show", a_uuid(1)) == NOBODY
    assert cardonfile.refuses("session", "show", "00000001") == (
        "TOKEN must be the beginning of exactly one session's token; several sessions match"
    )
    assert cardonfile.succeeds("session", "show", twin).startswith("prefix")
    for odd in ("0000000", "0000000g", f"{twin}0", "00000001\udcff", ""):
        assert cardonfile.refuses("session", "show", odd) == (
            "TOKEN must be the token of a session, or at least its first 8 characters"
        )


def test_session_cancel_cancels_all_open_sessions_of_a_caller(cardonfile: CommandLine) -> None:
    cardonfile.succeeds("token", "issue", "--caller", CALLER, "--permission", "guests:add")
    store(cardonfile, *(a_session(token_id=token(number)) for number in range(3)))

    cancel = ("session", "cancel", "--caller", CALLER)
    assert cardonfile.succeeds(*cancel) == f"cancelled 3 sessions of {CALLER}\n"
    assert cardonfile.succeeds(*cancel) == f"cancelled 0 sessions of {CALLER}\n"

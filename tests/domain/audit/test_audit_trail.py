"""The audit trail records who did what to which record, but no secrets or personal data."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from adapters.psp_suite.samples import GUEST_ID
from adapters.system import operating_system_user
from domain.audit.entry import Action, Actor, AuditEntry, Details
from domain.permissions import Permission
from tests.builders import CENTER_ID, an_event_delivery
from tests.databases import audit_trail, committed
from tests.installation import REDIRECT_URI, Installation

OPERATOR: Final = operating_system_user()
"""The user of these tests."""

Noted = tuple[Actor, Action, str, Details | None]


def trail(installation: Installation, **within: Any) -> list[Noted]:
    """Return the entries of the audit trail, newest first."""
    entries = audit_trail(installation.storage, **within)
    return [(each.actor, each.action, each.about, each.details) for each in entries]


def test_the_audit_trail_names_the_caller_of_an_issued_token(installation: Installation) -> None:
    container = installation.container
    token = container.issue_token()(
        caller="kiosk",
        permissions={Permission.GUESTS_VIEW, Permission.GUESTS_ADD},
        lifetime=timedelta(hours=1),
    )
    installation.clock.advance(timedelta(minutes=1))
    for _ in range(2):
        container.revoke_token()(token)

    issued = {"caller": "kiosk", "permissions": "guests:add,guests:view"}
    assert trail(installation) == [
        (OPERATOR, Action.TOKEN_REVOKED, token[:12], {"caller": "kiosk"}),
        (OPERATOR, Action.TOKEN_ISSUED, token[:12], issued),
    ]
    since = installation.clock.now() - timedelta(seconds=59)
    assert trail(installation, since=since) == trail(installation)[:1]
    assert trail(installation, about="kiosk") == []


def test_the_audit_trail_identifies_an_endpoint_by_its_host(installation: Installation) -> None:
    container = installation.container
    endpoint = container.add_event_endpoint()(
        url="https://hooks.shop.example/secret-1?key=secret-2", types=["account.stored"]
    )
    for act in (container.roll_event_secret(), container.remove_event_endpoint()):
        installation.clock.advance(timedelta(seconds=1))
        act(endpoint.endpoint_id)

    added = {"host": "hooks.shop.example", "types": "account.stored"}
    assert trail(installation) == [
        (OPERATOR, Action.ENDPOINT_REMOVED, endpoint.endpoint_id, None),
        (OPERATOR, Action.SECRET_ROLLED, endpoint.endpoint_id, None),
        (OPERATOR, Action.ENDPOINT_ADDED, endpoint.endpoint_id, added),
    ]


def test_replaying_an_event_is_recorded_in_the_audit_trail(installation: Installation) -> None:
    delivery = an_event_delivery()
    with committed(installation.storage) as unit:
        unit.event_deliveries.add(delivery)
    installation.container.replay_event()(delivery.event.event_id)

    assert trail(installation) == [
        (OPERATOR, Action.EVENT_REPLAYED, delivery.event.event_id, {"endpoints": 0})
    ]


def test_the_audit_trail_names_the_caller_that_removed_a_card(installation: Installation) -> None:
    account = installation.removed_card()

    (entry,) = audit_trail(installation.storage)
    assert entry == AuditEntry(
        entry_id=entry.entry_id,
        happened_at=installation.clock.now(),
        actor=Actor("caller:web-shop"),
        action=Action.CARD_REMOVED,
        about=account.account_id,
        details={"guest": GUEST_ID, "center": CENTER_ID},
    )


def test_cancelling_all_sessions_of_a_caller_adds_one_entry_to_the_audit_trail(
    installation: Installation,
) -> None:
    cancel = installation.container.cancel_sessions_of_caller()
    installation.token_for(installation.caller)
    for number in range(3):
        installation.add_card(redirect_uri=f"{REDIRECT_URI}&visit={number}")
    for expected in (3, 0):
        assert cancel("web-shop") == expected

    noted = (OPERATOR, Action.SESSIONS_CANCELLED, "web-shop", {"open": 3})
    assert trail(installation, about="web-shop") == [noted]


def test_the_audit_trail_records_each_act_of_an_operator(installation: Installation) -> None:
    for _ in range(2):
        installation.container.note_operators_act()(Action.BACKUP_COMPLETED, "backup", {"files": 3})

    assert trail(installation) == [(OPERATOR, Action.BACKUP_COMPLETED, "backup", {"files": 3})] * 2

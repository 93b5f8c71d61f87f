from __future__ import annotations

from adapters.psp_suite.samples import NOW
from domain.audit.entry import Actor
from domain.storage import Storage
from tests.builders import an_audit_entry
from tests.contracts.storage.records import MINUTE, add, store
from tests.databases import change_by_hand


def test_the_audit_trail_lists_the_latest_entries_first(storage: Storage) -> None:
    first, second, third = (
        an_audit_entry(2, actor=Actor("caller:web-shop")),
        an_audit_entry(3),
        an_audit_entry(1, happened_at=NOW + MINUTE, about="guests", actor=Actor("user:web-shop")),
    )
    with storage.write() as unit:
        add(unit, third, first, second)
        assert unit.audit_trail.latest() == (third, second, first)
        assert unit.audit_trail.latest(since=NOW + MINUTE) == (third,)
        assert unit.audit_trail.latest(about=first.about) == (second, first)
        assert unit.audit_trail.latest(by="web-shop") == (third, first)
        assert unit.audit_trail.latest(by="caller:web-shop") == (first,)
        assert unit.audit_trail.latest(by="web-shop", limit=1) == (third,)
        assert unit.audit_trail.latest(by="%") == ()
        assert unit.audit_trail.latest(since=NOW + MINUTE, about=first.about) == ()


def test_an_unknown_action_does_not_hide_other_entries_of_the_audit_trail(storage: Storage) -> None:
    store(storage, *(an_audit_entry(number) for number in (1, 2)))
    change_by_hand(
        storage,
        "UPDATE audit_entries SET action = 'sold' WHERE entry_id = :entry_id",
        entry_id=an_audit_entry(1).entry_id,
    )
    with storage.read() as unit:
        assert unit.audit_trail.latest() == (an_audit_entry(2),)

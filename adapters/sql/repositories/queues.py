"""Queues of due rows, which workers take in turn."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime
from typing import Any, NamedTuple

from adapters.sql.repositories.repository import Table
from adapters.sql.rows import Record
from domain.events.event import LONGEST_WAIT
from domain.identifiers import PspAccount
from domain.retries import MAX_BACKOFF, latest_due
from domain.sessions.session import POLL_EVERY


class Queue(NamedTuple):
    """A queue with due rows: what they call, their kind, and from when to when they are due."""

    target: str
    kind: str
    since: Any
    last: Any


class Queues(Table[Record]):
    """Rows with a `due_at`, in queues named `target/kind`.

    `_name` is the queue of a row as its index has it, before `due_at`. `_latest` is when a row of a
    `queue` can be due at the latest. Only the ends of queues are read, however long they are.
    """

    _name: str
    _latest: str

    def _due(self, now: datetime, except_to: Collection[str]) -> list[Queue]:
        """Return the queues with a due row by name, except for those to some targets."""
        first = f"SELECT due_at FROM {self._rows.table} WHERE {self._name} = queue AND due_at"
        found = self._transaction.execute(
            "WITH RECURSIVE queues (queue) AS (SELECT '' UNION ALL SELECT ("
            f"SELECT {self._name} FROM {self._rows.table} WHERE due_at IS NOT NULL "
            f"AND {self._name} > queue ORDER BY {self._name} LIMIT 1) "
            f"FROM queues WHERE queue IS NOT NULL) SELECT queue, ({first} <= :now ORDER BY due_at "
            f"LIMIT 1), ({first} > {self._latest} ORDER BY due_at LIMIT 1) FROM queues",
            {
                "now": now,
                "silent": latest_due(now, longest_wait=MAX_BACKOFF),
                "opened": latest_due(now, longest_wait=POLL_EVERY),
                "undelivered": latest_due(now, longest_wait=LONGEST_WAIT),
            },
        )
        queues = [
            Queue(*name.rsplit("/", 1), *((due, now) if due else (ahead, ahead)))
            for name, due, ahead in found.fetchall()
            if due or ahead
        ]
        return [queue for queue in queues if queue.target not in except_to]

    def _take(self, queues: Iterable[Queue], returning: str, until: datetime) -> Any:
        """Lease the first due row of these queues, and return its columns, or None."""
        for queue in queues:
            taken = self._transaction.execute(
                f"UPDATE {self._rows.table} SET due_at = :until WHERE ({self._rows.key}) = ("
                f"SELECT {self._rows.key} FROM {self._rows.table} WHERE {self._name} = :queue "
                "AND due_at >= :since AND due_at <= :last ORDER BY due_at LIMIT 1"
                f"{self._dialect.skip_locked}) RETURNING {returning}",
                {**queue._asdict(), "queue": f"{queue.target}/{queue.kind}", "until": until},
            ).fetchone()
            # There is none if another transaction has locked it meanwhile.
            if taken is not None:
                return taken
        return None


class QueuesAtPsps(Queues[Record]):
    """Work at merchant accounts, whose queues take turns."""

    def is_any_due(self, now: datetime, *, except_at: Collection[PspAccount] = ()) -> bool:
        """Return whether there is any work, except at some merchant accounts."""
        return bool(self._in_turn(now, except_at))

    def _in_turn(self, now: datetime, except_at: Collection[PspAccount]) -> list[Queue]:
        queues = self._due(now, {"/".join(account) for account in except_at})
        turn = now.microsecond % (len(queues) or 1)
        return queues[turn:] + queues[:turn]

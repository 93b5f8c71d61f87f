"""Queues of due rows, from which workers lease one row at a time."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from adapters.sql.repositories.repository import Table, waiting
from adapters.sql.rows import Record
from adapters.sql.transaction import Cursor
from domain.cards.account import READ_EVERY
from domain.events.event import LONGEST_WAIT
from domain.identifiers import PspAccount
from domain.retries import MAX_BACKOFF, Waiting, latest_due
from domain.sessions.polling import POLL_EVERY


class Queue(NamedTuple):
    """A queue with due rows.

    `target` and `kind` make up the name of the queue. Rows whose `due_at` is between `since` and
    `last` may be leased.
    """

    target: str
    kind: str
    since: Any
    last: Any


class Queues(Table[Record]):
    """A table whose rows have a `due_at`, and belong to queues named `target/kind`.

    `_name` is the SQL expression for the name of a row's queue. It must be the same expression as
    in the index of the table, which consists of this expression and `due_at`. `_latest` is the SQL
    expression for the greatest plausible `due_at` of a row. It depends on the name of the row's
    queue, which it gets as `queue`. A row whose `due_at` is greater is due at once.

    The methods read only the rows at both ends of a queue, however long it is.
    """

    _name: str
    _latest: str
    _taken = "due_at = :until"

    def count_due(self, now: datetime) -> Waiting:
        """Count the due rows of all queues."""
        counts = f"SELECT count(*) {self._with_due_at}"
        found = self._of_queues(
            f"sum(({counts} <= :now) + ({counts} > {self._latest})), min(({self._first} <= :now "
            "ORDER BY due_at LIMIT 1))",
            now,
        )
        return waiting(*found.fetchall()[0])

    def _due(self, now: datetime, except_to: Collection[str]) -> list[Queue]:
        """Return the queues with a due row, sorted by name.

        Queues of targets in `except_to` are left out.
        """
        found = self._of_queues(
            f"queue, ({self._first} <= :now ORDER BY due_at LIMIT 1), "
            f"({self._first} > {self._latest} ORDER BY due_at LIMIT 1)",
            now,
        )
        queues = [
            Queue(*name.rsplit("/", 1), *((due, now) if due else (ahead, ahead)))
            for name, due, ahead in found.fetchall()
            if due or ahead
        ]
        return [queue for queue in queues if queue.target not in except_to]

    @property
    def _with_due_at(self) -> str:
        return f"FROM {self._rows.table} WHERE {self._name} = queue AND due_at"

    @property
    def _first(self) -> str:
        return f"SELECT due_at {self._with_due_at}"

    def _of_queues(self, selected: str, now: datetime) -> Cursor:
        """Run a SELECT with one row for each queue, and with a further row before and after them.

        `selected` is the list of expressions to select. In them, `queue` is the name of the queue.
        The name is empty in the first row and NULL in the last row.
        """
        return self._transaction.execute(
            "WITH RECURSIVE queues (queue) AS (SELECT '' UNION ALL SELECT ("
            f"SELECT {self._name} FROM {self._rows.table} WHERE due_at IS NOT NULL "
            f"AND {self._name} > queue ORDER BY {self._name} LIMIT 1) "
            f"FROM queues WHERE queue IS NOT NULL) SELECT {selected} FROM queues",
            {
                "now": now,
                "minute_ago": now - timedelta(minutes=1),
                "silent": latest_due(now, longest_wait=MAX_BACKOFF),
                "read": latest_due(now, longest_wait=READ_EVERY[1]),
                "opened": latest_due(now, longest_wait=POLL_EVERY),
                "undelivered": latest_due(now, longest_wait=LONGEST_WAIT),
            },
        )

    def _take(
        self, queues: Iterable[Queue], returning: str, until: datetime, now: datetime | None = None
    ) -> Any:
        """Lease one due row until the time `until`.

        The queues are searched in order until a queue has a due row. Of this queue, the row with
        the earliest `due_at` is leased. Return the values of the columns `returning` of the leased
        row, or None if no queue has a due row. `now` is needed only if `_taken`, the SQL that
        changes the leased row, contains `:now`.
        """
        for queue in queues:
            taken = self._transaction.execute(
                f"UPDATE {self._rows.table} SET {self._taken} WHERE ({self._rows.key}) = ("
                f"SELECT {self._rows.key} FROM {self._rows.table} WHERE {self._name} = :queue "
                "AND due_at >= :since AND due_at <= :last ORDER BY due_at LIMIT 1"
                f"{self._dialect.skip_locked}) RETURNING {returning}",
                {
                    **queue._asdict(),
                    "queue": f"{queue.target}/{queue.kind}",
                    "until": until,
                    "now": now,
                },
            ).fetchone()
            # No row is found if another transaction locked it in the meantime.
            if taken is not None:
                return taken
        return None


class QueuesAtPsps(Queues[Record]):
    """Queues of work at merchant accounts. The queues take turns."""

    _account: str

    def unanswered(self) -> Mapping[PspAccount, Waiting]:
        """For each merchant account, count the rows for which the PSP has not responded."""
        found = self._transaction.execute(
            f"SELECT ({self._account}), count(*), min(unanswered_since) FROM {self._rows.table} "
            f"WHERE unanswered_since IS NOT NULL AND ({self._account}) > '' GROUP BY 1"
        )
        return {
            PspAccount(*name.split("/", 1)): waiting(items, since)
            for name, items, since in found.fetchall()
        }

    def is_any_due(self, now: datetime, *, except_at: Collection[PspAccount] = ()) -> bool:
        """Return whether any work is due, except at the merchant accounts in `except_at`."""
        return bool(self._in_turn(now, except_at))

    def _in_turn(self, now: datetime, except_at: Collection[PspAccount]) -> list[Queue]:
        queues = self._due(now, {"/".join(account) for account in except_at})
        turn = now.microsecond % (len(queues) or 1)
        return queues[turn:] + queues[:turn]

"""Count what became of card-addition sessions, for an operator."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple

from domain.outside import Clock, time_before
from domain.sessions.result import OVERDUE_AFTER, Result, result_of
from domain.sessions.session import CountedBy
from domain.storage import Storage


class CountedResult(NamedTuple):
    """How many sessions of a group have a result; `reason` is the type of the rule's refusal."""

    group: str
    result: Result
    reason: str | None
    sessions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CountSessions:
    """Use case: return how many sessions have each result that occurs.

    `within` is the time until now in which they were created. They are in the order of the groups,
    and of `Result`. Without `by`, all are in one group.
    """

    storage: Storage
    clock: Clock

    def __call__(
        self, *, within: timedelta, by: CountedBy | None = None
    ) -> Sequence[CountedResult]:
        now = self.clock.now()
        since, overdue_before = time_before(now, within), now - OVERDUE_AFTER
        counted: Counter[tuple[str, Result, str | None]] = Counter()
        with self.storage.read() as unit:
            found = unit.sessions.count(by, since=since, overdue_before=overdue_before)
            for (group, facts), sessions in found.items():
                counted[group, result_of(facts), facts.failure] += sessions
        results = [CountedResult(*key, sessions) for key, sessions in counted.items()]
        order = list(Result)
        return sorted(results, key=lambda it: (it.group, order.index(it.result), it.reason or ""))

from __future__ import annotations

from functools import partial

from adapters.psp_suite.concurrency import at_once
from adapters.psp_suite.samples import NOW, TOKEN_ID
from domain.psps.evidence import EvidenceOrigin
from domain.storage import Storage, WriteUnit
from tests.builders import an_evidence
from tests.contracts.storage.records import MINUTE, OTHER_TOKEN_ID
from tests.databases import committed


def test_the_evidence_of_a_session_is_listed_oldest_first(storage: Storage) -> None:
    late = an_evidence(content="late", received_at=NOW + MINUTE)
    early = an_evidence(content="early", origin=EvidenceOrigin.RETURN)
    # The pieces of evidence are not in the order of their hashes.
    together = [an_evidence(content=content) for content in ("b", "d", "c", "a")]
    with committed(storage) as unit:
        for evidence in (late, early, *together):
            unit.evidence.add(TOKEN_ID, evidence, at_most=50)
        unit.evidence.add(OTHER_TOKEN_ID, an_evidence(), at_most=50)
    with storage.read() as unit:
        assert list(unit.evidence.of(TOKEN_ID)) == [early, *together, late]


def test_concurrent_units_do_not_exceed_the_limit_on_evidence_for_a_session(
    storage: Storage,
) -> None:
    def add_ten(number: int) -> None:
        def add(unit: WriteUnit, content: str) -> None:
            unit.evidence.add(TOKEN_ID, an_evidence(content=content), at_most=50)
            unit.commit()

        for again in range(10):
            storage.transact(partial(add, content=f"{number}-{again}"))

    at_once(8, add_ten)
    with storage.read() as unit:
        assert len(unit.evidence.of(TOKEN_ID)) == 50

from __future__ import annotations

from functools import partial

from adapters.psp_suite.concurrency import at_once
from adapters.psp_suite.samples import NOW, TOKEN_ID, a_uuid
from domain.identifiers import TokenId
from domain.psps.evidence import EvidenceOrigin
from domain.storage import Storage, WriteUnit
from tests.builders import an_evidence
from tests.contracts.storage.records import MINUTE, OTHER_TOKEN_ID
from tests.databases import committed


def test_the_evidence_of_a_session_is_listed_oldest_first(storage: Storage) -> None:
    late = an_evidence(content="late", received_at=NOW + MINUTE)
    early = an_evidence(content="early", origin=EvidenceOrigin.RETURN)
    # In no order of their hashes.
    together = [an_evidence(content=content) for content in ("b", "d", "c", "a")]
    with committed(storage) as unit:
        for evidence in (late, early, *together):
            unit.evidence.add(TOKEN_ID, evidence, at_most=50)
        unit.evidence.add(OTHER_TOKEN_ID, an_evidence(), at_most=50)
    with storage.read() as unit:
        assert list(unit.evidence.of(TOKEN_ID)) == [early, *together, late]


def test_the_same_evidence_is_stored_once_for_each_origin(storage: Storage) -> None:
    returned = an_evidence(origin=EvidenceOrigin.RETURN)
    for evidence in (returned, an_evidence(), an_evidence(received_at=NOW + MINUTE)):
        with committed(storage) as unit:
            unit.evidence.add(TOKEN_ID, evidence, at_most=50)
    with storage.read() as unit:
        assert list(unit.evidence.of(TOKEN_ID)) == [returned, an_evidence()]


def test_the_number_of_pieces_of_evidence_for_a_session_is_limited(storage: Storage) -> None:
    with committed(storage) as unit:
        for number in range(5):
            unit.evidence.add(TOKEN_ID, an_evidence(content=str(number)), at_most=3)
        unit.evidence.add(TokenId(a_uuid(22)), an_evidence(), at_most=3)
    with storage.read() as reading:
        kept = [evidence.content for evidence in reading.evidence.of(TOKEN_ID)]
        assert kept == ["0", "1", "2"]
        assert len(reading.evidence.of(TokenId(a_uuid(22)))) == 1


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

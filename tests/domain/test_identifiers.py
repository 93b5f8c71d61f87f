from __future__ import annotations

import pytest

from domain.identifiers import plain_uuid


@pytest.mark.parametrize(
    ("value", "read"),
    [
        ("6F9619FF-8B86-D011-B42D-00CF4FC964FF", "6f9619ff-8b86-d011-b42d-00cf4fc964ff"),
        ("{6f9619ff-8b86-d011-b42d-00cf4fc964ff}", None),
        ("urn:uuid:6f9619ff-8b86-d011-b42d-00cf4fc964ff", None),
        ("6f9619ff8b86d011b42d00cf4fc964ff", None),
        ("6f9619ff-8b86-d011-b42d-00cf4fc964ff\n", None),
        ("6f9619ff-8b86-d011-b42d-00cf4fc964f\u0663", None),
        (7, None),
        (None, None),
    ],
)
def test_a_uuid_is_accepted_only_in_its_canonical_form(value: object, read: str | None) -> None:
    assert plain_uuid(value) == read

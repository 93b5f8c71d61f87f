from __future__ import annotations

import re
from typing import Final

import pytest

from adapters.http.errors import UnknownQueryParameter
from adapters.http.openapi import OPERATIONS
from adapters.http.operations import PAGING_REFUSALS, Operation
from adapters.http.requests import BODY_REFUSALS
from domain import errors
from domain.permissions import ANY_CALLER

OF_THE_DISPATCHER: Final = {
    *map(type, (*BODY_REFUSALS, *PAGING_REFUSALS)),
    UnknownQueryParameter,
}


@pytest.mark.parametrize(
    "operation",
    [operation for operation in OPERATIONS if operation.calls is not None],
    ids=lambda operation: operation.name,
)
def test_each_operation_lists_the_refusals_documented_by_its_use_case(operation: Operation) -> None:
    assert operation.calls is not None
    raised = str(operation.calls.__doc__).partition("Raises")[2]
    documented = {getattr(errors, name, None) for name in re.findall(r"\w+", raised)}

    refusals = {type(refusal) for refusal in operation.refusals} - OF_THE_DISPATCHER
    if operation.calls.needs != ANY_CALLER:
        refusals.add(errors.UserNotAuthorized)
    assert documented - {None} == refusals

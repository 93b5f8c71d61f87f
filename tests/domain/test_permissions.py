from __future__ import annotations

import inspect
from dataclasses import fields
from typing import Any

import pytest

from adapters.http.openapi import OPERATIONS
from domain.errors import UserNotAuthorized
from domain.identifiers import CallerName
from domain.permissions import Caller, Needs, Permission

LACKED = Permission.PAYMENTS_USE
CALLER = Caller(name=CallerName("spa"), permissions=frozenset(Permission) - {LACKED})


@pytest.mark.parametrize(
    "use_case", [operation.calls for operation in OPERATIONS if operation.calls is not None]
)
def test_every_use_case_checks_the_permissions_of_the_caller_first(
    use_case: Any,  # as many types as there are use cases
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(use_case, "needs", Needs((LACKED,)))
    call = use_case(**{port.name: None for port in fields(use_case)})
    sent = {name: None for name in inspect.signature(call).parameters if name != "caller"}

    with pytest.raises(UserNotAuthorized):
        call(CALLER, **sent)

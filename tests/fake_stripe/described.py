"""Validates responses and events with Stripe's OpenAPI description in the official SDK.

The SDK's classes are generated from the description of the API version that it names. They contain
each field with its type and its possible values. `-p tests.fake_stripe.described` prints
how many responses and events were validated.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Set
from functools import cache
from http import HTTPStatus
from typing import (
    Any,
    ClassVar,
    Final,
    Literal,
    TypeAlias,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import pytest
import stripe
from stripe import ListObject, StripeObject

Json: TypeAlias = Any  # as it goes over the wire
Hint: TypeAlias = Any  # a class, or something of typing
Forms: TypeAlias = Mapping[Any, Hint]  # Any: Any itself is no type

OBJECTS: Final[Mapping[str, Hint]] = {
    "account": stripe.Account,
    "checkout.session": stripe.checkout.Session,
    "customer": stripe.Customer,
    "event": stripe.Event,
    "list": ListObject,
    "payment_method": stripe.PaymentMethod,
    "setup_attempt": stripe.SetupAttempt,
    "setup_intent": stripe.SetupIntent,
    "webhook_endpoint": stripe.WebhookEndpoint,
}
"""The classes of the objects that the fake Stripe supports, by their field `object`."""

validated: Final[Counter[str]] = Counter()
"""How many responses and events were validated."""


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how many responses and events were validated, if the tests ran in this process."""
    told = ", ".join(f"{count} {what}" for what, count in sorted(validated.items()))
    terminalreporter.line(f"as Stripe's description says: {told or 'nothing'}")


def require_response(status: int, body: Json) -> None:
    """Raise AssertionError if a response or one of its fields is not described."""
    if status == HTTPStatus.OK:
        _require(body, {dict: StripeObject}, "response")
        validated[f"{body['object']}"] += 1
    else:
        assert body.keys() == {"error"}
        _require(body["error"], {dict: stripe.ErrorObject}, "error")
        validated["error"] += 1


def require_event(event: Json) -> None:
    """Raise AssertionError if an event or its object is not described, like `require_response`."""
    _require(event, {dict: stripe.Event}, "event")
    subject = event["data"]["object"]
    _require(subject, {dict: StripeObject}, event["type"])
    validated[f"event about {subject['object']}"] += 1


def _require(value: Json, forms: Forms, at: str) -> None:
    """Raise AssertionError if a value has none of the types that the SDK names."""
    if Any in forms:
        return
    assert type(value) in forms, f"{at} is {value!r}"
    hint = forms[type(value)]
    arguments = get_args(hint)
    if _origin(hint) is Literal:
        assert value in arguments, f"{at} is {value!r}"
    elif isinstance(value, list):
        for number, element in enumerate(value):
            _require(element, _forms(arguments[0]), f"{at}[{number}]")
    elif isinstance(value, dict) and arguments and _origin(hint) is not ListObject:
        # Metadata, and the object of an event.
        for name, element in value.items():
            _require(element, _forms(arguments[0]), f"{at}.{name}")
    elif isinstance(value, dict):
        _require_fields(value, _origin(hint), at)


def _forms(hint: Hint) -> Forms:
    """Return the allowed types of a value, by their type in JSON."""
    hints = get_args(hint) if _origin(hint) is Union else (hint,)
    if any(_origin(each) is Literal for each in hints):
        # The SDK adds `str` to an enumeration, for values of later versions.
        hints = tuple(each for each in hints if each is not str)
    return {_json_type(each): each for each in hints}


def _origin(hint: object) -> Hint:
    """Return the origin of a generic type, such as `list` for `list[str]`, or the class itself."""
    return get_origin(hint) or hint


def _json_type(hint: Hint) -> Hint:
    if _origin(hint) is Literal:
        return type(get_args(hint)[0])
    origin = _origin(hint)
    return dict if issubclass(origin, StripeObject) else origin


def _require_fields(value: Json, of: Hint, at: str) -> None:
    """Raise AssertionError if an object lacks a field, or has an unknown or mistyped field.

    A field that is Optional in the SDK may be missing or null, because the SDK does not show which
    of the two the description allows. All other fields are required, except in deleted objects.
    """
    described = OBJECTS.get(value.get("object"), of) if of is StripeObject else of
    fields, required = _fields(described), _required(described)
    if "deleted" in value:
        required = fields.keys() & {"id", "object", "deleted"}
        fields = {name: fields[name] for name in required}
    assert required <= value.keys(), f"{at} lacks {sorted(required - value.keys())}"
    assert value.keys() <= fields.keys(), f"{at} has {sorted(value.keys() - fields.keys())}"
    for name, element in value.items():
        _require(element, fields[name], f"{at}.{name}")


@cache
def _fields(of: Hint) -> Mapping[str, Forms]:
    hints = _hints(of)
    if of is ListObject:
        # ListObject does not declare its `object`, and the type of its elements is a variable.
        hints |= {"object": str, "data": list[StripeObject]}
    return {
        name: _forms(hint)
        for name, hint in hints.items()
        if not name.startswith("_") and _origin(hint) is not ClassVar
    }


def _hints(of: Hint) -> dict[str, Hint]:
    """Return the types of a class's fields. A class that the fake Stripe lacks counts as an object."""
    names = {each.__name__: each for each in OBJECTS.values()}
    while True:
        try:
            return get_type_hints(of, localns=names)
        except NameError as unknown:
            if unknown.name in names:
                raise
            names[unknown.name] = StripeObject


@cache
def _required(of: Hint) -> Set[str]:
    return {name for name, forms in _fields(of).items() if type(None) not in forms}

"""Parses form-encoded parameters with nested names. Refuses unknown and invalid parameters."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias
from urllib.parse import parse_qsl, urlsplit

Value: TypeAlias = "str | int | list[Value] | dict[str, Value]"
Form: TypeAlias = "Callable[[str, Value], Value] | Mapping[str, Form]"
"""The form of a parameter: a function that checks and converts it, or nested parameters."""


class Refused(Exception):
    """A 4xx response with Stripe's error object.

    With `is_saved`, it is saved under the idempotency key, as if Stripe had begun to do the call.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        type_: str = "invalid_request_error",
        code: str | None = None,
        param: str | None = None,
        is_saved: bool = False,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.is_saved = is_saved
        # "Unlike most other API resources, the API will omit attributes in error objects when they
        # have a null value" (the SDK's ErrorObject).
        error = {"type": type_, "message": message, "code": code, "param": param}
        self.error = {name: value for name, value in error.items() if value is not None}


def decode(encoded: str) -> dict[str, Value]:
    """Decode `a[b][0]=c` into nested objects. The names 0, 1, 2 … make a list."""
    read: dict[str, Value] = {}
    for name, value in parse_qsl(encoded, keep_blank_values=True, strict_parsing=bool(encoded)):
        first, _, rest = name.partition("[")
        path = [first, *(re.findall(r"([^\[\]]*)\]", rest))]
        at = read
        for step in path[:-1]:
            below = at.setdefault(step, {})
            if not isinstance(below, dict):
                raise Refused(f"Invalid parameter: {name}", param=name)
            at = below
        at[path[-1]] = value
    return {name: _with_lists(value) for name, value in read.items()}


def _with_lists(value: Value) -> Value:
    if not isinstance(value, dict):
        return value
    below = {name: _with_lists(each) for name, each in value.items()}
    if below and list(below) == [str(number) for number in range(len(below))]:
        return list(below.values())
    return below


def check(
    given: Mapping[str, Value], known: Mapping[str, Form], within: str = ""
) -> dict[str, Value]:
    """Return the converted parameters. Raises Refused for the first invalid parameter."""
    checked: dict[str, Value] = {}
    for name, value in given.items():
        full = f"{within}[{name}]" if within else name
        form = known.get(name)
        if form is None:
            raise Refused(
                f"Received unknown parameter: {full}", code="parameter_unknown", param=full
            )
        if callable(form):
            checked[name] = form(full, value)
        elif isinstance(value, dict):
            checked[name] = check(value, form, full)
        else:
            raise Refused(f"Invalid object: {full}", param=full)
    return checked


def text(at_most: int = 5000) -> Form:
    """Return the form of a text with a limited number of characters. The text must not be empty."""

    def read(name: str, value: Value) -> Value:
        if not isinstance(value, str) or not 1 <= len(value) <= at_most:
            raise Refused(f"Invalid string: {name}", code="parameter_invalid_string", param=name)
        return value

    return read


def object_or_nothing(known: Mapping[str, Form]) -> Form:
    """Return the form of nested parameters. An empty text removes them."""

    def read(name: str, value: Value) -> Value:
        if value == "":
            return {}
        if not isinstance(value, dict):
            raise Refused(f"Invalid object: {name}", param=name)
        return check(value, known, name)

    return read


def one_of(*values: str) -> Callable[[str, Value], Value]:
    """Return the form of one of several texts."""

    def read(name: str, value: Value) -> Value:
        if value not in values:
            raise Refused(f"Invalid {name}: must be one of {', '.join(values)}", param=name)
        return value

    return read


def list_of(form: Callable[[str, Value], Value]) -> Form:
    """Return the form of a list."""

    def read(name: str, value: Value) -> Value:
        if not isinstance(value, list) or not value:
            raise Refused(f"Invalid array: {name}", param=name)
        return [form(f"{name}[{number}]", each) for number, each in enumerate(value)]

    return read


def integer(name: str, value: Value) -> Value:
    """Read an integer."""
    if not isinstance(value, str) or not re.fullmatch(r"-?[0-9]{1,18}", value):
        raise Refused(f"Invalid integer: {name}", code="parameter_invalid_integer", param=name)
    return int(value)


def url(name: str, value: Value) -> Value:
    """Read a web address."""
    parts = urlsplit(value) if isinstance(value, str) else None
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
        raise Refused("Not a valid URL", code="url_invalid", param=name)
    return value


def hex_color(name: str, value: Value) -> Value:
    """Read a color."""
    if not isinstance(value, str) or not re.fullmatch(r"#[0-9a-fA-F]{6}", value):
        raise Refused(f"Invalid hex color: {value}", param=name)
    return value


def email(name: str, value: Value) -> Value:
    """Read an email address. Stripe requires a dot in its domain."""
    if not isinstance(value, str) or not re.fullmatch(r"[^@\s]+@[^@\s]+\.[^@\s]+", value):
        raise Refused("Invalid email address", code="email_invalid", param=name)
    return value


def country(name: str, value: Value) -> Value:
    """Read a country code."""
    if not isinstance(value, str) or not re.fullmatch(r"[A-Z]{2}", value):
        raise Refused(f"Country '{value}' is unknown.", code="country_code_invalid", param=name)
    return value


def currency(name: str, value: Value) -> Value:
    """Read a currency code."""
    if not isinstance(value, str) or not re.fullmatch(r"[a-z]{3}", value):
        raise Refused(f"Invalid currency: {value}", param=name)
    return value


def metadata(name: str, value: Value) -> Value:
    """Read metadata: at most 50 keys of 40 characters, and values of 500 ("Metadata")."""
    if not isinstance(value, dict) or len(value) > 50:
        raise Refused("Invalid metadata", param=name)
    for key, each in value.items():
        if len(key) > 40 or not isinstance(each, str) or len(each) > 500:
            raise Refused("Invalid metadata", param=f"{name}[{key}]")
    return value


NOTHING: Final[Mapping[str, Form]] = {}
"""The form of a call without parameters."""

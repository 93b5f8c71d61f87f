"""Describe an operator's changes to a record in words, for the audit trail and for commands."""

from __future__ import annotations

from dataclasses import Field, fields
from typing import Any, ClassVar, Protocol, TypeVar


class _Dataclass(Protocol):
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]  # fields of any type


Record = TypeVar("Record", bound=_Dataclass)


def changes(
    record_type: type[Record], before: Record | None, after: Record | None
) -> dict[str, str]:
    """Return the fields that differ, each with its old and its new value, such as `no → yes`."""
    olds, news = in_words(record_type, before), in_words(record_type, after)
    return {name: f"{old} → {news[name]}" for name, old in olds.items() if old != news[name]}


def in_words(record_type: type[Record], record: Record | None) -> dict[str, str]:
    """Return the fields of a record, each with its value in words."""
    names = (field.name for field in fields(record_type))
    return {name: _in_words(getattr(record, name, None)) for name in names}


def _in_words(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, frozenset):
        return ",".join(sorted(value)) or "none"
    if isinstance(value, tuple):
        return ",".join(value) or "any"
    return "none" if value is None else str(value)

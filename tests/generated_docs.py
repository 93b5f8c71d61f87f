"""Writes the parts of docs/http-api.md that repeat the code: `python -m tests.generated_docs`."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeAlias

import adapters.http.errors
import domain.errors
from adapters.events.payload import examples
from adapters.http.openapi import document
from domain.errors import Refusal

PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "http-api.md"
BLOCK: Final = re.compile(r"(<!--(\w+)-->\n).*?(<!--end-->)", re.DOTALL)

Json: TypeAlias = dict[str, Any]  # a part of the OpenAPI document


def page() -> str:
    """Return the text that the page should have."""
    return BLOCK.sub(lambda found: found[1] + blocks()[found[2]] + found[3], PAGE.read_text())


@cache
def blocks() -> Mapping[str, str]:
    """Return the generated parts of the HTTP API: the operations, and the refusals."""
    return {"operations": _operations(), "refusals": _refusals()}


def _operations() -> str:
    """List each operation that needs a token. `/docs` has the others, and the permissions."""
    described: Json = document("", examples())
    return "".join(
        f"- `{method.upper()} {path}` ({operation['operationId']}): {operation['summary']}.\n"
        for path, methods in described["paths"].items()
        for method, operation in methods.items()
        if operation["security"]
    )


def refusals() -> Sequence[type[Refusal]]:
    """Return every refusal of the product."""
    return [
        each
        for module in (domain.errors, adapters.http.errors)
        for _, each in inspect.getmembers(module, inspect.isclass)
        if issubclass(each, Refusal) and each is not Refusal and each.__module__ == module.__name__
    ]


def _refusals() -> str:
    lines = []
    for refusal in sorted(refusals(), key=lambda each: (each.code, each.type)):
        told = [f"`{refusal.type}`"]
        messages = list(_messages(refusal))
        # The page says once that other messages are the type in words.
        if messages != [refusal.type.replace("_", " ").capitalize()]:
            told.append(" or ".join(f"`{message}`" for message in messages))
        when = " ".join((refusal.__doc__ or "").partition("\n\n")[0].split())
        lines.append(f"- {refusal.code} {', '.join(told)}: {when}\n")
    return "".join(lines)


def _messages(refusal: type[Refusal]) -> Iterator[str]:
    """Yield every message of a refusal, with `<field>` for the field that it names."""
    parameters = list(inspect.signature(refusal).parameters.values())
    names = {each.name: f"<{each.name}>" for each in parameters if "str" in str(each.annotation)}
    if hasattr(refusal, "message"):
        yield refusal.message
        return
    yield refusal(**names).message
    if all(each.default is not each.empty for each in parameters):
        yield refusal().message


if __name__ == "__main__":
    PAGE.write_text(page())

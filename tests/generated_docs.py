"""Writes the list of operations in docs/http-api.md: `python -m tests.generated_docs`."""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import adapters.http.errors
import domain.errors
from adapters.events.payload import examples
from adapters.http.openapi import document
from domain.errors import Refusal

PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "http-api.md"
BLOCK: Final = re.compile(r"(<!--operations-->\n).*?(<!--end-->)", re.DOTALL)

Json: TypeAlias = dict[str, Any]  # a part of the OpenAPI document


def page() -> str:
    """Return the text that the page should have."""
    text = PAGE.read_text()
    return BLOCK.sub(lambda found: found[1] + _operations(text) + found[2], text)


def _operations(text: str) -> str:
    """Return a list of the operations that need a token. Those with a section link to it.

    `/docs` shows the other operations too.
    """
    described: Json = document("", examples())
    sections = re.findall(r"^### (\w+)$", text, re.MULTILINE)
    lines = []
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            if operation["security"]:
                name = operation["operationId"]
                shown = f"[{name}](#{name.lower()})" if name in sections else name
                lines.append(f"- {shown}: `{method.upper()} {path}`\n")
    return "".join(lines)


def refusals() -> Sequence[type[Refusal]]:
    """Return every refusal of the product."""
    return [
        each
        for module in (domain.errors, adapters.http.errors)
        for _, each in inspect.getmembers(module, inspect.isclass)
        if issubclass(each, Refusal) and each is not Refusal and each.__module__ == module.__name__
    ]


if __name__ == "__main__":
    PAGE.write_text(page())

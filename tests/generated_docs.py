"""Writes the parts of the docs that repeat the code: `python -m tests.generated_docs`."""

from __future__ import annotations

import ast
import inspect
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from itertools import chain, groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, TypeAlias

import adapters.http.errors
import domain.errors
from adapters.events.payload import examples
from adapters.http.errors import ERROR_TYPE
from adapters.http.openapi import document
from domain.errors import Refusal

ROOT: Final = Path(__file__).resolve().parents[1]
HTTP_API: Final = ROOT / "docs" / "http-api.md"
TESTS_OF_PROMISES: Final = ROOT / "docs" / "tests-of-promises.md"

BLOCK: Final = re.compile(r"(<!--(\w+)-->\n).*?(<!--end-->)", re.DOTALL)
_SHOWS: Final = re.compile(r"\s*# Shows ([IFS]\d+(?:, [IFS]\d+)*)\.")

# The page says once which operations have these refusals and these fields.
_COMMON_REFUSALS: Final = {
    "internal_error",
    "invalid_request",
    "invalid_request_body",
    "page_parameter_invalid",
    "request_body_too_large",
    "service_unavailable",
    "too_many_items",
    "too_many_requests",
    "unsupported_media_type",
    "user_not_authenticated",
    "user_not_authorized",
}
_OF_EVENTS: Final = {"EventPayload", "EventData", "EventCard"}
"""They have a page of their own."""
_COMMON_FIELDS: Final = {"success", "error"}
_FORMATS: Final = {"date": "date", "date-time": "time", "uri": "URI", "uuid": "UUID"}

Json: TypeAlias = dict[str, Any]  # a part of the OpenAPI document


def _http_api() -> str:
    return BLOCK.sub(lambda found: found[1] + blocks()[found[2]] + found[3], HTTP_API.read_text())


@cache
def blocks() -> Mapping[str, str]:
    """Return the generated parts of the HTTP API: operations, their bodies, and the refusals."""
    described: Json = document("", examples())
    schemas = described["components"]["schemas"]
    return {
        **{
            operation["operationId"]: _operation(method, path, operation, schemas)
            for path, methods in described["paths"].items()
            for method, operation in methods.items()
        },
        **{
            name: _schema(name, schemas)
            for name, schema in schemas.items()
            if len(schema["properties"]) > 2 and name not in _OF_EVENTS
        },
        "refusals": _refusals(),
    }


def _operation(method: str, path: str, operation: Json, schemas: Json) -> str:
    about = f"{operation['summary']}. {operation.get('description', '')}".strip()
    points = [*_input(operation, schemas), *_output(operation["responses"], schemas)]
    listed = "".join(f"- {point}.\n" for point in points)
    return f"**`{method.upper()} {path}`** {about}\n\n{listed}"


def _input(operation: Json, schemas: Json) -> Iterator[str]:
    if "303" in operation["responses"]:
        return  # The parameters of a link are part of it: clients do not choose them.
    parameters = {each["name"]: each for each in operation.get("parameters", ())}
    for name, parameter in parameters.items():
        if parameter["in"] != "path" and name not in ("page", "size"):
            needed = "" if parameter["required"] else ", optional"
            about = parameter["description"].rstrip(".")
            yield f"`{name}` ({parameter['in']}{needed}): {about}"
    if (body := _content(operation.get("requestBody", {}))) and "$ref" in body:
        yield f"Body: {_inline(body, schemas)}"


def _output(responses: Json, schemas: Json) -> Iterator[str]:
    if "303" in responses:
        yield f"Redirects and pages: {', '.join(sorted(responses))}"
        return
    yield f"200: {_inline(_content(responses['200']), schemas)}"
    refused = []
    for status, response in responses.items():
        types = response["headers"][ERROR_TYPE]["schema"]["examples"] if status != "200" else ()
        if own := [f"`{each}`" for each in types if each not in _COMMON_REFUSALS]:
            refused.append(f"{status} {', '.join(own)}")
    if refused:
        yield f"Refusals: {'; '.join(refused)}"


def _content(message: Json) -> Json:
    content: Json = message.get("content", {}).get("application/json", {}).get("schema", {})
    return content


def _name(reference: Json) -> str:
    return str(reference["$ref"]).rpartition("/")[2]


def _link(reference: Json) -> str:
    name = _name(reference)
    return f"[`{name}`](#{name.lower()})"


def _inline(reference: Json, schemas: Json) -> str:
    if "$ref" not in reference:
        return str(reference["type"])
    properties = schemas[_name(reference)]["properties"]
    if len(properties) > 2:
        return _link(reference)
    return ", ".join(f"`{name}` ({_type(schema, schemas)})" for name, schema in properties.items())


def _schema(name: str, schemas: Json) -> str:
    fields = _own_fields(schemas[name])
    lines = []
    for other, schema in schemas.items():
        some = _own_fields(schema)
        is_larger = _size(schema) > _size(schemas[name])
        if other != name and some and not is_larger and _is_contained(some, fields):
            fields = {key: kind for key, kind in fields.items() if key not in some}
            lines.append(f"- All of {_inline({'$ref': other}, schemas)}\n")
    for other in list(schemas)[: list(schemas).index(name)]:
        some = _own_fields(schemas[other])
        lacking = [field for field, kind in some.items() if fields.get(field) != kind]
        if len(lacking) == 1 and 2 < len(some) <= len(fields):
            fields = {key: kind for key, kind in fields.items() if key not in some}
            lines.append(f"- All of {_inline({'$ref': other}, schemas)} but `{lacking[0]}`\n")
    described = chain.from_iterable(
        _fields(field, schema, schemas, required=_required(name, schemas))
        for field, schema in fields.items()
    )
    for text, alike in groupby(described, key=itemgetter(1)):
        lines.append(f"- {', '.join(f'`{field}`' for field, _ in alike)} {text}\n")
    return "".join(lines)


def _own_fields(schema: Json) -> Json:
    fields: Json = schema["properties"]
    return {name: kind for name, kind in fields.items() if name not in _COMMON_FIELDS}


def _size(schema: Json) -> tuple[int, int]:
    return len(_own_fields(schema)), len(schema["properties"])


def _is_contained(some: Json, fields: Json) -> bool:
    return all(fields.get(field) == kind for field, kind in some.items())


def _required(name: str, schemas: Json) -> Sequence[str]:
    """Return the required fields of a body. A response always has all of its fields."""
    return schemas[name]["required"] if name.endswith("Body") else ()


def _fields(
    field: str, schema: Json, schemas: Json, *, required: Sequence[str]
) -> Iterator[tuple[str, str]]:
    """Yield the name of a field, and of each inside it, with what to say of it."""
    needed = ", required" if field.rpartition(".")[2] in required else ""
    about = f": {schema['description']}" if "description" in schema else ""
    yield field, f"({_type(schema, schemas)}{needed}){about}"
    for inner, inner_schema in schema.get("properties", {}).items():
        of_it = schema.get("required", ())
        yield from _fields(f"{field}.{inner}", inner_schema, schemas, required=of_it)


def _type(schema: Json, schemas: Json) -> str:
    if "anyOf" in schema:
        return " or ".join(_type(each, schemas) for each in schema["anyOf"])
    if "$ref" in schema:
        return _inline(schema, schemas)
    if "enum" in schema:
        return ", ".join(f"`{str(each).lower()}`" for each in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {_type(schema['items'], schemas)}"
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    kind = _FORMATS.get(schema.get("format", ""), " or ".join(kinds))
    if "maximum" in schema:
        kind += f", {schema['minimum']:,} to {schema['maximum']:,}"
    if "maxLength" in schema:
        kind += f", at most {schema['maxLength']:,} characters"
    return kind


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


@cache
def tests_by_promise() -> Mapping[str, Sequence[str]]:
    """Return the tests of each promise: those with the comment `# Shows F3.` above them."""
    found = defaultdict(list)
    for folder in ("adapters", "tests"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for promise, test in _shown(path.read_text()):
                found[promise].append(f"{path.relative_to(ROOT)}::{test}")
    return found


def _shown(source: str) -> Iterator[tuple[str, str]]:
    if "# Shows " not in source:
        return
    lines = source.splitlines()
    body = ast.parse(source).body
    of_classes = [(f"{own.name}::", own.body) for own in body if isinstance(own, ast.ClassDef)]
    for prefix, statements in (("", body), *of_classes):
        for test in statements:
            if isinstance(test, ast.FunctionDef):
                first = min([test.lineno, *(each.lineno for each in test.decorator_list)])
                if shows := _SHOWS.fullmatch(lines[first - 2]):
                    for promise in shows[1].split(", "):
                        yield promise, prefix + test.name


def _tests_of_promises() -> str:
    found = tests_by_promise()
    promises = sorted(found, key=lambda promise: ("IFS".index(promise[0]), int(promise[1:])))
    lines = [
        f"- {promise}: {'<br>'.join(f'`{test}`' for test in found[promise])}\n"
        for promise in promises
    ]
    return (
        "# Tests of each promise\n\n"
        "The tests of each promise in [reliability](reliability.md). A test names its promises in a comment,\n"
        f"`# Shows F3.`, and `python -m tests.generated_docs` writes this page.\n\n{''.join(lines)}"
    )


PAGES: Final[Mapping[Path, Callable[[], str]]] = {
    HTTP_API: _http_api,
    TESTS_OF_PROMISES: _tests_of_promises,
}
"""What returns the text that each page should have."""


if __name__ == "__main__":
    for page, text in PAGES.items():
        page.write_text(text())

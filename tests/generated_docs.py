"""Writes the parts of docs/http-api.md that repeat the code: `python -m tests.generated_docs`."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
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

PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "http-api.md"
BLOCK: Final = re.compile(r"(<!--(\w+)-->\n).*?(<!--end-->)", re.DOTALL)

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


def page() -> str:
    """Return the text that the page should have."""
    return BLOCK.sub(lambda found: found[1] + blocks()[found[2]] + found[3], PAGE.read_text())


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
    responses = operation["responses"]
    if "303" in responses:
        # The parameters of a link are part of it: clients do not choose them.
        points = [f"Redirects and pages: {', '.join(sorted(responses))}"]
    else:
        points = [*_input(operation, schemas), *_output(responses, schemas)]
    listed = "".join(f"- {point}.\n" for point in points)
    return f"**`{method.upper()} {path}`** {about}\n\n{listed}"


def _input(operation: Json, schemas: Json) -> Iterator[str]:
    parameters = {each["name"]: each for each in operation.get("parameters", ())}
    for name, parameter in parameters.items():
        if parameter["in"] != "path" and name not in ("page", "size"):
            needed = "" if parameter["required"] else ", optional"
            about = parameter["description"].rstrip(".")
            yield f"`{name}` ({parameter['in']}{needed}): {about}"
    if (body := _content(operation.get("requestBody", {}))) and "$ref" in body:
        yield f"Body: {_type(body, schemas)}"


def _output(responses: Json, schemas: Json) -> Iterator[str]:
    yield f"200: {_type(_content(responses['200']), schemas)}"
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


def _schema(name: str, schemas: Json) -> str:
    """Describe the fields of a schema, those of another schema that it contains by its name."""
    fields, size = _own_fields(schemas[name]), len(schemas[name]["properties"])
    lines = []
    for other, schema in schemas.items():
        some, is_smaller = _own_fields(schema), len(schema["properties"]) < size
        if is_smaller and some and some.items() <= fields.items():
            fields = {key: kind for key, kind in fields.items() if key not in some}
            lines.append(f"- All of {_type({'$ref': other}, schemas)}\n")
    # A response always has all of its fields.
    required = schemas[name]["required"] if name.endswith("Body") else ()
    described = chain.from_iterable(
        _fields(field, schema, schemas, is_required=field in required)
        for field, schema in fields.items()
    )
    for text, alike in groupby(described, key=itemgetter(1)):
        lines.append(f"- {', '.join(f'`{field}`' for field, _ in alike)} {text}\n")
    return "".join(lines)


def _own_fields(schema: Json) -> Json:
    fields: Json = schema["properties"]
    return {name: kind for name, kind in fields.items() if name not in _COMMON_FIELDS}


def _fields(
    field: str, schema: Json, schemas: Json, *, is_required: bool
) -> Iterator[tuple[str, str]]:
    """Yield the name of a field, and of each inside it, with what to say of it."""
    about = f": {schema['description']}" if "description" in schema else ""
    yield field, f"({_type(schema, schemas)}{', required' * is_required}){about}"
    for inner, inner_schema in schema.get("properties", {}).items():
        is_needed = inner in schema.get("required", ())
        yield from _fields(f"{field}.{inner}", inner_schema, schemas, is_required=is_needed)


# Their schemas allow other values, because generators of clients fail at a property with one value.
_CONSTANTS: Final = {
    "Always true.": "`true`",
    "Always false.": "`false`",
    "Always null.": "null",
}


def _type(schema: Json, schemas: Json) -> str:
    if always := _CONSTANTS.get(schema.get("description", "")):
        return always
    if "anyOf" in schema:
        return " or ".join(_type(each, schemas) for each in schema["anyOf"])
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        properties = schemas[name]["properties"]
        if len(properties) > 2:
            return f"[`{name}`](#{name.lower()})"
        return ", ".join(f"`{key}` ({_type(each, schemas)})" for key, each in properties.items())
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


if __name__ == "__main__":
    PAGE.write_text(page())

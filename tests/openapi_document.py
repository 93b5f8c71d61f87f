"""Print the OpenAPI document from which clients are generated: `python -m tests.openapi_document`."""

from __future__ import annotations

import sys

import msgspec

from adapters.events.payload import examples
from adapters.http.openapi import document


def openapi_document() -> bytes:
    """Return the document as JSON, with the events as schemas only.

    Generators would turn the list of webhooks into operations, as if clients called them.
    """
    whole = document("http://127.0.0.1:8000", examples())
    return msgspec.json.encode({key: whole[key] for key in whole if key != "webhooks"})


if __name__ == "__main__":
    sys.stdout.buffer.write(openapi_document())

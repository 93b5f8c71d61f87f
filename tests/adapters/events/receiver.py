from typing import Any

from standardwebhooks import Webhook


def read_event(secret: str, body: bytes, headers: dict[str, str]) -> Any:  # any JSON
    return Webhook(secret).verify(body, headers)

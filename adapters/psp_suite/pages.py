"""Read the text of pages."""

from __future__ import annotations

from html.parser import HTMLParser

from typing_extensions import override


def text_of(page: str) -> str:
    """Return the text of an HTML page, without tags and with character references resolved."""
    reader = _Reader()
    reader.feed(page)
    reader.close()
    return "".join(reader.text)


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.text: list[str] = []

    @override
    def handle_data(self, data: str) -> None:
        self.text.append(data)

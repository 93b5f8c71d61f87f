"""The base class for a PSP that is called over HTTP and that a stand-in server plays."""

from __future__ import annotations

import http.client
import re
from abc import abstractmethod
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from http import HTTPStatus
from itertools import count
from pathlib import Path
from typing import Final
from urllib.parse import urlencode, urlsplit

from typing_extensions import override

from adapters.psp_suite import stand_in
from adapters.psp_suite.clock import SettableClock
from adapters.psp_suite.ids import SeededIds
from adapters.psp_suite.pages import text_of
from adapters.psp_suite.stand_in import Response, StandInServer, html_response, json_response
from adapters.psp_suite.under_test import START, PspUnderTest, Trouble
from domain.psps.hosted_page import HostedPage

_STATUSES: Final[Mapping[Trouble, int]] = {
    Trouble.REFUSED: 400,
    Trouble.NOT_FOUND: 404,
    Trouble.UNAUTHORIZED: 401,
    Trouble.FORBIDDEN: 403,
    Trouble.TOO_MANY: 429,
    Trouble.OUT_OF_ORDER: 503,
}
_BY_THE_SERVER: Final[Mapping[Trouble, stand_in.Trouble]] = {
    Trouble.CALL_LOST: stand_in.drop_call,
    Trouble.RESPONSE_LOST: stand_in.drop_response,
    Trouble.REDIRECTED: stand_in.redirect,
}
_AT_A_PROXY: Final[Mapping[Trouble, int]] = {
    Trouble.NOT_THE_API: 404,
    Trouble.CONFLICT_AT_A_PROXY: 409,
    Trouble.GONE_AT_A_PROXY: 410,
}
_VALUE: Final = re.compile(rb'(:\s*)(?:"[^"]*"|[0-9]+)')
"""A text or a number in a JSON object."""


class RemotePspUnderTest(PspUnderTest):
    """Plays the PSP with a stand-in server, which also causes every kind of `Trouble`.

    A subclass adds the PSP's own formats.

    The subclass creates the stand-in:

        def __init__(self, folder: Path) -> None:
            super().__init__(folder)
            self.server = StandInServer(self.respond, api="/v1/")
    """

    server: StandInServer
    """The stand-in, which the subclass creates. It serves both the API and the PSP's pages."""

    def __init__(self, folder: Path) -> None:  # noqa: ARG002 - for subclasses
        self.clock = SettableClock(START)
        self.ids = SeededIds()

    def error(self, trouble: Trouble) -> Response:
        """Return the error response with which the PSP reports a kind of trouble.

        By default, the status is 400, 401, 403, 404, 429 or 503, and the body is an empty JSON
        object. Override this method to return the bodies that the PSP sends. For REFUSED, return
        the PSP's status if it is not 400. For TOO_MANY, `Retry-After: 17` is added unless the
        response has this header. If the PSP uses another header or format, return its header with
        a wait of 17 seconds.
        """
        return json_response({}, _STATUSES[trouble])

    @abstractmethod
    def unknown_status(self, sound: Response) -> Response:
        """Return a copy of `sound` in which the page has a status that is unknown to the adapter.

        `sound` is a correct response about a page.
        """

    @override
    def close(self) -> None:
        self.server.close()

    @override
    def read_page(self, page: HostedPage) -> str:
        target = urlsplit(page.address)
        with closing(
            http.client.HTTPConnection(
                str(target.hostname), target.port, timeout=stand_in.GIVE_UP_SECONDS
            )
        ) as connection:
            connection.request(
                "POST" if page.fields else "GET",
                f"{target.path}?{target.query}".rstrip("?"),
                urlencode(page.fields) if page.fields else None,
                {"Content-Type": "application/x-www-form-urlencoded"} if page.fields else {},
            )
            return text_of(connection.getresponse().read().decode())

    @override
    def have(self, trouble: Trouble, *, from_call: int = 1, calls: int | None = None) -> None:
        self.server.recover()
        self.server.have(self._made(trouble), from_call=from_call, times=calls)

    @override
    def change_bodies(self, change: Callable[[int, bytes], bytes]) -> None:
        numbers = count(1)
        self.server.recover()
        self.server.have(
            stand_in.change(lambda sound: replace(sound, body=change(next(numbers), sound.body)))
        )

    @override
    def count_calls(self) -> int:
        return len(self.server.calls)

    @override
    def drip(self, seconds: float) -> None:
        self.server.have(stand_in.drip(seconds))

    @override
    def handle_late_calls(self) -> None:
        self.server.handle_late_calls()

    @override
    def fall_silent(self) -> None:
        self.server.have(stand_in.lose_call)

    @override
    def recover(self) -> None:
        self.server.recover()

    def _made(self, trouble: Trouble) -> stand_in.Trouble:
        match trouble:
            case _ if known := _BY_THE_SERVER.get(trouble):
                return known
            case Trouble.CALL_LATE:
                return self.server.handle_later
            case Trouble.NONSENSE:
                return stand_in.change(lambda _: Response(200, b'{"id": "page_1", "guest": {"ema'))
            case Trouble.UNKNOWN_STATUS:
                return stand_in.change(self.unknown_status)
            case _ if status := _AT_A_PROXY.get(trouble):
                return stand_in.respond_with(html_response("<html>A proxy</html>", status))
            case Trouble.UNKNOWN_ERROR:
                refusal = self.error(Trouble.REFUSED)
                if refusal.status != HTTPStatus.OK:
                    return stand_in.respond_with(replace(refusal, status=418))
                body = _VALUE.sub(rb'\1"unheard_of"', refusal.body)
                return stand_in.respond_with(replace(refusal, body=body))
            case Trouble.TOO_MANY:
                refusal = self.error(trouble)
                headers = {"Retry-After": "17", **refusal.headers}
                return stand_in.respond_with(replace(refusal, headers=headers))
            case _:
                return stand_in.respond_with(self.error(trouble))

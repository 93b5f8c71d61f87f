"""Sends a card number and a security code wherever a client can send something (S11).

Neither may appear in a file or in the log of the process, which is killed in the end. Exceptions
are a client's own `redirect_uri` and `Idempotency-Key`, which are kept as they are.
"""

from __future__ import annotations

import http.client
import json
import re
import signal
import socket
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode

from adapters.fake_psp.cards import TEST_CARDS
from adapters.fake_psp.signatures import HEADER, sign
from adapters.http.openapi import OPERATIONS
from adapters.http.operations import Operation
from adapters.psp_suite.samples import GUEST_ID, OTHER_GUEST_ID
from domain.billing import MAX_LENGTHS
from tests.adapters.http.api import ACCOUNTS, GOOD_BODY
from tests.builders import CENTER_ID, a_guest
from tests.programs import SERVE
from tests.serving import WAITRESS, Serving

NUMBER: Final = "4111111111111111"
CODE: Final = "cvc-8731-canary"
SHORT: Final = "378282246310005"
"""A card number with as many digits as a phone number may have."""
CANARIES: Final = (
    *(NUMBER, " ".join(re.findall("....", NUMBER)), NUMBER[:-4], SHORT, CODE, quote(CODE)),
)
BOTH: Final = f"{NUMBER} {CODE}"
OF_RESOURCES: Final = ("Cookie", "Referer", "User-Agent", "Origin", HEADER)
"""The headers that resources may read."""

# A fault whose text quotes the request.
CRASHING: Final = f"""
from domain.sessions.add_card import AddCard
add_card = AddCard.__call__
def crash(self, caller, request):
    if request.source == 5:
        raise RuntimeError(request)
    return add_card(self, caller, request)
AddCard.__call__ = crash
{SERVE}
"""


class Service(Serving):
    """A service in a separate process, and what is sent to the service."""

    def send(
        self, method: str, path: str, body: str | None = None, **headers: str
    ) -> http.client.HTTPResponse:
        """Send a request, and return the response with its body as `text`."""
        with closing(self.connect()) as connection:
            connection.request(method, path, body=body, headers={**self.headers, **headers})
            response = connection.getresponse()
            self.text = response.read().decode()
            return response

    def send_raw(self, sent: bytes) -> None:
        """Send bytes, and close the connection."""
        with closing(socket.create_connection(("127.0.0.1", self.port))) as raw:
            raw.sendall(sent)

    def open_page(self) -> str:
        """Return the path of an open hosted page."""
        assert self.send("POST", ACCOUNTS, json.dumps(GOOD_BODY)).status == 200
        link = json.loads(self.text)["hosted_payment_uri"].removeprefix(self.base_url)
        return self.send("GET", link).headers["Location"].removeprefix(self.base_url)


def send_to_every_place(service: Service, operation: Operation) -> None:
    """Send the canaries in each part of the path, in the query, in headers, and as the method."""
    method = operation.method.upper()
    known = {"guest_id": GUEST_ID, "center_id": CENTER_ID, "provider": "fake", "account": "default"}
    if operation.name in ("eraseGuest", "mergeGuests"):
        # The other operations need the first guest.
        known["guest_id"] = OTHER_GUEST_ID
        service.installation.has_guest(a_guest(id=OTHER_GUEST_ID))
    for number in re.findall(r"\{(\w+)\}", operation.path):
        path = operation.path.format_map(
            {**dict.fromkeys(_names(operation), "x"), **known, number: NUMBER}
        )
        service.send(method, path)
    path = operation.path.format_map({**dict.fromkeys(_names(operation), NUMBER), **known})
    for name in ("page", "size", "center_id", "token_id", "redirect_uri", "card", NUMBER):
        service.send(method, f"{path}?{urlencode({name: BOTH})}")
    service.send(method, path, "{}", **dict.fromkeys(OF_RESOURCES, BOTH))
    service.send(method, path, json.dumps([BOTH, {NUMBER: CODE}]))
    service.send(method, path, f'{{"{NUMBER}": {CODE}')
    service.send(NUMBER, path)


def send_in_every_header(service: Service) -> None:
    """Send both in each header, with each method. The server reads most of them."""
    for name in (
        *("Authorization", "Content-Type", "Content-Encoding", "Host", "X-Forwarded-For"),
        *("X-Request-Id", "Accept", "Expect", "Range", *OF_RESOURCES),
    ):
        for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
            service.send(method, ACCOUNTS, "{}", **{name: BOTH})
    service.send("POST", ACCOUNTS, "{}", **{"X-Request-ID": NUMBER})


def _names(operation: Operation) -> list[str]:
    return re.findall(r"\{(\w+)\}", operation.path)


def send_in_every_field(service: Service) -> None:
    """Send the number in each field of add-card, and both in unknown fields."""
    bodies: list[dict[str, Any]] = [
        {"center_id": NUMBER},
        {"redirect_uri": NUMBER},
        {"redirect_uri": f"https://{NUMBER}:{CODE}@shop.example"},
        {"source": int(NUMBER)},
        {"source": 5, "number": NUMBER, "cvc": CODE, "billing_info": {"city": BOTH}},
        {"billing_info": NUMBER},
        {"billing_info": {"card": NUMBER, "cvc": CODE, "city": "Seattle"}},
        {"card": {"number": NUMBER, "cvc": CODE}},
    ]
    texts = (NUMBER, f"Flat 12, {CANARIES[1]}", SHORT, f"+{SHORT}")
    bodies += [{"billing_info": {name: text}} for name in MAX_LENGTHS for text in texts]
    for body in bodies:
        service.send("POST", ACCOUNTS, json.dumps({**GOOD_BODY, **body}))
    # This request crashes.
    assert service.send("POST", ACCOUNTS, json.dumps({**GOOD_BODY, **bodies[4]})).status == 500
    assert NUMBER not in service.text


def send_by_webhook(service: Service) -> None:
    """Send webhooks that no PSP sends, unsigned and signed."""
    event = {"id": "event_1", "type": "page.completed", "card": NUMBER, "cvc": CODE}
    for body in (json.dumps(event), BOTH, json.dumps({**event, "type": NUMBER})):
        secret = service.installation.psp.webhook_secret
        signature = sign(body.encode(), secret=secret, now=datetime.now(UTC))
        for headers in ({HEADER: signature}, {HEADER: BOTH}):
            service.send("POST", "/webhooks/fake", body, **headers)


def type_into_the_hosted_page(service: Service) -> None:
    """Type the canaries into each field, and the code beside the number of each test card."""
    page = service.open_page()
    service.send("GET", page)
    found = re.search(r'name="form_token" value="([0-9a-f]+)"', service.text)
    assert found is not None
    good = {"form_token": found[1], "number": NUMBER, "expiry": "08 / 30", "cvc": CODE}
    forms: list[dict[str, str]] = [{**good, name: BOTH} for name in (*good, *MAX_LENGTHS, "other")]
    forms += [{**good, "number": number} for number in TEST_CARDS]
    forms += [good, {"number": NUMBER, "cvc": CODE}]
    for form in forms:
        for path in (page, f"{page}/challenge", f"/fake-psp/pages/{NUMBER}"):
            service.send(
                "POST",
                path,
                urlencode(form),
                **{"Content-Type": "application/x-www-form-urlencoded", "Origin": service.base_url},
            )
    service.send("GET", f"/fake-psp/static/{NUMBER}")


def charge_at_the_fake_psp(service: Service) -> None:
    """Send the canaries in each field of a charge."""
    good = {"guest_reference": "guest_1", "token": "card_1", "amount": "1.00", "currency": "EUR"}
    headers = {"Authorization": f"Bearer {service.installation.psp.charge_key}"}
    for name in (*good, "number"):
        for text in (NUMBER, BOTH, f"card_{NUMBER} {CODE}"):
            service.send("POST", "/fake-psp/charges", json.dumps({**good, name: text}), **headers)
    service.send("GET", f"/fake-psp/charges?{NUMBER}", **headers)


# Shows I6, S11.
def test_a_card_number_or_security_code_is_never_written_to_a_file_or_log(tmp_path: Path) -> None:
    with Service(tmp_path, WAITRESS, program=CRASHING) as service:
        for operation in OPERATIONS:
            send_to_every_place(service, operation)
        send_in_every_header(service)
        send_in_every_field(service)
        send_by_webhook(service)
        type_into_the_hosted_page(service)
        charge_at_the_fake_psp(service)
        charge_key = service.installation.psp.charge_key
        body = json.dumps({**GOOD_BODY, "billing_info": {"city": NUMBER}}).encode()
        head = f"POST {ACCOUNTS} HTTP/1.1\r\nHost: x\r\nAuthorization: bearer {service.token}\r\n"
        start = f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        for cut in (b"", b"\r\n\r\n" + BOTH.encode(), BOTH.encode() + b"\x00"):
            service.send_raw(start.encode() + body + cut)
        with closing(socket.create_connection(("127.0.0.1", service.port))) as in_flight:
            in_flight.sendall(start.encode() + body[:-1])
            (program,) = service.programs
            program.tell(signal.SIGKILL)
            assert program.ends() == -signal.SIGKILL

        kept = {path.name: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    files = {"cards.db", "cards.db-wal", "cards-fake-psp.db", "cards-fake-psp.db-wal", "log"}
    assert files <= kept.keys()
    assert b"internal_error" in kept["log"]
    assert charge_key.encode() not in kept["log"]
    assert [
        (name, each) for name, held in kept.items() for each in CANARIES if each.encode() in held
    ] == []

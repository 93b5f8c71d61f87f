from __future__ import annotations

import base64
from datetime import timedelta

import pytest

from adapters.psp.webhooks import Encoding, is_recent, is_signed, require_secrets, sign
from adapters.psp_suite.clock import START

# RFC 4231, test case 2.
KEY, MESSAGE = "Jefe", b"what do ya want for nothing?"
MAC = bytes.fromhex("5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843")
MAC_512 = bytes.fromhex(
    "164b7a7bfcf819e2e395fbe73b56e0a387bd64222e831fd610270cd7ea250554"
    "9758bf75c05a994a6d034f65f8f0e6fdcaeab1a34d4a6b4b636e070a38bce737"
)


@pytest.mark.parametrize(
    ("algorithm", "encoding", "expected"),
    [
        ("sha256", "hex", MAC.hex()),
        ("sha256", "base64", base64.b64encode(MAC).decode()),
        ("sha512", "hex", MAC_512.hex()),
    ],
)
def test_a_webhook_signature_is_the_hmac_of_the_standard_webhooks_specification(
    algorithm: str, encoding: Encoding, expected: str
) -> None:
    for secret in (KEY, KEY.encode()):
        assert sign(MESSAGE, secret, algorithm=algorithm, encoding=encoding) == expected
        assert is_signed(MESSAGE, [expected], [secret], algorithm=algorithm, encoding=encoding)


def test_a_webhook_is_accepted_if_any_of_its_signatures_matches_any_of_the_secrets() -> None:
    assert is_signed(MESSAGE, ["x", MAC.hex()], ["another", KEY])
    assert not is_signed(MESSAGE, ["x", MAC.hex()], ["another"])
    assert not is_signed(MESSAGE, [], [KEY])
    assert not is_signed(MESSAGE, [MAC.hex()], [])
    assert not is_signed(MESSAGE + b"x", [MAC.hex()], [KEY])


@pytest.mark.parametrize("seconds", [-301, -300, 300, 301])
@pytest.mark.parametrize("fraction", [timedelta(0), timedelta(milliseconds=999)])
def test_the_signed_time_of_a_webhook_may_be_at_most_300_seconds_off(
    seconds: int, fraction: timedelta
) -> None:
    signed_at = int(START.timestamp()) + seconds
    assert is_recent(signed_at, START.replace(microsecond=0) + fraction) is (abs(seconds) <= 300)


@pytest.mark.parametrize("secrets", [[], [""], [" \n"], ["good", ""]])
def test_a_blank_webhook_secret_is_refused(secrets: list[str]) -> None:
    require_secrets(["one", " another"])
    with pytest.raises(ValueError, match="secret"):
        require_secrets(secrets)

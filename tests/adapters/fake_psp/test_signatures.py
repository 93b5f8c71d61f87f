from __future__ import annotations

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from adapters.fake_psp.signatures import is_signed, sign
from adapters.psp.contract.clock import START
from tests.strategies import altered

SECRET = "whsec_fake"


@given(body=st.binary(), seconds=st.integers(-(10**9), 10**9) | st.integers(-310, 310))
def test_a_signature_holds_for_300_seconds_before_and_after(body: bytes, seconds: int) -> None:
    signature = sign(body, secret=SECRET, now=START)
    now = START + timedelta(seconds=seconds)

    assert is_signed(body, signature, secrets=[SECRET], now=now) is (abs(seconds) <= 300)


@given(st.data())
def test_whatever_is_altered_is_not_signed(data: st.DataObject) -> None:
    body = data.draw(st.binary())
    signature = sign(body, secret=SECRET, now=START)
    other_body = data.draw(altered(body))
    other_signature = data.draw(altered(signature.encode()) | st.binary()).decode("latin-1")

    assert is_signed(other_body, signature, secrets=[SECRET], now=START) is (other_body == body)
    as_before = other_signature == signature
    assert is_signed(body, other_signature, secrets=[SECRET], now=START) is as_before
    assert not is_signed(body, signature, secrets=[SECRET + "x"], now=START)

"""The settings that a PSP has for each merchant account."""

from __future__ import annotations

import pytest

from adapters.psp.settings import AccountSettings, PspSettingsError

ACME = AccountSettings(psp="acme", required=("URL", "API_KEY"), addresses=("URL",))


def read(**changes: str) -> None:
    given = {"URL": "https://api.acme.example", "API_KEY": "a key", **changes}
    ACME.read({f"CARDONFILE_ACME_SPAIN_{what}": value for what, value in given.items()})


@pytest.mark.parametrize("value", ["a\nkey", "a\x00key", "k\u00e9y", "key\udcff"])
def test_a_secret_setting_that_a_header_cannot_contain_is_refused(value: str) -> None:
    read()
    with pytest.raises(PspSettingsError) as refused:
        read(API_KEY=value)

    assert str(refused.value).startswith("CARDONFILE_ACME_SPAIN_API_KEY contains a line break or")
    assert value not in str(refused.value)


@pytest.mark.parametrize("address", ["http://api.acme.example", "https://", "ftp://127.0.0.1", "x"])
def test_the_refusal_of_an_address_without_https_names_the_setting(address: str) -> None:
    read(URL="http://127.0.0.1:9000")
    with pytest.raises(PspSettingsError) as refused:
        read(URL=address)

    assert str(refused.value) == (
        "CARDONFILE_ACME_SPAIN_URL must be an https address, or http on loopback"
    )

from __future__ import annotations

from typing import Any

import pytest

from adapters.catalogs import shipped_consents
from adapters.psp_suite.samples import GUEST_ID
from domain.audit.entry import Action
from domain.centers.center import CenterNotFound
from domain.consents.consent_text import MAX_TEXT_LENGTH, ConsentText
from domain.consents.set_consent import ConsentSet, NoTextShipped, SetConsent
from domain.errors import InvalidField
from domain.identifiers import ProviderName
from domain.psps.capabilities import ConsentTooLong
from tests.builders import CENTER_ID, OTHER_CENTER_ID, a_center
from tests.databases import audit_trail
from tests.installation import Installation

OWN = "Sie erlauben {center}, Ihre Karte zu belasten."


@pytest.fixture
def set_consent(installation: Installation) -> SetConsent:
    return installation.container.set_consent()


def texts(installation: Installation) -> dict[str, ConsentText]:
    with installation.storage.read() as unit:
        return {text.language: text for text in unit.consent_texts.of(CENTER_ID)}


def noted(installation: Installation) -> list[tuple[Action, Any]]:
    entries = audit_trail(installation.storage, about=CENTER_ID)
    return [(entry.action, entry.details) for entry in entries][::-1]


def test_a_language_without_a_custom_text_uses_the_shipped_consent_text(
    installation: Installation, set_consent: SetConsent
) -> None:
    done = set_consent(CENTER_ID, "DE")

    german = shipped_consents()["de"]
    assert done == ConsentSet(center=a_center(), text=german, not_shown_by=None)
    assert texts(installation) == {"de": german}
    set_consent(CENTER_ID, "de")
    assert noted(installation) == [
        (Action.CONSENT_SET, {"language": "de", "version": german.version})
    ]


def test_each_consent_text_of_a_center_has_its_own_version(
    installation: Installation, set_consent: SetConsent
) -> None:
    set_consent(CENTER_ID, "de")
    first = set_consent(CENTER_ID, "de", own=f"  {OWN}\r\n ").text
    again = set_consent(CENTER_ID, "de", own=OWN.replace(" ", "\n")).text
    other = set_consent(CENTER_ID, "de", own=f"{OWN} Danke.").text

    assert first is not None
    assert other is not None
    assert first == again != other
    assert first.text == OWN
    assert first.version.startswith("own-")
    assert first.version != other.version
    assert texts(installation) == {"de": other}
    assert len(noted(installation)) == 3


def test_a_language_of_a_center_can_be_switched_off(
    installation: Installation, set_consent: SetConsent
) -> None:
    set_consent(CENTER_ID, "de")
    for _ in range(2):
        assert set_consent(CENTER_ID, "de", off=True).text is None

    assert texts(installation) == {}
    (_, off) = noted(installation)
    assert off == (Action.CONSENT_SET, {"language": "de", "version": "none"})


def test_switching_on_a_language_without_a_shipped_text_requires_a_custom_text(
    installation: Installation, set_consent: SetConsent
) -> None:
    with pytest.raises(
        NoTextShipped, match=r"^cardonfile ships no text in ja, only in ar, de, en, es"
    ):
        set_consent(CENTER_ID, "ja")
    done = set_consent(CENTER_ID, "ja", own="同意します。{center}")

    assert texts(installation)["ja"] == done.text
    assert done.not_shown_by == "fake"


def test_switching_on_a_language_warns_if_the_psps_page_does_not_support_the_language(
    installation: Installation, set_consent: SetConsent
) -> None:
    installation.configure(provider=ProviderName("stripe"))
    assert set_consent(CENTER_ID, "ar").not_shown_by == "stripe"
    assert set_consent(CENTER_ID, "pt-BR", own=OWN).not_shown_by is None
    installation.unconfigure()
    assert set_consent(CENTER_ID, "ar").not_shown_by is None


@pytest.mark.parametrize(
    "own",
    [
        *("", " \n", "a" * (MAX_TEXT_LENGTH + 1), "a\x00b", "a\u202eb", "{name} agrees", "{center"),
        "Karte 4242 4242 4242 4242",
    ],
    ids=lambda own: ascii(own)[:20],
)
def test_an_invalid_consent_text_is_refused(
    installation: Installation, set_consent: SetConsent, own: str
) -> None:
    with pytest.raises(InvalidField, match=r"^text must be "):
        set_consent(CENTER_ID, "de", own=own)
    assert texts(installation) == {}


def test_a_consent_text_must_fit_on_the_psps_page_after_escaping(
    installation: Installation, set_consent: SetConsent
) -> None:
    # Stripe counts the backslashes that keep its page from reading the text as Markdown.
    installation.configure(provider=ProviderName("stripe"))
    set_consent(CENTER_ID, "de", own="*" * 600)
    with pytest.raises(
        ConsentTooLong, match=r"in de has 1202 characters, .* stripe shows at most 1200"
    ):
        set_consent(CENTER_ID, "de", own="*" * 601)
    # Stripe's page does not support Arabic, so the limit does not apply.
    set_consent(CENTER_ID, "ar", own="*" * 601)


@pytest.mark.parametrize(
    ("center_id", "language", "refusal"),
    [
        *(("x", "de", InvalidField), (OTHER_CENTER_ID, "de", CenterNotFound)),
        *((CENTER_ID, "de_DE", InvalidField), (CENTER_ID, "", InvalidField)),
        (GUEST_ID, "de", CenterNotFound),
    ],
)
def test_setting_a_consent_text_for_an_unknown_center_or_language_is_refused(
    set_consent: SetConsent, center_id: str, language: str, refusal: type[Exception]
) -> None:
    for off in (True, False):
        with pytest.raises(refusal):
            set_consent(center_id, language, off=off)

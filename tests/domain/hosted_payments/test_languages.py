"""The language in which a guest reads the page and agrees to a text."""

from __future__ import annotations

from dataclasses import replace

import pytest

from domain.centers.center import MAX_NAME_LENGTH
from domain.consents.consent_text import MAX_TEXT_LENGTH
from domain.hosted_payments.find_page_content import PageContent
from domain.identifiers import ProviderName
from domain.psps.hosted_page import Consent
from domain.sessions.polling import ASK_AGAIN_AFTER
from domain.sessions.session import CardSession
from tests.builders import CENTER_ID, a_center, a_guest, a_shipped_consent
from tests.installation import Installation


def switch_on(installation: Installation, *languages: str, own: str | None = None) -> None:
    for language in languages:
        installation.container.set_consent()(CENTER_ID, language, own=own)


def opened(
    installation: Installation, locale: str | None = None, *accepted: str
) -> tuple[CardSession, Consent]:
    """Open a new link. Return the session and the page that it shows."""
    session = installation.add_card(locale=locale)
    installation.use_cases.open_hosted_page(key=session.link_key, accepted=accepted)
    session = installation.session(session.token_id)
    shown = installation.psp.page(installation.page_reference(session)).request.consent
    assert session.current_attempt.request.consent == shown
    return session, shown


def language(installation: Installation, locale: str | None = None, *accepted: str) -> str:
    _, consent = opened(installation, locale, *accepted)
    assert consent == a_shipped_consent(language=consent.language)
    return consent.language


def page_content(installation: Installation, session: CardSession, *accepted: str) -> PageContent:
    found = installation.container.find_page_content()(key=session.link_key, accepted=accepted)
    assert found is not None
    return found


def test_pages_are_in_english_until_another_language_is_switched_on(
    installation: Installation,
) -> None:
    installation.has_guest(a_guest(language="de"))
    installation.container.set_center()(CENTER_ID, {"language": "de"})

    assert language(installation, "de") == language(installation, "auto", "de") == "en"
    switch_on(installation, "de")
    assert language(installation, "de") == "de"
    installation.container.set_consent()(CENTER_ID, "de", off=True)
    assert language(installation, "de") == "en"


def test_the_language_of_the_request_takes_precedence_over_the_guests_language(
    installation: Installation,
) -> None:
    switch_on(installation, "de", "fr", "it")
    assert language(installation) == "en"
    installation.container.set_center()(CENTER_ID, {"language": "it-CH"})
    assert language(installation) == "it"
    installation.has_guest(a_guest(language="fr-CA"))
    assert language(installation) == "fr"
    assert language(installation, "de-AT") == "de"
    assert language(installation, "ja") == "fr"


def test_the_browsers_language_is_used_if_the_client_allows_it(installation: Installation) -> None:
    switch_on(installation, "de", "fr")
    installation.has_guest(a_guest(language="fr"))

    assert language(installation, "auto", "ja", "de-CH", "fr") == "de"
    assert language(installation, "auto", "ja") == language(installation, "auto") == "fr"
    assert language(installation, None, "de") == "fr"
    assert language(installation, "en", "de") == "en"


def test_a_language_that_the_psps_page_lacks_is_not_used(installation: Installation) -> None:
    switch_on(installation, "ar", "de")
    installation.configure(provider=ProviderName("stripe"))
    session = installation.add_card(locale="ar")
    german = installation.add_card(locale="de")

    assert page_content(installation, session).language == "en"
    assert page_content(installation, german).language == "de"
    installation.configure()
    assert language(installation, "ar") == "ar"


def test_a_language_whose_consent_text_is_too_long_is_not_used(installation: Installation) -> None:
    own = "a" * (MAX_TEXT_LENGTH - MAX_NAME_LENGTH + 1) + "{center}"
    installation.has_center(a_center(name="S"))
    switch_on(installation, "de", own=own)
    _, shown = opened(installation, "de")
    assert shown.language == "de"

    installation.has_center(a_center(name="S" * MAX_NAME_LENGTH))

    _, shown = opened(installation, "de")
    assert shown.language == "en"


def test_a_hosted_page_keeps_its_language(installation: Installation) -> None:
    switch_on(installation, "de")
    session, consent = opened(installation, "auto", "de")
    installation.container.set_consent()(CENTER_ID, "de", off=True)

    installation.use_cases.open_hosted_page(key=session.link_key, accepted=["fr"])

    assert installation.session(session.token_id).current_attempt.request.consent == consent
    assert page_content(installation, session, "fr").language == "de"
    installation.clock.advance(ASK_AGAIN_AFTER)
    installation.type_card_and_return(session)
    (account,) = installation.accounts()
    (given,) = installation.consents(account)
    assert (given.language, given.version, given.text) == ("de", consent.version, consent.text)


@pytest.mark.parametrize(
    ("locale", "expected", "negotiated"),
    [("de", "de", False), (None, "fr", False), ("auto", "it", True)],
)
def test_our_own_pages_are_in_the_same_language_as_the_hosted_page(
    installation: Installation, locale: str | None, expected: str, negotiated: bool
) -> None:
    switch_on(installation, "de", "fr", "it")
    installation.has_guest(a_guest(language="fr"))
    session = installation.add_card(locale=locale)

    found = page_content(installation, session, "it", "de")

    assert (found.language, found.negotiated) == (expected, negotiated)
    installation.use_cases.open_hosted_page(key=session.link_key, accepted=["it", "de"])
    assert page_content(installation, session, "fr") == replace(found, negotiated=False)


def test_our_own_pages_work_without_a_guest_a_center_or_a_psp(installation: Installation) -> None:
    switch_on(installation, "de")
    session = installation.add_card(locale="de")
    installation.loses("guests")
    assert page_content(installation, session).language == "de"

    installation.loses("centers")
    without_psp = replace(installation.container.find_page_content(), psps={})
    found = without_psp(key=session.link_key)

    assert found is not None
    assert (found.center_name, found.psp_name, found.language) == (None, None, "en")

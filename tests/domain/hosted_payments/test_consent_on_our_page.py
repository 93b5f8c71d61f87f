"""Consent on cardonfile's own page if the PSP's page does not show the text."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta

import pytest

from adapters.psp_suite.samples import GUEST_ID
from domain.consents.given_consent import GivenConsent
from domain.hosted_payments.find_page_content import PageContent
from domain.hosted_payments.link import ClickNeeded
from domain.psps.hosted_page import Consent
from domain.psps.payment_provider import ProviderUnavailable
from domain.sessions.polling import ASK_AGAIN_AFTER
from domain.sessions.session import CardSession
from tests.builders import CENTER_ID, a_center, a_shipped_consent
from tests.installation import BASE_URL, Installation, Trouble

MINUTE = timedelta(minutes=1)
PHONE, SCANNER = "the secret of a phone", "the secret of a scanner of mails"


pytestmark = pytest.mark.installed(capabilities={"shows_consent": False, "max_consent_length": 0})


def page_content(
    installation: Installation, session: CardSession, *accepted: str, browser: str | None = None
) -> PageContent:
    found = installation.container.find_page_content()(
        key=session.link_key, browser=browser, accepted=accepted
    )
    assert found is not None
    return found


def shown(installation: Installation, session: CardSession, *accepted: str) -> Consent:
    """Return what our page asks the guest to agree to."""
    consent = page_content(installation, session, *accepted).consent
    assert consent is not None
    return consent


def click(
    installation: Installation,
    session: CardSession,
    agreed: Consent | None,
    *accepted: str,
    browser: str = PHONE,
) -> str:
    return installation.use_cases.open_hosted_page(
        key=session.link_key,
        by_click=True,
        agreed=agreed.digest if agreed else None,
        browser=browser,
        accepted=accepted,
    )


def reopen(installation: Installation, session: CardSession, browser: str = PHONE) -> str:
    return installation.use_cases.open_hosted_page(key=session.link_key, browser=browser)


def agree(installation: Installation, session: CardSession, browser: str = PHONE) -> str:
    return click(installation, session, shown(installation, session), browser=browser)


def given(installation: Installation) -> GivenConsent:
    (account,) = installation.accounts()
    (consent,) = installation.consents(account)
    return consent


def test_opening_a_link_does_not_count_as_consent(installation: Installation) -> None:
    session = installation.add_card()

    for _ in range(2):
        with pytest.raises(ClickNeeded):
            installation.open_page(session)

    assert installation.session(session.token_id) == session
    assert installation.provider.calls == []
    assert shown(installation, session) == a_shipped_consent()


@pytest.mark.parametrize("agreed", [None, a_shipped_consent(language="de")], ids=["none", "other"])
def test_agreeing_to_a_text_that_was_not_shown_does_not_count_as_consent(
    installation: Installation, agreed: Consent | None
) -> None:
    session = installation.add_card()

    with pytest.raises(ClickNeeded):
        click(installation, session, agreed)

    assert installation.session(session.token_id) == session


def test_the_guests_consent_is_stored_before_the_psp_is_called(installation: Installation) -> None:
    session = installation.add_card()
    agreed_at = installation.clock.now()
    found = []
    installation.provider.before = lambda *_: found.append(installation.session(session.token_id))

    address = agree(installation, session)

    assert address.startswith(f"{BASE_URL}/fake-psp/pages/")
    (before,) = found
    assert before.current_attempt.page is None
    assert before.current_attempt.agreed_at == agreed_at
    assert before.current_attempt.request.consent == a_shipped_consent()


def test_the_guest_has_to_agree_once_in_each_browser(installation: Installation) -> None:
    session = installation.add_card()
    address = agree(installation, session, SCANNER)
    installation.clock.advance(MINUTE)

    for browser in (None, PHONE):
        with pytest.raises(ClickNeeded):
            installation.use_cases.open_hosted_page(key=session.link_key, browser=browser)
        assert page_content(installation, session, browser=browser).consent == a_shipped_consent()

    assert agree(installation, session) == address
    agreed_at = installation.clock.now()
    installation.clock.advance(MINUTE)
    # The guest reloads the link in another tab, and clicks again in the first tab.
    again = [reopen(installation, session), click(installation, session, a_shipped_consent())]
    assert again == [address, address]
    assert installation.session(session.token_id).current_attempt.agreed_at == agreed_at
    assert page_content(installation, session, browser=PHONE).consent is None


def test_the_stored_consent_does_not_identify_the_browser(installation: Installation) -> None:
    sessions = [installation.add_card() for _ in range(2)]
    for session in sessions:
        agree(installation, session)

    first, second = (installation.session(each.token_id).current_attempt for each in sessions)
    assert first.agreed_in != second.agreed_in
    assert all(
        PHONE.encode() not in file.read_bytes() for file in installation.database.parent.iterdir()
    )


def test_the_guest_need_not_agree_again_after_a_psp_outage(installation: Installation) -> None:
    session = installation.add_card()
    installation.provider.have(Trouble.BEFORE_IT_ACTED)
    with pytest.raises(ProviderUnavailable):
        agree(installation, session)
    installation.provider.recover()
    installation.clock.advance(ASK_AGAIN_AFTER)

    assert reopen(installation, session).startswith(BASE_URL)


def test_a_new_page_is_used_even_if_the_guest_agreed_in_another_browser_while_it_was_created(
    installation: Installation,
) -> None:
    session = installation.add_card()

    def agree_though_the_psp_is_away(browser: str) -> None:
        installation.provider.have(Trouble.BEFORE_IT_ACTED)
        with pytest.raises(ProviderUnavailable):
            agree(installation, session, browser)
        installation.provider.recover()

    agree_though_the_psp_is_away(SCANNER)
    installation.clock.advance(MINUTE)
    installation.provider.meanwhile["start"] = lambda: agree_though_the_psp_is_away(PHONE)
    installation.settle(session.token_id)
    installation.clock.advance(MINUTE)

    address = reopen(installation, session, PHONE)

    page = installation.session(session.token_id).current_attempt.page
    assert page is not None
    assert page.address == address
    with installation.storage.read() as unit:
        psp_account = session.configuration.psp_account
        assert unit.guest_references.of(GUEST_ID) == [(psp_account, page.guest_reference)]


def test_the_guest_has_to_agree_again_for_a_new_hosted_page(installation: Installation) -> None:
    installation.configure(link_minutes=3 * 24 * 60)
    session = installation.add_card(link_minutes=3 * 24 * 60)
    address = agree(installation, session)
    installation.container.set_consent()(CENTER_ID, "en", own="Another text.")
    installation.clock.advance(timedelta(hours=24))

    with pytest.raises(ClickNeeded):
        reopen(installation, session)

    assert shown(installation, session).text == "Another text."
    installation.clock.advance(ASK_AGAIN_AFTER)
    assert agree(installation, session) != address


def test_the_consent_of_a_stored_card_has_the_time_of_the_click(installation: Installation) -> None:
    installation.container.set_consent()(CENTER_ID, "de")
    session = installation.add_card(locale="de")
    agree(installation, session)
    agreed_at = installation.clock.now()
    installation.clock.advance(MINUTE)
    installation.type_card_and_return(session)

    consent, text = given(installation), a_shipped_consent(language="de")
    assert (consent.version, consent.language, consent.text, consent.agreed_at) == (
        *(text.version, "de", text.text, agreed_at),
    )
    # The account keeps the time when the card was typed, to put later results in order.
    (account,) = installation.accounts()
    assert account.consented_at == agreed_at + MINUTE


def test_a_click_after_the_card_was_typed_does_not_change_the_time_of_the_consent(
    installation: Installation,
) -> None:
    session = installation.add_card()
    agree(installation, session)
    agreed_at = installation.clock.now()
    installation.clock.advance(MINUTE)
    installation.type_card(session)
    installation.provider.have(Trouble.BEFORE_IT_ACTED)
    installation.clock.advance(MINUTE)
    agree(installation, session, SCANNER)
    installation.provider.recover()
    installation.return_to_shop(session)
    installation.clock.advance(MINUTE)
    installation.reconcile()

    assert given(installation).agreed_at == agreed_at


def set_another_text(installation: Installation) -> None:
    installation.container.set_consent()(CENTER_ID, "en", own="Another text.")


def set_the_same_as_an_own_text(installation: Installation) -> None:
    installation.container.set_consent()(CENTER_ID, "en", own=a_shipped_consent().text)


def rename_the_center(installation: Installation) -> None:
    installation.has_center(replace(a_center(), name="Forest Spa"))


@pytest.mark.parametrize(
    "change", [set_another_text, set_the_same_as_an_own_text, rename_the_center]
)
def test_a_new_consent_text_is_shown_if_the_text_changed_while_the_guest_was_reading(
    installation: Installation, change: Callable[[Installation], None]
) -> None:
    session = installation.add_card()
    read = shown(installation, session)
    change(installation)

    with pytest.raises(ClickNeeded):
        click(installation, session, read)

    assert installation.session(session.token_id) == session
    changed = shown(installation, session)
    agree(installation, session)
    attempt = installation.session(session.token_id).current_attempt
    assert attempt.request.consent == changed != read


def test_the_psps_page_is_in_the_language_of_the_agreed_text(installation: Installation) -> None:
    for language in ("de", "fr"):
        # Words that exist in both languages.
        installation.container.set_consent()(CENTER_ID, language, own="Restaurant, Service: OK!")
    session = installation.add_card(locale="auto")
    read = shown(installation, session, "de")
    assert read.language == "de"

    # In another browser, the guest has to read the text in the language of that browser first.
    with pytest.raises(ClickNeeded):
        click(installation, session, read, "fr")

    click(installation, session, read, "de")
    assert installation.session(session.token_id).current_attempt.request.language == "de"
    assert page_content(installation, session, "fr").language == "de"


@pytest.mark.installed(
    capabilities={"shows_consent": False, "locales": frozenset({"en", "de", "pl"})}
)
def test_a_consent_text_in_an_unsupported_language_is_not_shown(installation: Installation) -> None:
    done = installation.container.set_consent()(CENTER_ID, "pl", own="Zgoda.")

    assert done.not_shown_by == "fake"
    assert shown(installation, installation.add_card(locale="pl")).language == "en"


def test_a_process_without_the_psps_plugin_still_requires_the_guest_to_click(
    installation: Installation,
) -> None:
    open_page = installation.use_cases.open_hosted_page
    unaware = replace(open_page, choose_consent=replace(open_page.choose_consent, psps={}))
    session = installation.add_card()
    installation.provider.have(Trouble.BEFORE_IT_ACTED)
    with suppress(ProviderUnavailable, ClickNeeded):
        unaware(key=session.link_key)
    installation.provider.recover()
    # The worker has the plug-in, and creates the attempt's page.
    installation.clock.advance(MINUTE)
    installation.reconcile()

    with pytest.raises(ClickNeeded):
        unaware(key=session.link_key)


def test_the_consent_that_applies_to_a_card_is_listed_first(installation: Installation) -> None:
    earlier = installation.add_card()
    agree(installation, earlier)
    installation.clock.advance(MINUTE)
    installation.container.set_consent()(CENTER_ID, "en", own="Another text.")
    later = installation.add_card()
    agree(installation, later)
    for session, expiry in ((later, (9, 2031)), (earlier, (9, 2032))):
        installation.clock.advance(MINUTE)
        installation.type_card_and_return(session, expiry=expiry)

    (account,) = installation.accounts()
    first, second = installation.consents(account)
    assert (first.version, first.token_id) == (account.consent_version, earlier.token_id)
    assert second.text == "Another text."

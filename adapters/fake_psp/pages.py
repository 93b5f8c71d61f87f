"""The hosted pages of the fake PSP: the card form, the bank's challenge, and error pages."""

from __future__ import annotations

import hmac
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl

import falcon

from adapters.catalogs import accepted_languages, catalog
from adapters.fake_psp import countries
from adapters.fake_psp.cards import (
    BILLING_FIELDS,
    NEEDED,
    TEST_CARDS,
    UNCLEAN,
    WRONG_ZIPCODE,
    EntryRefused,
    read_entry,
    repeatable,
)
from adapters.fake_psp.database import PspUnavailable
from adapters.fake_psp.psp import (
    MAX_CARD_ATTEMPTS,
    CardRefusal,
    FakePsp,
    OutOfOrder,
    PageState,
    PspPage,
    Unknown,
)
from adapters.guest_pages import Files, MaskedGuest, add_style, form_action, is_sent_from, templates
from domain.billing import MAX_LENGTHS
from domain.redirects import redirect_origin

MAX_FORM_BYTES: Final = 16 * 1024

_HERE: Final = Path(__file__).parent
_STYLE: Final = "/fake-psp/style"
_TEMPLATES: Final = templates("adapters.fake_psp", _STYLE)


def add_routes(app: falcon.App[falcon.Request, falcon.Response], psp: FakePsp) -> None:
    """Add the pages and their static files to an app, under `/fake-psp/`."""
    pages = _CardPages(psp)
    app.add_route("/fake-psp/pages/{reference}", pages)
    app.add_route("/fake-psp/pages/{reference}/challenge", pages, suffix="challenge")
    app.add_route("/fake-psp/static/{name}", Files(_HERE / "static"))
    add_style(app, _STYLE)
    for kind in (_Problem, Unknown, PspUnavailable):
        app.add_error_handler(kind, pages.show_problem)


class _Problem(Exception):
    """A problem that an error page explains to the guest.

    `key` names a table in the catalogs. This table contains the texts of the page.
    """

    def __init__(
        self,
        status: HTTPStatus,
        key: str,
        page: PspPage | None = None,
        *,
        again: bool = False,
        retry_after_seconds: int | None = None,
        kept: str | None = None,
    ) -> None:
        """Set the status and the content of the error page.

        With `again`, the error page has a link to the form of `page`. If the page has already
        stored another card, `kept` names that card, such as "Visa •••• 4242". The guest can then
        continue with it.
        """
        self.status = status
        self.key = key
        self.page = page
        self.again = again
        self.retry_after_seconds = retry_after_seconds
        self.kept = kept
        super().__init__(key)


class _CardPages:
    """The card form, the bank's challenge, and the error pages."""

    def __init__(self, psp: FakePsp) -> None:
        self._psp = psp
        self._origin = redirect_origin(psp.base_url)

    def on_get(self, _req: falcon.Request, resp: falcon.Response, reference: str) -> None:
        """Show the card form."""
        page = self._psp.page(reference)
        if page.state is not PageState.OPEN:
            self._redirect(resp, page)
        else:
            self._show_form(resp, page, page.typed or _prefilled(page), {})

    def on_post(self, req: falcon.Request, resp: falcon.Response, reference: str) -> None:
        """Try the card that the guest has typed into the form."""
        page = self._psp.page(reference)
        typed = self._read_form(req, page)
        if page.state is PageState.CLOSED:
            self._redirect(resp, page)
            return
        try:
            entry = read_entry(typed, avs=page.request.avs, now=self._psp.clock.now())
            # If the page already has a card, that card is kept.
            page = self._psp.try_card(reference, entry)
            if page.state is PageState.COMPLETED and not self._psp.is_card_of(page, entry):
                raise _another_card_stored(page)
        except EntryRefused as refused:
            if page.is_over:
                raise _another_card_stored(page) from None
            resp.status = HTTPStatus.UNPROCESSABLE_ENTITY
            self._show_form(resp, page, repeatable(typed), refused.errors)
            return
        except OutOfOrder:
            raise _Problem(
                HTTPStatus.SERVICE_UNAVAILABLE,
                "form_problem.out_of_order",
                page,
                again=True,
                retry_after_seconds=60,
            ) from None
        # After a refusal, the browser is redirected to the form, so that a reload does not try the
        # card once more.
        self._redirect(resp, page)

    def on_get_challenge(self, _req: falcon.Request, resp: falcon.Response, reference: str) -> None:
        """Show the bank's challenge."""
        page = self._psp.page(reference)
        if page.state is PageState.CHALLENGED:
            self._show(resp, "challenge.html", page, has_form=True)
        else:
            self._redirect(resp, page)

    def on_post_challenge(self, req: falcon.Request, resp: falcon.Response, reference: str) -> None:
        """Confirm the challenge or let it fail, as the guest chose."""
        page = self._psp.page(reference)
        typed = self._read_form(req, page)
        if typed.get("attempt") != str(page.attempts):
            # Another card was tried in another tab.
            if page.state is PageState.COMPLETED:
                raise _another_card_stored(page)
        elif typed.get("answer") in ("confirm", "fail"):
            page = self._psp.answer_challenge(reference, confirmed=typed["answer"] == "confirm")
        self._redirect(resp, page)

    def show_problem(
        self, req: falcon.Request, resp: falcon.Response, error: Exception, _params: object
    ) -> None:
        """Show the error page."""
        if isinstance(error, _Problem):
            problem = error
        elif isinstance(error, Unknown):
            problem = _Problem(HTTPStatus.NOT_FOUND, "form_problem.unknown")
        else:
            problem = _Problem(
                HTTPStatus.SERVICE_UNAVAILABLE, "form_problem.unavailable", retry_after_seconds=60
            )
        resp.status = problem.status
        if problem.retry_after_seconds is not None:
            resp.set_header("Retry-After", str(problem.retry_after_seconds))
        self._show(
            resp,
            "problem.html",
            problem.page,
            accepted=accepted_languages(req.get_header("Accept-Language")),
            problem=problem,
            max_cards=MAX_CARD_ATTEMPTS,
            kept=problem.kept,
        )

    def _redirect(self, resp: falcon.Response, page: PspPage) -> None:
        """Redirect to the address that fits the state of `page`.

        An open page leads to the form, a challenged page to the challenge, and a completed page
        back to the shop. Raises _Problem if the page is closed.
        """
        match page.state:
            case PageState.CLOSED if page.refused_cards >= MAX_CARD_ATTEMPTS:
                raise _Problem(HTTPStatus.GONE, "form_problem.too_many", page)
            case PageState.CLOSED:
                raise _Problem(HTTPStatus.GONE, "form_problem.ended", page)
            case PageState.COMPLETED:
                address = page.request.return_uri
            case PageState.CHALLENGED:
                address = f"/fake-psp/pages/{page.reference}/challenge"
            case _:
                address = f"/fake-psp/pages/{page.reference}"
        resp.status = HTTPStatus.SEE_OTHER
        resp.set_header("Location", address)
        _protect(resp)

    def _show_form(
        self,
        resp: falcon.Response,
        page: PspPage,
        values: Mapping[str, str],
        faults: Mapping[str, str],
    ) -> None:
        self._show(
            resp,
            "card.html",
            page,
            has_form=True,
            values=values,
            errors=_messages(page, faults),
            checked=NEEDED,
            countries=countries.NAMES,
            without_postal_codes=countries.WITHOUT_POSTAL_CODES,
            max_lengths=MAX_LENGTHS,
            test_cards=TEST_CARDS,
            wrong_zipcode=WRONG_ZIPCODE,
            this_month=self._psp.clock.now().strftime("%Y%m"),
        )

    def _show(
        self,
        resp: falcon.Response,
        template: str,
        page: PspPage | None,
        *,
        has_form: bool = False,
        accepted: Sequence[str] = (),
        **values: object,
    ) -> None:
        """Respond with the template `template` in the language of `page`.

        If `page` is None, the language is chosen from `accepted`, the languages that the browser
        accepts.
        """
        if page is None:
            resp.append_header("Vary", "Accept-Language")
            t = catalog(*accepted)
        else:
            t = catalog(page.request.language)
        resp.content_type = falcon.MEDIA_HTML
        resp.set_header("Content-Language", t.language)
        resp.text = _TEMPLATES.get_template(template).render(
            t=t,
            page=page,
            center=page and page.request.center_name,
            color=page and page.request.color,
            logo_uri=page and page.request.logo_uri,
            guest=page
            and page.request.guest_name
            and MaskedGuest(page.request.guest_name, page.request.guest_email),
            form_token=self._psp.form_token(page.reference) if page and has_form else None,
            **values,
        )
        _protect(resp, has_form=has_form)

    def _read_form(self, req: falcon.Request, page: PspPage) -> Mapping[str, str]:
        if not is_sent_from(self._origin, req):
            raise _foreign_form(page)
        media_type = (req.content_type or "").partition(";")[0].strip().lower()
        if media_type != falcon.MEDIA_URLENCODED:
            raise _Problem(
                HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "form_problem.unreadable", page, again=True
            )
        body = req.bounded_stream.read(MAX_FORM_BYTES + 1)
        if len(body) > MAX_FORM_BYTES:
            raise _Problem(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "form_problem.too_long", page, again=True
            )
        # Invalid UTF-8 becomes lone surrogates, which the checks of each field refuse.
        text = body.decode(errors="surrogateescape")
        typed = dict(parse_qsl(text, keep_blank_values=True, errors="surrogateescape"))
        sent = typed.get("form_token", "").encode(errors="replace")
        if not hmac.compare_digest(sent, self._psp.form_token(page.reference).encode()):
            raise _foreign_form(page)
        return typed


def _protect(resp: falcon.Response, *, has_form: bool = False) -> None:
    """Set the security headers of a page, in addition to those of every response."""
    resp.set_header("Cache-Control", "no-store")
    # Without a referrer, browsers send a form with the origin "null".
    resp.set_header("Referrer-Policy", "same-origin" if has_form else "no-referrer")
    resp.set_header(
        "Content-Security-Policy",
        "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; "
        f"{form_action(has_form=has_form)}frame-ancestors 'none'; base-uri 'none'",
    )


def _foreign_form(page: PspPage) -> _Problem:
    return _Problem(HTTPStatus.FORBIDDEN, "form_problem.from_elsewhere", page, again=True)


def _another_card_stored(page: PspPage) -> _Problem:
    card = page.card
    # Non-breaking spaces keep the digits beside the words that they belong to.
    kept = (
        f"{card.card_logo.capitalize()}\N{NO-BREAK SPACE}••••\N{NO-BREAK SPACE}{card.last_four}"
        if card
        else None
    )
    return _Problem(HTTPStatus.CONFLICT, "form_problem.other_kept", page, kept=kept)


def _prefilled(page: PspPage) -> Mapping[str, str]:
    billing = page.request.billing_info
    return {name: getattr(billing, name, None) or "" for name in BILLING_FIELDS}


def _messages(page: PspPage, faults: Mapping[str, str]) -> Mapping[str, str]:
    """Return the messages for the form, each under the name of the field beside which it is shown.

    If there are `faults`, they are the messages for the wrong fields. If there are no faults, but
    the page refused a card, the only message is the reason for the refusal.
    """
    t = catalog(page.request.language)
    if faults:
        return {field: t.text(_fault_key(field, fault)) for field, fault in faults.items()}
    if page.refusal is None:
        return {}
    field = "zipcode" if page.refusal is CardRefusal.WRONG_ADDRESS else "number"
    return {field: t.text(f"form.refused.{page.refusal}")}


def _fault_key(field: str, fault: str) -> str:
    return "form.fault.unclean" if fault == UNCLEAN else f"form.fault.{field}.{fault}"

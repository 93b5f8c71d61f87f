"""Find problems with an installation. The service does not have to run."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import wait
from contextlib import suppress
from datetime import timedelta
from email.message import Message
from functools import partial
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias
from urllib.parse import urlsplit

from adapters.http.middleware import REQUEST_ID, SECURITY_HEADERS
from adapters.outbound_http import CERTIFICATE_NOT_TRUSTED, Connection, begin, reason_of
from adapters.psp.findings import Diagnosis, Finding, compare_clocks, ok, problem, unknown
from adapters.sql.errors import DatabaseUnusable
from domain.audit.entry import Action
from domain.centers.configure_payments import find_missing
from domain.consents.consent_text import consents_at
from domain.errors import ServiceUnavailable
from domain.events.event import EventEndpoint
from domain.events.event_sender import EventNotSent
from domain.identifiers import DEFAULT_MERCHANT_ACCOUNT, MerchantAccount, ProviderName
from domain.pagination import ALL, PageRequest
from domain.psps.payment_provider import PaymentProvider, ProviderRefused, ProviderUnavailable
from domain.psps.recognize_merchant import AnotherMerchant, MerchantOfOriginal
from domain.retries import CLOCKS_DIFFER_BY, Waiting, is_alarming
from domain.storage import RecordUnreadable
from entrypoints import databases, serve
from entrypoints.container import Container, build, signing_keys
from entrypoints.plain_errors import NO_WORKER
from entrypoints.psps import distribution_of
from entrypoints.settings import DEFAULT_HOST, DEFAULT_PORT, Setting, Settings
from entrypoints.settings_error import SettingsError

if TYPE_CHECKING:
    from adapters.postgresql.replication import Replication

SECONDS: Final = 10
"""The time limit for the check of the database. The same limit applies afterwards to all other
checks together.
"""
REQUEST_SECONDS: Final = 5
MAX_BODY_BYTES: Final = 64 * 1024
OLDEST_BACKUP: Final = timedelta(days=2)
ENOUGH_FREE_BYTES: Final = 1024**3
ENOUGH_FREE_SHARE: Final = 0.1
"""A disk has enough room if this share of it, or ENOUGH_FREE_BYTES, is free."""

_LOSES: Final = "loses the last sessions, cards and removals"
_STRICT: Final = "Patroni: synchronous_mode and synchronous_mode_strict"

_PROBE: Final = "cardonfile-doctor"

Check: TypeAlias = Callable[[Container], Iterable[Finding]]


def examine(environment: Mapping[str, str]) -> list[Finding]:
    """Run every check, and return the findings.

    If a check fails or hangs, that is reported as a finding, and the other checks still run.
    """
    try:
        container = build(Settings.read(environment))
    except SettingsError as error:
        return [problem("settings", str(error))]
    container.http_event_sender.add_kwargs(total_seconds=REQUEST_SECONDS)
    checks: dict[str, Check] = {"settings": partial(_settings, environment), **_CHECKS}
    checks |= {name: partial(_psp, name=name) for name in container.settings().psps}
    found = _made(container, {"database": _database}, SECONDS)
    if all(finding.diagnosis is Diagnosis.OK for finding in found):
        checks |= _CHECKS_OF_RECORDS
    else:
        found.append(unknown("records", "not checked, because the database cannot be used"))
    found += _made(container, checks, SECONDS)
    wait([begin(lambda: container.storage().close())], SECONDS)
    return found


def examine_psp(environment: Mapping[str, str], name: ProviderName) -> list[Finding]:
    """Run the checks of one PSP, and return the findings.

    They include the PSP's distribution and the URLs of its webhooks. Raises SettingsError if the
    PSP is not installed.
    """
    found = [ok(name, distribution_of(name))]
    try:
        settings = Settings.read(environment)
    except SettingsError as error:
        return [*found, problem("settings", str(error))]
    if name not in settings.psps:
        return [*found, problem(name, f"not enabled: add it to {Setting.PSPS}")]
    checks: dict[str, Check] = {
        "settings": partial(_settings, environment),
        "webhooks": partial(_webhooks, name=name),
        name: partial(_psp, name=name),
    }
    return found + _made(build(settings), checks, SECONDS)


def _made(container: Container, checks: Mapping[str, Check], seconds: float) -> list[Finding]:
    """Run checks at the same time, for at most `seconds`, and return their findings."""
    found: list[Finding] = []
    made = {about: begin(partial(_all, check, container)) for about, check in checks.items()}
    ends_at = time.monotonic() + seconds
    for about, findings in made.items():
        try:
            found += findings.result(max(0.0, ends_at - time.monotonic()))
        except TimeoutError:
            found.append(problem(about, f"no result within {seconds} seconds: find out what hangs"))
        except (SettingsError, serve.ServeError) as error:
            found.append(problem(about, str(error)))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the other checks go on
            # The text of any other exception may contain a secret.
            fault = f"the check itself failed ({type(error).__name__}): report this as a bug"
            sentence = databases.in_a_sentence(error)
            if isinstance(error, OSError) and error.filename:
                sentence = f"{error.filename}: {error.strerror}"
            found.append(problem(about, sentence) if sentence else unknown(about, fault))
    return found


def _all(check: Check, container: Container) -> list[Finding]:
    return list(check(container))


def _judged(about: str, fault: str | None, fine: str) -> Finding:
    return problem(about, fault) if fault else ok(about, fine)


def _settings(environment: Mapping[str, str], _: Container) -> Iterator[Finding]:
    Settings.read_to_serve(environment, host=DEFAULT_HOST, port=DEFAULT_PORT)
    yield ok("settings", "the service can use them")


def _database(container: Container) -> Iterator[Finding]:
    database = container.settings().database
    databases.require_up_to_date(database)
    container.storage().check()
    yield ok("database", f"{databases.name_of(database)} is up to date, and can be written to")


def _file_modes(container: Container) -> Iterator[Finding]:
    settings = container.settings()
    paths = (settings.database, *(psp.database for psp in settings.psps.values()))
    files = ", ".join(file for path in paths if path for file in databases.open_to_all(path))
    fault = files and f"every user of this machine may read or write {files}: chmod 600"
    yield _judged("file modes", fault, "no database file is open to every user of this machine")


def _disk(container: Container) -> Iterator[Finding]:
    settings = container.settings()
    paths = [settings.database, settings.erasures_file]
    paths += [psp.database for psp in settings.psps.values()]
    for folder in {path.absolute().parent for path in paths if isinstance(path, Path)}:
        usage = shutil.disk_usage(folder)
        free = f"{usage.free // 2**20:,} MiB are free in {folder}"
        is_enough = usage.free >= min(ENOUGH_FREE_BYTES, usage.total * ENOUGH_FREE_SHARE)
        yield _judged("disk", None if is_enough else f"only {free}: make room", free)


def _public_address(container: Container) -> Iterator[Finding]:
    about, url = "public address", container.settings().public_base_url
    connection = Connection(
        url,
        total_seconds=REQUEST_SECONDS,
        connect_seconds=REQUEST_SECONDS,
        max_body_bytes=MAX_BODY_BYTES,
    )
    try:
        with connection:
            # Some servers treat this as the header X-Request-ID, which the service returns.
            response = connection.request("GET", "/healthz", {"X_Request_ID": _PROBE}, None)
            is_alive = response.status == 200 and b'"ok"' in response.read(MAX_BODY_BYTES)
    except TimeoutError:
        yield unknown(about, f"{url} does not respond to this machine: try it from another machine")
        return
    except (OSError, HTTPException) as error:
        advice = f"start `cardonfile serve`, check the proxy, or correct {Setting.PUBLIC_BASE_URL}"
        yield problem(about, f"{url} cannot be reached ({reason_of(error)}): {advice}")
        return
    if response.status in (502, 503, 504):
        advice = "start `cardonfile serve`, or check the proxy"
    else:
        advice = f"check the proxy, or correct {Setting.PUBLIC_BASE_URL}"
    fault = f"{url}/healthz responds {response.status}, which is not the response of the service: {advice}"
    yield _judged(about, None if is_alive else fault, f"{url} leads to the service")
    if is_alive:
        yield _judged("proxy", _fault_of_proxy(response.headers), "headers arrive unchanged")
    if not container.settings().is_on_loopback:
        yield compare_clocks(response.headers["date"], container.clock().now(), of=url)


def _fault_of_proxy(headers: Message) -> str | None:
    """Return a sentence about a header that the proxy wrongly changes or passes on, or None."""
    if headers.get(REQUEST_ID) == _PROBE:
        return (
            "the proxy passes headers with _ in their names, so a client could forge X-Forwarded-For by "
            "X_Forwarded_For: make the proxy drop them (nginx: underscores_in_headers off)"
        )
    if headers.get_all("Referrer-Policy") != [SECURITY_HEADERS["Referrer-Policy"]]:
        return (
            "the proxy changes the header Referrer-Policy, and with no-referrer browsers hide where a "
            "form was sent from: make the proxy pass it on unchanged"
        )
    return None


def _trusted_proxy(container: Container) -> Iterator[Finding]:
    settings, name = container.settings(), Setting.TRUSTED_PROXY
    fault = f"{name} is not set, so all clients count as one: set it to the address of the proxy"
    is_fine = settings.trusted_proxy or settings.is_on_loopback
    fine = "no proxy is needed on this machine"
    if settings.trusted_proxy:
        fine = f"X-Forwarded-For is trusted from {', '.join(map(str, settings.trusted_proxy))}"
    yield _judged("trusted proxy", None if is_fine else fault, fine)


def _rate_limits(container: Container) -> Iterator[Finding]:
    if container.settings().rate_limit_storage is not None:
        fault = f"Redis cannot be used: start it, or correct {Setting.RATE_LIMIT_STORAGE}"
        is_there = container.rate_limits().check_storage()
        yield _judged("rate limits", None if is_there else fault, "Redis counts requests")


def _identity_provider(container: Container) -> Iterator[Finding]:
    jwt = container.settings().jwt
    if jwt is None:
        return
    keys = signing_keys(jwt)
    from adapters.json_web_tokens import KeysUnreachable

    about, url = "identity provider", jwt.keys_url
    try:
        count = len(keys.fetch())
    except KeysUnreachable as error:
        advice = f"correct {Setting.JWT_KEYS}"
        if str(error) == CERTIFICATE_NOT_TRUSTED:
            advice = "renew its certificate, or make this machine trust the issuer"
        yield problem(about, f"{url} cannot be used ({error}): {advice}")
    else:
        yield ok(about, f"{url} has {count} usable keys")


def _psp(container: Container, name: ProviderName) -> Iterator[Finding]:
    settings = container.settings()
    psp = settings.psps[name]
    if psp.takes_test_cards and not settings.is_on_loopback:
        advice = f"configure its centers for another PSP, then unset {psp.plugin.test_setting}"
        yield problem("test cards", f"{name} takes test cards at a public address: {advice}")
    check = psp.plugin.check
    if not psp.is_set_up or check is None:
        return
    adapter = psp.make(container.clock(), container.ids())

    def find(account: MerchantAccount, _: Container) -> list[Finding]:
        found = list(check(adapter, account, _webhooks_url(settings, name, account)))
        if (wrong := _wrong_merchant(container, adapter, name, account)) is not None:
            found = [each for each in found if each.about != wrong.about] + [wrong]
        return [finding._replace(about=f"{name}/{account} {finding.about}") for finding in found]

    accounts = {f"{name}/{each}": partial(find, each) for each in psp.accounts() or ()}
    yield from _made(container, accounts, SECONDS - 1)


def _wrong_merchant(
    container: Container, adapter: PaymentProvider, name: ProviderName, account: MerchantAccount
) -> Finding | None:
    """Return a problem if `RecognizeMerchant` refuses the keys of the merchant account."""
    about = "keys"
    try:
        databases.require_up_to_date(container.settings().database)
    except (DatabaseUnusable, ServiceUnavailable):
        # Nothing is stored yet, or the check of the database reports the problem.
        return None
    identity: str | None = None
    try:
        with suppress(ProviderRefused):
            identity = adapter.identity(account)
        container.recognize_merchant().compare(name, account, identity)
    except MerchantOfOriginal as wrong:
        what = (
            f"the database is a copy, and the keys belong to the original's merchant {wrong.given}"
        )
        if wrong.given is None:
            what = "the database is a copy, and the keys do not show which merchant they belong to"
        return problem(
            about, f"{what}: give the copy keys of another merchant, under another account name"
        )
    except AnotherMerchant as wrong:
        given = wrong.given or "an unknown merchant"
        advice = "set the right keys, or use another account name (configure-payments --account)"
        return problem(
            about, f"the keys belong to {given}, but the cards belong to {wrong.kept}: {advice}"
        )
    except ProviderUnavailable:
        return None
    return None


def _webhooks(container: Container, name: ProviderName) -> Iterator[Finding]:
    settings = container.settings()
    psp = settings.psps[name]
    accounts = (psp.accounts() if psp.is_set_up else ()) or (DEFAULT_MERCHANT_ACCOUNT,)
    for account in accounts:
        url = _webhooks_url(settings, name, account)
        yield ok(f"{name}/{account}", f"its webhooks go to {url}")
    if not psp.is_set_up:
        yield problem(name, f"not set up: {psp.how_to_set_up(DEFAULT_MERCHANT_ACCOUNT)}")
    elif psp.plugin.check is None:
        yield unknown(name, "its plugin has no check: add a card to try its keys")


def _webhooks_url(settings: Settings, name: ProviderName, account: MerchantAccount) -> str:
    of_account = "" if account == DEFAULT_MERCHANT_ACCOUNT else f"/{account}"
    return f"{settings.public_base_url}/webhooks/{name}{of_account}"


def _workers(container: Container) -> Iterator[Finding]:
    is_missing = container.read_status()().is_worker_missing
    yield _judged(
        "workers", NO_WORKER if is_missing else None, "a worker was seen in the last minute"
    )


def _centers(container: Container) -> Iterator[Finding]:
    serve.refuse_missing_psps(container)
    yield ok("centers", "their PSPs are set up")


def _languages(container: Container) -> Iterator[Finding]:
    """Find a center's languages that are switched on, but that `consents_at` leaves out."""
    psps, shipped = container.settings().psps, container.shipped_consents()
    found = []
    with container.storage().read() as unit:
        for center in unit.centers.page(None, PageRequest(size=ALL)).items:
            texts = unit.consent_texts.of(center.id)
            configuration = None
            with suppress(RecordUnreadable):
                configuration = unit.configurations.get(center.id) if texts else None
            psp = psps.get(configuration.provider) if configuration else None
            if psp is not None:
                shown = consents_at(center, texts, shipped, psp.capabilities)
                languages = (text.language for text in texts if text.language not in shown)
                found += [(center, psp.plugin.name, language) for language in languages]
    for center, name, language in found:
        off = f"cardonfile consent set --center {center.id} --language {language} --none"
        yield problem(
            "languages",
            f"{center.name}: {name}'s page does not support {language}, so guests "
            f"read another language. To switch {language} off: `{off}`",
        )
    if not found:
        yield ok("languages", "guests read every language that is switched on")


def _origin(container: Container) -> Iterator[Finding]:
    serve.refuse_another_origin(container, claims=False)
    yield ok("origin", f"the database belongs to {Setting.PUBLIC_BASE_URL}")


def _erasures(container: Container) -> Iterator[Finding]:
    serve.refuse_erased_guests(container)
    if container.settings().erasures_file is not None:
        yield ok("erasures", f"no guest in {Setting.ERASURES_FILE} is in the database")


def _accounts(container: Container) -> Iterator[Finding]:
    """Find problems with merchant accounts:

    - An account is not set up, but cards are stored there or work is left.
    - Work for an account has been waiting for the PSP for a long time.
    - The service no longer removes cards that the PSP does not know, because there are too many.
    - An account is closed, but centers use it.
    """
    status, psps = container.read_status()(), container.settings().psps
    with container.storage().read() as unit:
        standings = unit.merchant_standings.all()
        configured = unit.configurations.psp_accounts()
    closed = {each.psp_account for each in standings if each.is_closed}
    now, none = container.clock().now(), Waiting()
    in_use = {*status.unanswered, *status.erasures, *status.readings} - closed
    for account in sorted(in_use):
        name = "/".join(account)
        close = f"cardonfile psp close-account {account.provider} --account {account[1]}"
        advice = f"if the merchant account is closed permanently: `{close}`"
        work, erasures = status.unanswered.get(account, none), status.erasures.get(account, none)
        since = min(filter(None, (work.since, erasures.since)), default=None)
        waits = f"{work.items} sessions, discards and cards, and {erasures.items} erasures"
        if find_missing(psps, account) is not None:
            fault = f"not set up, but cards are stored there or work is left: {waits} are waiting"
            yield problem(name, f"{fault}; set it up, or {advice}")
        elif is_alarming(since, now):
            yield problem(
                name,
                f"{waits} have been waiting since {since:%F %T} UTC: look for `psp_away` in the "
                f"log; {advice}",
            )
        else:
            yield ok(name, "no work has been waiting for this account for a day")
    for standing in standings:
        if standing.stopped_at is not None:
            provider, merchant_account = standing.psp_account
            fault = (
                "too many cards are unknown to the PSP, so the service no longer removes such cards"
            )
            confirm = f"cardonfile psp confirm-keys {provider} --account {merchant_account}"
            advice = f"if the keys are right, run `{confirm}`"
            yield problem(f"{provider}/{merchant_account}", f"{fault}: {advice}")
    for account in sorted(configured & closed):
        fault = "closed, but centers use it: find them with `cardonfile center list`"
        yield problem("/".join(account), f"{fault}, and run `cardonfile configure-payments`")


def _redirects(container: Container) -> Iterator[Finding]:
    centers = serve.centers_that_redirect_anywhere(container)
    fault = f"redirects to any address are allowed at {centers} of the centers"
    yield _judged(
        "redirects",
        f"{fault}: {serve.NAME_ORIGINS}" if centers else None,
        "redirects are limited, or only this machine can reach the service",
    )


def _events(container: Container) -> Iterator[Finding]:
    with container.storage().read() as unit:
        endpoints = unit.event_endpoints.all()
    each_one = {f"endpoint {each.endpoint_id}": partial(_endpoint, to=each) for each in endpoints}
    yield from _made(container, each_one, SECONDS - 1)


def _endpoint(container: Container, to: EventEndpoint) -> Iterator[Finding]:
    # The rest of the URL may contain a secret.
    fault, host = None, urlsplit(to.url).netloc
    try:
        if to.is_active:
            container.http_event_sender().connect(to.url)
        else:
            advice = "remove the endpoint, and add it again if it should still receive events"
            fault = f"{host} responded 410, so the endpoint is disabled: {advice}"
    except EventNotSent as failure:
        fault = f"{host} cannot be reached ({failure}): ask its owner"
    yield _judged(f"endpoint {to.endpoint_id}", fault, f"{host} accepts connections")


def _backup(container: Container) -> Iterator[Finding]:
    with container.storage().read() as unit:
        entries = unit.audit_trail.latest(about="backup")
    now = container.clock().now()
    ages = [now - each.happened_at for each in entries if each.action is Action.BACKUP_COMPLETED]
    # A backup made while a clock was ahead must not hide for years that later backups are missing.
    made = [age for age in ages if age >= -CLOCKS_DIFFER_BY]
    advice = "run `cardonfile backup` every day"
    if made:
        text = f"the newest backup is {max(made[0], timedelta()) // timedelta(hours=1)} hours old"
        yield _judged("backup", f"{text}: {advice}" if made[0] > OLDEST_BACKUP else None, text)
    elif isinstance(container.settings().database, Path):
        yield problem("backup", f"no backup is recorded: {advice}")
    else:
        yield unknown(
            "backup",
            f"no backup is recorded: {advice}, unless the PostgreSQL server archives its log",
        )


def _replication(container: Container) -> Iterator[Finding]:
    """Find settings with which a crash or a failover would lose commits."""
    seen = databases.replication_of(container.settings().database)
    if seen is None:
        return
    about, set_to = "synchronous commit", f"{seen.synchronous_commit} (set by: {seen.set_by})"
    if seen.synchronous_commit == "off":
        fault = "a crash loses the last commits of programs other than the service"
        yield problem(about, f"{set_to}: {fault}: set it to on")
    if seen.synchronous_commit == "local" and seen.standbys:
        fault = f"commits do not wait for the standbys, so a failover {_LOSES}"
        yield problem(about, f"{set_to}: {fault}: set it to on")
    yield from _standbys(seen)


def _standbys(seen: Replication) -> Iterator[Finding]:
    """Find out from the state of the standbys whether a failover would lose commits."""
    about = "replication"
    names = ", ".join(each.name for each in seen.standbys if each.name) or "that are attached"
    lagging = [each.name for each in seen.standbys if each.sync_state in ("async", "potential")]
    if seen.standbys and not seen.waits_for:
        fault = f"commits do not wait for the standbys {names}, so a failover {_LOSES}"
        yield problem(about, f"{fault}: set synchronous_standby_names ({_STRICT})")
    elif seen.waits_for and not seen.standbys:
        fault = f"no standby is connected, so commits wait for {seen.waits_for}"
        yield problem(about, f"{fault} and requests get 503: start the standbys")
    elif seen.missing and not seen.standbys:
        fault = (
            f"{seen.missing} standbys are not connected, and commits do not wait for "
            f"them, so a failover {_LOSES}"
        )
        yield problem(
            about, f"{fault}: start the standbys, and make commits wait for them ({_STRICT})"
        )
    elif not seen.standbys:
        yield ok(about, "no standby is connected, and commits do not wait for standbys")
    elif None in (each.sync_state for each in seen.standbys):
        fault = "the database role may not read whether the standbys are synchronous"
        yield unknown(about, f"{fault}: as a superuser, run GRANT pg_monitor TO the role")
    elif lagging:
        finding = problem if len(lagging) == len(seen.standbys) else unknown
        to = " or ".join(map(str, lagging))
        fault = f"a failover to the asynchronous standby {to} {_LOSES}"
        advice = "add it to synchronous_standby_names (Patroni: synchronous_node_count)"
        yield finding(about, f"{fault}: {advice}, or make sure that it never takes over")
    elif "quorum" in (each.sync_state for each in seen.standbys):
        some = f"commits wait only for some of the standbys {names}"
        fault = f"{some}, so a failover to another of them {_LOSES}"
        yield unknown(about, f"{fault}: make sure that only a standby with all commits takes over")
    elif seen.synchronous_commit != "local":
        strict = "SQL does not show whether they also wait if no standby is connected"
        advice = "see Patroni's setting synchronous_mode_strict"
        yield ok(about, f"commits wait for the standbys {names}. {strict}: {advice}")


_CHECKS: Final[Mapping[str, Check]] = {
    "file modes": _file_modes,
    "disk": _disk,
    "public address": _public_address,
    "trusted proxy": _trusted_proxy,
    "rate limits": _rate_limits,
    "identity provider": _identity_provider,
}
_CHECKS_OF_RECORDS: Final[Mapping[str, Check]] = {
    "workers": _workers,
    "centers": _centers,
    "languages": _languages,
    "origin": _origin,
    "erasures": _erasures,
    "accounts": _accounts,
    "redirects": _redirects,
    "events": _events,
    "backup": _backup,
    "replication": _replication,
}

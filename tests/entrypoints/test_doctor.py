"""What `cardonfile doctor` reports. Each test also looks for secrets in the report."""

from __future__ import annotations

import socket
import ssl
import stat
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any, Final

import pytest
import trustme

from adapters.psp.findings import Diagnosis, Finding
from adapters.psp_suite.samples import GUEST_ID, NOW
from adapters.sqlite.storage import SqliteStorage
from adapters.stripe.plugin import NAME as STRIPE
from adapters.system import SystemClock
from domain.audit.entry import Action
from domain.centers.payment_configuration import PaymentConfiguration
from domain.identifiers import DEFAULT_MERCHANT_ACCOUNT
from domain.installation.installation import Installation as InstallationRecord
from domain.personal_data.erasure import Erasure
from domain.storage import WriteUnit
from entrypoints import doctor
from entrypoints.doctor import examine, examine_psp
from tests.adapters.postgresql.by_hand import execute, set_default
from tests.builders import (
    CENTER_ID,
    OTHER_CENTER_ID,
    a_center,
    a_configuration,
    a_consent_text,
    a_guest,
    a_standing,
    an_account,
    an_audit_entry,
    an_event_endpoint,
)
from tests.databases import committed, make_database, make_database_of_0_1_0
from tests.entrypoints.conftest import PLUGIN, Site
from tests.entrypoints.running import run_service
from tests.fake_stripe.server import FakeStripeServer
from tests.fake_stripe.server import running as running_stripe
from tests.fake_stripe.stripe import TEST_KEY, TEST_SECRET
from tests.identity_provider import AUDIENCE, ISSUER, identity_provider
from tests.installation import Installation
from tests.listening import (
    Act,
    Handler,
    ListeningServer,
    break_off,
    fall_silent,
    responding,
    running,
)
from tests.postgresql import PostgresqlServer, new_database, standby_of, waiting_for
from tests.waiting import wait_until

SECRET: Final = "s3cret"
NOBODY: Final = "http://127.0.0.1:1"
PUBLIC: Final = {
    "CARDONFILE_PUBLIC_BASE_URL": "http://cards.example:1",
    "CARDONFILE_ALLOW_FAKE_PSP": "1",
}
ACME: Final = {"CARDONFILE_PSPS": "acme", "CARDONFILE_ACME_API_KEY": SECRET}
ALIVE: Final = b'{"status":"ok"}'
DAY: Final = timedelta(days=1)


class Patient:
    """An installation in a folder, without a running service."""

    def __init__(self, folder: Path) -> None:
        self.database = folder / "cards.db"
        self.environment = {
            "CARDONFILE_DATABASE_URL": f"sqlite:///{self.database}",
            "CARDONFILE_PUBLIC_BASE_URL": NOBODY,
        }

    @contextmanager
    def storing(self) -> Iterator[WriteUnit]:
        with closing(SqliteStorage(self.database)) as storage, committed(storage) as unit:
            yield unit

    def store(self, **records: Any) -> None:
        """Store records with the repositories of these names."""
        with self.storing() as unit:
            for repository, record in records.items():
                getattr(unit, repository).add(record)

    def configure(self, *configurations: PaymentConfiguration) -> None:
        """Configure payments of a center, or of two."""
        with self.storing() as unit:
            for center_id, each in zip((CENTER_ID, OTHER_CENTER_ID), configurations, strict=False):
                unit.centers.put_many([a_center(id=center_id)])
                unit.configurations.put(center_id, each)

    def findings(self, **changes: str) -> list[Finding]:
        """Examine the installation with some settings changed."""
        found = examine({**self.environment, **changes})
        for each in found:
            assert not any(secret in each.text for secret in (SECRET, TEST_KEY, TEST_SECRET))
            assert each.text.isprintable()
        return found

    def finding(self, about: str, **changes: str) -> tuple[Diagnosis, str]:
        """Return the one finding about this subject. All other findings must exist too."""
        found = self.findings(**changes)
        assert {"settings", "database", "public address"} <= {each.about for each in found}
        (finding,) = (each for each in found if each.about == about)
        return finding.diagnosis, finding.text

    def problem(self, about: str, **changes: str) -> str:
        """Return the text of the one finding about this subject, which must be a problem."""
        diagnosis, text = self.finding(about, **changes)
        assert diagnosis is Diagnosis.PROBLEM
        return text

    def is_fine(self, about: str, **changes: str) -> bool:
        """Return whether the one finding about this subject is that all is well."""
        return self.finding(about, **changes)[0] is Diagnosis.OK


@pytest.fixture
def patient(tmp_path: Path) -> Patient:
    patient = Patient(tmp_path)
    make_database(patient.database)
    return patient


@pytest.fixture
def listening() -> Iterator[ListeningServer]:
    with running(ListeningServer()) as server:
        yield server


@pytest.fixture
def stripe() -> Iterator[FakeStripeServer]:
    with running_stripe(SystemClock()) as server:
        yield server


def leads_to(server: ListeningServer, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Return a public base URL whose name leads to this server."""
    look_up = socket.getaddrinfo

    def found(host: str, port: int, **options: Any) -> Any:
        return look_up("127.0.0.1" if host == "cards.example" else host, port, **options)

    monkeypatch.setattr(socket, "getaddrinfo", found)
    return {**PUBLIC, "CARDONFILE_PUBLIC_BASE_URL": f"http://cards.example:{server.server_port}"}


def test_doctor_reports_no_problem_if_the_service_works(tmp_path: Path) -> None:
    def set_clock(installation: Installation) -> None:
        installation.clock.advance(datetime.now(UTC) - installation.clock.now())

    with run_service(tmp_path, before=set_clock) as service:
        patient = Patient(tmp_path)
        patient.database = service.installation.database
        patient.environment["CARDONFILE_DATABASE_URL"] = f"sqlite:///{patient.database}"
        completed = an_audit_entry(
            action=Action.BACKUP_COMPLETED, about="backup", happened_at=datetime.now(UTC)
        )
        patient.store(audit_trail=completed)
        base_url = f"http://127.0.0.1:{service.port}"
        read_status = service.installation.container.read_status()
        wait_until(lambda: not read_status().is_worker_missing)

        found = patient.findings(CARDONFILE_PUBLIC_BASE_URL=base_url)
    assert [each for each in found if each.diagnosis is not Diagnosis.OK] == []
    assert {each.about for each in found} >= {"database", "disk", "public address", "backup"}


def test_doctor_reports_nothing_but_the_invalid_setting_if_the_settings_cannot_be_read(
    patient: Patient,
) -> None:
    (found,) = patient.findings(CARDONFILE_RATE_LIMIT_STORAGE=f"redis://:{SECRET}@")
    assert (found.diagnosis, found.about) == (Diagnosis.PROBLEM, "settings")
    assert "CARDONFILE_RATE_LIMIT_STORAGE" in found.text


LIVE: Final = {
    "CARDONFILE_STRIPE_SECRET_KEY": f"sk_live_{SECRET}",
    "CARDONFILE_STRIPE_WEBHOOK_SECRETS": f"whsec_{SECRET}",
    "CARDONFILE_STRIPE_API_BASE": NOBODY,
}


@pytest.mark.parametrize(
    ("about", "settings", "said"),
    [
        ("settings", {"CARDONFILE_LOG_LEVLE": SECRET}, "CARDONFILE_LOG_LEVEL"),
        ("settings", LIVE, "CARDONFILE_STRIPE_SECRET_KEY is a live key"),
        ("workers", {}, "`cardonfile work`"),
        (
            *("rate limits", {"CARDONFILE_RATE_LIMIT_STORAGE": f"redis://:{SECRET}@127.0.0.1:1"}),
            "Redis",
        ),
        ("public address", {}, "(connection refused)"),
        ("public address", {}, "or correct CARDONFILE_PUBLIC_BASE_URL"),
        ("trusted proxy", PUBLIC, "CARDONFILE_TRUSTED_PROXY"),
        ("test cards", PUBLIC, "for another PSP, then unset CARDONFILE_ALLOW_FAKE_PSP"),
    ],
)
def test_doctor_reports_each_problem_with_its_remedy(
    patient: Patient, about: str, settings: dict[str, str], said: str
) -> None:
    assert said in patient.problem(about, **settings)


@pytest.mark.parametrize("kind", ["missing", "earlier", "none"])
def test_doctor_performs_the_other_checks_if_the_database_is_unusable(
    tmp_path: Path, kind: str
) -> None:
    patient = Patient(tmp_path)
    if kind == "earlier":
        make_database_of_0_1_0(patient.database)
    if kind == "none":
        patient.database.write_text("This is a letter, and not a database. " * 99)

    text = patient.problem("database")
    assert "check that" in text if kind == "none" else "`cardonfile migrate`" in text
    assert patient.finding("records")[0] is Diagnosis.UNKNOWN


def test_doctor_reports_a_database_that_another_process_has_locked(patient: Patient) -> None:
    with patient.storing():
        assert "locked" in patient.problem("database")


def test_doctor_performs_the_other_checks_if_a_psp_plugin_is_faulty(
    patient: Patient, site: Site
) -> None:
    code = PLUGIN.replace("settings.keys()", "1 / 0").replace("ids: None,", "ids: None, check=1,")
    site.install("cardonfile-acme", code)

    assert "acme" in patient.problem("acme", **ACME)


def test_doctor_reports_a_check_that_hangs(
    patient: Patient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"postgresql://judy:{SECRET}@127.0.0.1:{silent.getsockname()[1]}/cards"

        assert "no result" in patient.problem("database", CARDONFILE_DATABASE_URL=url)


def answers_with_the_id(handler: Handler) -> None:
    sent = handler.headers.get("X_Request_ID", "")
    handler.respond(200, ALIVE, {"X-Request-ID": sent, "Referrer-Policy": "same-origin"})


@pytest.mark.parametrize(
    ("act", "said"),
    [
        (answers_with_the_id, "underscores_in_headers off"),
        (
            responding(200, ALIVE, Referrer_Policy="no-referrer"),
            "changes the header Referrer-Policy",
        ),
        (responding(200, ALIVE), "changes the header Referrer-Policy"),
    ],
)
def test_doctor_reports_a_proxy_that_changes_headers(
    patient: Patient, listening: ListeningServer, act: Act, said: str
) -> None:
    listening.acts[:] = [act]

    assert said in patient.problem("proxy", CARDONFILE_PUBLIC_BASE_URL=listening.url)


@pytest.mark.parametrize("name", ["cards.db", "cards-fake-psp.db"])
def test_doctor_reports_a_database_file_that_every_user_can_read(
    patient: Patient, name: str
) -> None:
    assert patient.is_fine("file modes")

    file = patient.database.with_name(name)
    file.touch()
    file.chmod(file.stat().st_mode | stat.S_IROTH)
    assert str(file) in patient.problem("file modes")


def test_doctor_reports_a_nearly_full_disk(
    patient: Patient, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert patient.is_fine("disk")

    monkeypatch.setattr(doctor, "ENOUGH_FREE_BYTES", 2**80)
    monkeypatch.setattr(doctor, "ENOUGH_FREE_SHARE", 1)
    assert patient.problem("disk").endswith(f"{patient.database.parent}: make room")


def test_doctor_reports_a_missing_erasure_file_or_an_erased_guest_that_a_backup_restored(
    patient: Patient,
) -> None:
    file = patient.database.with_name("folder") / "erasures.txt"
    erasures = {"CARDONFILE_ERASURES_FILE": str(file)}
    assert patient.problem("disk", **erasures) == f"{file.parent}: No such file or directory"
    assert patient.problem("erasures", **erasures).endswith(f"is missing: create {file.parent}")
    file.parent.mkdir()
    assert patient.is_fine("erasures", **erasures)
    patient.store(guests=a_guest())
    file.write_text(f"{a_guest().id} 2026-11-20T12:00:00+00:00\n")

    assert "--again" in patient.problem("erasures", **erasures)


class TestMerchantAccounts:
    def test_doctor_reports_a_merchant_account_with_cards_that_is_not_set_up(
        self, patient: Patient
    ) -> None:
        patient.store(accounts=an_account(due_at=NOW))
        assert patient.is_fine("fake/main")

        # The fake PSP is not set up on a public address.
        text = patient.problem("fake/main", CARDONFILE_PUBLIC_BASE_URL="http://cards.example:1")

        assert "not set up" in text
        assert text.endswith("`cardonfile psp close-account fake --account main`")

    def test_doctor_reports_a_merchant_account_that_delays_an_erasure_for_a_day(
        self, patient: Patient
    ) -> None:
        erasure = Erasure(guest_id=GUEST_ID, erased_at=SystemClock().now() - DAY, due_at=NOW)
        patient.store(erasures=erasure.waiting_for([an_account().psp_account]))

        assert "1 erasures have been waiting since" in patient.problem("fake/main")

    def test_doctor_reports_a_closed_merchant_account_that_a_center_still_uses(
        self, patient: Patient
    ) -> None:
        patient.store(accounts=an_account(due_at=NOW))
        patient.configure(a_configuration())
        with patient.storing() as unit:
            unit.merchant_standings.put(a_standing(closed_at=NOW))

        assert "`cardonfile configure-payments`" in patient.problem("fake/main")

    def test_doctor_reports_that_the_service_no_longer_removes_cards_unknown_to_the_psp(
        self, patient: Patient
    ) -> None:
        with patient.storing() as unit:
            unit.merchant_standings.put(a_standing(stopped_at=NOW))

        assert "confirm-keys fake --account main" in patient.problem("fake/main")


class TestPublicAddress:
    @pytest.mark.parametrize(
        ("act", "advice"),
        [
            (responding(502), "start `cardonfile serve`, or check the proxy"),
            (responding(503), "start `cardonfile serve`, or check the proxy"),
            (responding(404, ALIVE), "check the proxy, or correct CARDONFILE_PUBLIC_BASE_URL"),
            (responding(200, b"nginx"), "check the proxy, or correct CARDONFILE_PUBLIC_BASE_URL"),
        ],
        ids=["502", "503", "404", "another service"],
    )
    def test_doctor_reports_that_the_public_address_does_not_lead_to_the_service(
        self, patient: Patient, listening: ListeningServer, act: Act, advice: str
    ) -> None:
        listening.acts = [act]
        text = patient.problem("public address", CARDONFILE_PUBLIC_BASE_URL=listening.url)
        assert text.endswith(advice)
        (request,) = listening.requests
        assert (request.method, request.path) == ("GET", "/healthz")

    def test_doctor_reports_an_unknown_result_if_the_public_address_does_not_respond(
        self, patient: Patient, listening: ListeningServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(doctor, "REQUEST_SECONDS", 0.1)
        listening.acts = [fall_silent]

        diagnosis, _ = patient.finding("public address", CARDONFILE_PUBLIC_BASE_URL=listening.url)
        assert diagnosis is Diagnosis.UNKNOWN

    @pytest.mark.parametrize(
        ("ahead", "said"),
        [
            (timedelta(minutes=10), "seconds ahead of"),
            (-timedelta(minutes=3), "seconds behind"),
            (timedelta(seconds=30), ""),
        ],
    )
    def test_doctor_compares_the_clock_with_the_date_header_at_the_public_address(
        self,
        patient: Patient,
        listening: ListeningServer,
        monkeypatch: pytest.MonkeyPatch,
        ahead: timedelta,
        said: str,
    ) -> None:
        def respond(handler: Any) -> None:
            date = format_datetime(datetime.now(UTC) - ahead, usegmt=True)
            handler.send_response_only(200)
            handler.wfile.write(f"HTTP/1.1 200 OK\r\nDate: {date}\r\n".encode())
            handler.wfile.write(b"Content-Length: %d\r\n\r\n%s" % (len(ALIVE), ALIVE))

        listening.acts = [respond]
        settings = leads_to(listening, monkeypatch)

        assert patient.is_fine("public address", **settings)
        diagnosis, text = patient.finding("clock", **settings)
        assert (diagnosis is Diagnosis.OK) is (abs(ahead) < timedelta(minutes=1))
        assert said in text

    def test_doctor_names_the_trusted_proxy(self, patient: Patient) -> None:
        assert patient.is_fine("trusted proxy")

        settings = {**PUBLIC, "CARDONFILE_TRUSTED_PROXY": "10.0.0.0/8"}
        said = "X-Forwarded-For is trusted from 10.0.0.0/8"
        assert patient.finding("trusted proxy", **settings) == (Diagnosis.OK, said)

    def test_doctor_at_a_public_address_reports_centers_without_redirect_origins(
        self, patient: Patient
    ) -> None:
        patient.configure(a_configuration(redirect_origins=()), a_configuration())

        assert patient.is_fine("redirects")
        assert "at 1 of the centers" in patient.problem("redirects", **PUBLIC)


def test_doctor_reports_a_language_that_the_psps_page_does_not_support(patient: Patient) -> None:
    patient.configure(a_configuration())
    with patient.storing() as unit:
        unit.consent_texts.put(CENTER_ID, a_consent_text(language="ja"))

    text = patient.problem("languages")
    assert text.startswith("Harbor Spa: fake's page does not support ja, so guests read another")
    assert f"consent set --center {CENTER_ID} --language ja --none" in text


def test_doctor_reports_a_center_whose_psp_is_not_set_up(patient: Patient) -> None:
    patient.configure(a_configuration())
    assert patient.is_fine("centers")
    # The check does not create the database of the fake PSP.
    assert not patient.database.with_name("cards-fake-psp.db").exists()

    public = PUBLIC | {"CARDONFILE_ALLOW_FAKE_PSP": ""}
    assert "CARDONFILE_ALLOW_FAKE_PSP" in patient.problem("centers", **public)


def test_doctor_reports_that_the_keys_of_the_identity_provider_cannot_be_read(
    patient: Patient,
) -> None:
    about = "identity provider"
    with identity_provider() as provider:
        keys = f"{provider.server.url}/certs"
        jwt = {
            "CARDONFILE_JWT_ISSUER": ISSUER,
            "CARDONFILE_JWT_AUDIENCE": AUDIENCE,
            "CARDONFILE_JWT_KEYS": keys,
        }
        assert patient.finding(about, **jwt) == (Diagnosis.OK, f"{keys} has 1 usable keys")
        for act, why in (
            (responding(404), "status 404"),
            (responding(200, b"<html>"), "not a set of keys"),
            (break_off, "connection closed"),
        ):
            provider.server.acts[:] = [act]
            told = f"{keys} cannot be used ({why}): correct CARDONFILE_JWT_KEYS"
            assert patient.problem(about, **jwt) == told
    server = ListeningServer()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    with running(server):
        jwt["CARDONFILE_JWT_KEYS"] = keys = f"https://127.0.0.1:{server.server_port}/certs"
        advice = "renew its certificate, or make this machine trust the issuer"
        told = f"{keys} cannot be used (certificate not trusted): {advice}"
        assert patient.problem(about, **jwt) == told


class TestEndpoints:
    ABOUT: Final = f"endpoint {an_event_endpoint().endpoint_id}"
    HERE: Final = {"CARDONFILE_EVENT_NETWORKS": "127.0.0.0/8"}

    def test_doctor_connects_to_an_endpoint_without_sending_a_request(
        self, patient: Patient, listening: ListeningServer
    ) -> None:
        patient.store(event_endpoints=an_event_endpoint(url=listening.url))

        assert patient.is_fine(self.ABOUT, **self.HERE)
        assert listening.requests == []

    @pytest.mark.parametrize(
        ("changes", "said"),
        [
            ({"url": f"{NOBODY}/events?token={SECRET}"}, "(connection refused)"),
            ({"disabled_at": NOW}, "410"),
        ],
    )
    def test_doctor_reports_an_endpoint_that_is_unreachable_or_disabled(
        self, patient: Patient, changes: dict[str, Any], said: str
    ) -> None:
        patient.store(event_endpoints=an_event_endpoint(**changes))

        assert said in patient.problem(self.ABOUT, **self.HERE)

    def test_doctor_reports_an_endpoint_at_a_private_address_without_connecting_to_it(
        self, patient: Patient, listening: ListeningServer
    ) -> None:
        patient.store(event_endpoints=an_event_endpoint(url=listening.url))

        assert "not a public address" in patient.problem(self.ABOUT)


@pytest.mark.parametrize(
    ("age", "diagnosis"),
    [
        (DAY, Diagnosis.OK),
        (3 * DAY, Diagnosis.PROBLEM),
        # From a clock that was ahead.
        (-3 * DAY, Diagnosis.PROBLEM),
        (None, Diagnosis.PROBLEM),
    ],
)
def test_doctor_reports_that_the_newest_backup_is_too_old(
    patient: Patient, age: timedelta | None, diagnosis: Diagnosis
) -> None:
    for number, each in enumerate([age, 9 * DAY] if age else []):
        entry = an_audit_entry(
            number,
            action=Action.BACKUP_COMPLETED,
            about="backup",
            happened_at=datetime.now(UTC) - each,
        )
        patient.store(audit_trail=entry)

    assert patient.finding("backup")[0] is diagnosis


class TestReplication:
    LOSES: Final = "a failover loses the last sessions, cards and removals"
    STATES: Final = "SELECT application_name, sync_state FROM pg_stat_replication ORDER BY 1"

    @pytest.fixture
    def url(self, stoppable_postgresql: PostgresqlServer) -> Iterator[str]:
        with new_database(stoppable_postgresql.url) as url:
            yield url

    @pytest.fixture
    def standbys(self, stoppable_postgresql: PostgresqlServer) -> Iterator[None]:
        """Attach db2 and db3."""
        server = stoppable_postgresql
        with standby_of(server, "db2"), standby_of(server, "db3"):
            yield

    def found(self, patient: Patient, url: str, about: str = "replication") -> tuple[str, str]:
        return patient.finding(about, CARDONFILE_DATABASE_URL=url)

    def test_doctor_accepts_a_single_postgresql_server_without_standbys(
        self, patient: Patient, url: str
    ) -> None:
        said = "no standby is connected, and commits do not wait for standbys"
        assert self.found(patient, url) == ("ok", said)

    @pytest.mark.parametrize("set_by", ["database", "database user"])
    def test_doctor_reports_asynchronous_commits(
        self, patient: Patient, url: str, set_by: str
    ) -> None:
        where = "ROLE CURRENT_USER IN DATABASE" if "user" in set_by else "DATABASE"
        execute(url, f"ALTER {where} {url.rpartition('/')[2]} SET synchronous_commit = off")

        diagnosis, text = self.found(patient, url, "synchronous commit")
        assert diagnosis == "problem"
        assert text.startswith(f"off (set by: {set_by}): ")
        assert text.endswith(
            "a crash loses the last commits of programs other than the service: set it to on"
        )

    @pytest.mark.usefixtures("standbys")
    def test_doctor_reports_standbys_for_which_no_commit_waits(
        self, patient: Patient, url: str
    ) -> None:
        def wait_for(db2: str, db3: str) -> None:
            wait_until(lambda: execute(url, self.STATES) == [("db2", db2), ("db3", db3)])

        wait_for("async", "async")
        diagnosis, text = self.found(patient, url)
        assert diagnosis == "problem"
        assert text.startswith(f"commits do not wait for the standbys db2, db3, so {self.LOSES}")
        with waiting_for(url, "db2"):
            wait_for("sync", "async")
            diagnosis, text = self.found(patient, url)
            assert diagnosis == "unknown"
            assert text.startswith("a failover to the asynchronous standby db3 loses the last ")

            clerk = f"{url.rpartition('/')[2]}_clerk"
            execute(url, f"CREATE ROLE {clerk} LOGIN")
            execute(url, f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {clerk}")
            diagnosis, text = self.found(patient, url.replace("postgres@", f"{clerk}@"))
            assert diagnosis == "unknown"
            assert text.endswith("GRANT pg_monitor TO the role")
        with waiting_for(url, "FIRST 2 (db2, db3)"):
            wait_for("sync", "sync")
            diagnosis, text = self.found(patient, url)
            assert diagnosis == "ok"
            assert text.startswith("commits wait for the standbys db2, db3. ")

        set_default(url, "synchronous_commit = local")
        diagnosis, text = self.found(patient, url, "synchronous commit")
        assert diagnosis == "problem"
        assert self.LOSES in text

    def test_doctor_reports_missing_standbys(self, patient: Patient, url: str) -> None:
        with waiting_for(url, "db2"):
            diagnosis, text = self.found(patient, url)
            assert diagnosis == "problem"
            assert "commits wait for db2 and requests get 503" in text

        execute(url, "SELECT pg_create_physical_replication_slot('db2')")
        diagnosis, text = self.found(patient, url)
        execute(url, "SELECT pg_drop_replication_slot('db2')")
        assert diagnosis == "problem"
        assert f"commits do not wait for them, so {self.LOSES}" in text


class TestPsps:
    def test_doctor_checks_each_merchant_account(
        self, patient: Patient, stripe: FakeStripeServer
    ) -> None:
        spain = "sk_test_spain"
        stripe.stripe.add_merchant(spain, "whsec_spain")
        endpoint = {"livemode": False, "status": "enabled", "enabled_events": ["*"]}
        urls = (f"{NOBODY}/webhooks/stripe", f"{NOBODY}/webhooks/stripe/spain")
        for key, url in zip((TEST_KEY, spain), urls, strict=True):
            stripe.stripe.merchants[key].webhook_endpoints = [{**endpoint, "url": url}]

        found = patient.findings(
            CARDONFILE_STRIPE_SECRET_KEY=TEST_KEY,
            CARDONFILE_STRIPE_WEBHOOK_SECRETS=TEST_SECRET,
            CARDONFILE_STRIPE_SPAIN_SECRET_KEY=spain,
            CARDONFILE_STRIPE_SPAIN_WEBHOOK_SECRETS="whsec_spain",
            CARDONFILE_STRIPE_API_BASE=stripe.url,
        )
        assert {(each.diagnosis, each.about) for each in found if "stripe" in each.about} == {
            (Diagnosis.OK, f"stripe/{account} {what}")
            for account in ("default", "spain")
            for what in ("keys", "webhooks", "clock")
        }
        about = [each.text for each in found if each.about.endswith("webhooks")]
        assert {text.split()[0] for text in about} == set(urls)

    @pytest.mark.parametrize(
        ("kept", "is_copy", "said"),
        [
            ("acct_main test", False, "the secret key works"),
            ("acct_main live", False, "but the cards belong to acct_main live"),
            ("acct_main test", True, "the keys belong to the original's merchant acct_main"),
        ],
    )
    def test_doctor_reports_psp_keys_that_belong_to_another_merchant(
        self, patient: Patient, stripe: FakeStripeServer, kept: str, is_copy: bool, said: str
    ) -> None:
        default = DEFAULT_MERCHANT_ACCOUNT
        with patient.storing() as unit:
            unit.merchant_identities.claim(STRIPE, default, kept)
            if is_copy:
                unit.installations.put(InstallationRecord(is_copy=True))
                unit.installations.detach_from_original(datetime.now(UTC))
        with_stripe = {
            "CARDONFILE_STRIPE_SECRET_KEY": TEST_KEY,
            "CARDONFILE_STRIPE_WEBHOOK_SECRETS": TEST_SECRET,
            "CARDONFILE_STRIPE_API_BASE": stripe.url,
        }

        for found in (
            patient.findings(**with_stripe),
            examine_psp(patient.environment | with_stripe, STRIPE),
        ):
            (keys,) = (each for each in found if each.about == "stripe/default keys")
            assert (keys.diagnosis is Diagnosis.OK) is (said == "the secret key works")
            assert said in keys.text

    @pytest.mark.parametrize(
        "check",
        [f"1 / 0 if '{SECRET}' else ()", "'no finding'", f"exit('{SECRET}')"],
        ids=["raises", "another type", "exits"],
    )
    def test_doctor_reports_a_plugin_whose_check_fails(
        self, patient: Patient, site: Site, check: str
    ) -> None:
        code = PLUGIN.replace("ids: None,", f"ids: AnyPsp(),\n    check=lambda *_: {check},")
        any_psp = "from domain.psps.payment_provider import PaymentProvider\n"
        site.install("cardonfile-acme", f"{any_psp}class AnyPsp(PaymentProvider): pass\n{code}")
        assert patient.finding("acme/default", **ACME)[0] is Diagnosis.UNKNOWN

    def test_a_check_that_hangs_does_not_hide_the_results_for_other_merchant_accounts(
        self, patient: Patient, site: Site, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        code = PLUGIN.replace("ids: None,", "ids: AnyPsp(),\n    check=check,")
        site.install(
            "cardonfile-acme",
            "from threading import Event\n"
            "from adapters.psp.findings import ok\n"
            "from domain.psps.payment_provider import PaymentProvider\n"
            "class AnyPsp(PaymentProvider): pass\n"
            "def check(adapter, account, url):\n"
            f"    return [ok('key', url)] if account == 'spain' else Event().wait()\n{code}",
        )
        monkeypatch.setattr(doctor, "SECONDS", 2)

        found = patient.findings(**ACME, CARDONFILE_ACME_SPAIN_API_KEY=SECRET)
        (hangs,) = (each for each in found if each.about == "acme/default")
        assert hangs.text.startswith("no result")
        assert "acme/spain key" in {each.about for each in found}

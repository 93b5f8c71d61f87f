"""Find the migrations that a database lacks.

The statements that both databases share are here too.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from hashlib import sha256
from typing import Final

from adapters.sql.errors import DatabaseUnusable

QUEUES: Final = """
    CREATE INDEX card_sessions_due ON card_sessions (
        (coalesce(configuration ->> 'provider', '') || '/' ||
        coalesce(configuration ->> 'merchant_account', '') ||
        CASE WHEN unanswered_since IS NOT NULL THEN '/silent'
        WHEN attempt -> 'over' = 'false' OR due_at > expires_at THEN '/opened' ELSE '/link' END),
        due_at
    ) WHERE due_at IS NOT NULL;
    CREATE INDEX discards_due ON discards ((provider || '/' || merchant_account || '/'), due_at)
        WHERE due_at IS NOT NULL;
    CREATE INDEX event_deliveries_due ON event_deliveries (
        (endpoint_id || CASE WHEN event ->> 'type' = 'account.expiring' THEN '/1' ELSE '/0' END),
        due_at
    ) WHERE due_at IS NOT NULL
"""
"""Creates the indexes of the queues. The name of a queue consists of the target of its calls and
the kind of its rows.
"""

CONSENTS_OF_SESSIONS: Final = """
    SELECT account_id, card_sessions.token_id,
        coalesce(attempt -> 'request' -> 'consent' ->> 'language', 'en') AS language,
        attempt -> 'request' -> 'consent' ->> 'version' AS version,
        attempt -> 'request' -> 'consent' ->> 'text' AS text,
        CASE WHEN ended_at < consented_at THEN ended_at ELSE consented_at END AS agreed_at
    FROM card_sessions JOIN payment_accounts USING (account_id)
    WHERE attempt -> 'request' -> 'consent' ->> 'text' IS NOT NULL
"""
"""Selects the consents of the sessions that stored or renewed an account.

An account records only the time of its latest consent, which may be from a later renewal. If the
session ended before that time, the end of the session is used instead, because the guest had agreed
by then.
"""

LONG_AGO: Final = "2000-01-01T00:00:00.000000+00:00"
"""A time in the past, which is the default of some new columns.

Rows that an earlier release still adds during an upgrade get this default. A card in such a row is
therefore due for reading, and a session is due for the event about an unopened link.
"""

RECORDS_FOR_OPERATORS: Final = f"""
    CREATE TABLE consent_texts (
        text_id text PRIMARY KEY, version text NOT NULL, language text NOT NULL, text text NOT NULL
    ){{strict}};
    CREATE TABLE consents (
        account_id {{uuid}} NOT NULL, token_id {{uuid}} NOT NULL, text_id text NOT NULL,
        agreed_at {{time}} NOT NULL, PRIMARY KEY (account_id, token_id)
    ){{strict}};
    INSERT INTO consent_texts (text_id, version, language, text)
        SELECT DISTINCT {{text_id}}, version, language, text FROM ({CONSENTS_OF_SESSIONS}) AS given;
    INSERT INTO consents (account_id, token_id, text_id, agreed_at)
        SELECT account_id, token_id, {{text_id}}, agreed_at FROM ({CONSENTS_OF_SESSIONS}) AS given;
    CREATE TABLE workers (
        worker_id text PRIMARY KEY, host text NOT NULL, pid integer NOT NULL, release text NOT NULL,
        state text NOT NULL, since {{time}} NOT NULL, seen_at {{time}} NOT NULL
    ){{strict}};
    DROP TABLE worker_heartbeats;
    CREATE TABLE audit_entries (
        entry_id text PRIMARY KEY, happened_at {{time}} NOT NULL, actor text NOT NULL,
        action text NOT NULL, about text NOT NULL, details {{json}}
    ){{strict}};
    CREATE TABLE erasures (
        guest_id {{uuid}} PRIMARY KEY,
        erased_at {{time}} NOT NULL,
        due_at {{time}},
        done_at {{time}}
    ){{strict}};
    CREATE TABLE former_guest_references (
        provider text NOT NULL,
        merchant_account text NOT NULL,
        guest_id {{uuid}} NOT NULL,
        reference text NOT NULL,
        PRIMARY KEY (provider, merchant_account, reference, guest_id)
    ){{strict}};
    CREATE TABLE center_settings (
        center_id {{uuid}} PRIMARY KEY,
        contact text,
        color text,
        language text,
        logo {{json}}
    ){{strict}};
    CREATE INDEX guests_email ON guests (lower(email), id) WHERE email IS NOT NULL;
    CREATE INDEX card_sessions_ended ON card_sessions (ended_at) WHERE ended_at IS NOT NULL;
    CREATE INDEX payment_accounts_removed ON payment_accounts (removed_at)
        WHERE removed_at IS NOT NULL;
    CREATE INDEX payment_accounts_of_guest ON payment_accounts (guest_id);
    CREATE INDEX psp_guests_of_guest ON psp_guests (guest_id);
    CREATE INDEX former_guest_references_of_guest ON former_guest_references (guest_id);
    CREATE INDEX guest_references_of_guest ON guest_references (guest_id);
    CREATE INDEX discards_of_guest ON discards (provider, merchant_account, guest_reference);
    CREATE INDEX erasures_due ON erasures (due_at) WHERE due_at IS NOT NULL;
    CREATE INDEX audit_entries_latest ON audit_entries (happened_at, entry_id);
    CREATE INDEX audit_entries_about ON audit_entries (about, happened_at, entry_id);
    CREATE INDEX card_sessions_unanswered ON card_sessions (
        (coalesce(configuration ->> 'provider', '') || '/' ||
        coalesce(configuration ->> 'merchant_account', '')), unanswered_since
    ) WHERE unanswered_since IS NOT NULL;
    CREATE INDEX discards_unanswered ON discards (
        (provider || '/' || merchant_account), unanswered_since
    ) WHERE unanswered_since IS NOT NULL;
    CREATE INDEX event_deliveries_not_taken ON event_deliveries (endpoint_id, status, occurred_at)
        WHERE status <> 'delivered';
    CREATE INDEX access_tokens_expiring ON access_tokens (expires_at, token_hash)
        WHERE revoked_at IS NULL;
    ALTER TABLE card_sessions ADD COLUMN opened_at {{time}};
    ALTER TABLE card_sessions ADD COLUMN returned_at {{time}};
    ALTER TABLE card_sessions ADD COLUMN cancelled_by text;
    ALTER TABLE refused_cards ADD COLUMN code text;
    ALTER TABLE access_tokens ADD COLUMN used_at {{time}};
    ALTER TABLE card_sessions ADD COLUMN locale text;
    ALTER TABLE card_sessions ADD COLUMN reference text;
    ALTER TABLE card_sessions ADD COLUMN existing_account_id {{uuid}};
    ALTER TABLE guests ADD COLUMN language text;
    ALTER TABLE payment_accounts ADD COLUMN due_at {{time}} DEFAULT '{LONG_AGO}';
    ALTER TABLE payment_accounts ADD COLUMN asked_at {{time}};
    ALTER TABLE payment_accounts ADD COLUMN read_at {{time}};
    ALTER TABLE payment_accounts ADD COLUMN unanswered_since {{time}};
    ALTER TABLE payment_accounts ADD COLUMN charge_reference text;
    ALTER TABLE payment_accounts ADD COLUMN authenticated {{boolean}};
    UPDATE payment_accounts SET due_at = CASE WHEN removed_at IS NULL THEN {{within_30_days}} END;
    CREATE INDEX payment_accounts_due ON payment_accounts (
        (provider || '/' || merchant_account || '/'), due_at
    ) WHERE due_at IS NOT NULL;
    CREATE INDEX payment_accounts_reference ON payment_accounts (
        provider, merchant_account, guest_reference
    );
    CREATE INDEX psp_guests_reference ON psp_guests (provider, merchant_account, reference);
    CREATE INDEX guest_references_reference ON guest_references (
        provider, merchant_account, reference
    );
    CREATE INDEX payment_accounts_asked ON payment_accounts (
        (provider || '/' || merchant_account || '/'), asked_at
    ) WHERE asked_at IS NOT NULL;
    CREATE INDEX payment_accounts_unanswered ON payment_accounts (
        (provider || '/' || merchant_account), unanswered_since
    ) WHERE unanswered_since IS NOT NULL;
    CREATE TABLE center_consent_texts (
        center_id {{uuid}} NOT NULL,
        language text NOT NULL,
        version text NOT NULL,
        text text NOT NULL,
        PRIMARY KEY (center_id, language)
    ){{strict}}
"""
"""Tables for operators: consents, workers, the audit trail, erasures, settings, languages, times,
codes, and data for later charges.

`{uuid}`, `{time}`, `{json}` and `{boolean}` stand for each database's own types. `{strict}` makes
SQLite's new tables strict. `{text_id}` stands for an expression that computes the same id as the
function `text_id`.
"""

RELEASE_0_3: Final = """
    CREATE TABLE merchant_standings (
        provider text NOT NULL,
        merchant_account text NOT NULL,
        closed_at {time},
        stopped_at {time},
        confirmed_at {time},
        PRIMARY KEY (provider, merchant_account)
    ){strict};
    CREATE TABLE installations (
        id integer NOT NULL PRIMARY KEY, origin text, is_copy {boolean} NOT NULL
    ){strict};
    ALTER TABLE merchant_identities ADD COLUMN of_original {boolean};
    ALTER TABLE discards ADD COLUMN out_of_reach {boolean};
    ALTER TABLE erasures ADD COLUMN out_of_reach {json} NOT NULL DEFAULT '[]';
    ALTER TABLE erasures ADD COLUMN waits_for {json} NOT NULL DEFAULT '[]';
    ALTER TABLE payment_accounts ADD COLUMN refused_since {time};
    ALTER TABLE payment_accounts ADD COLUMN refusals integer NOT NULL DEFAULT 0;
    ALTER TABLE discards ADD COLUMN unknown_since {time};
    ALTER TABLE erasures ADD COLUMN unknown_since {time};
    ALTER TABLE erasures ADD COLUMN merged_into {uuid};
    CREATE INDEX erasures_merged_into ON erasures (merged_into, guest_id)
        WHERE merged_into IS NOT NULL;
    ALTER TABLE payment_accounts ADD COLUMN funding text;
    ALTER TABLE payment_accounts ADD COLUMN issuer_country text;
    ALTER TABLE payment_accounts ADD COLUMN wallet text;
    ALTER TABLE payment_accounts ADD COLUMN network_transaction_id text;
    ALTER TABLE payment_configurations ADD COLUMN card_testing_limits text;
    ALTER TABLE payment_configurations ADD COLUMN refuse_funding {json} NOT NULL DEFAULT '[]';
    ALTER TABLE payment_configurations ADD COLUMN acquirer_agreed {boolean} NOT NULL DEFAULT false;
    ALTER TABLE payment_configurations ADD COLUMN authentication text NOT NULL DEFAULT 'automatic';
    ALTER TABLE card_sessions ADD COLUMN authentication text;
    ALTER TABLE card_sessions ADD COLUMN not_accepted text;
    ALTER TABLE card_sessions ADD COLUMN link_key text;
    ALTER TABLE card_sessions ADD COLUMN trace text;
    ALTER TABLE payment_configurations ADD COLUMN keep_after_end_days integer NOT NULL DEFAULT 7;
    ALTER TABLE payment_configurations
        ADD COLUMN no_show_indicator {boolean} NOT NULL DEFAULT false;
    ALTER TABLE card_sessions ADD COLUMN agreement {json};
    ALTER TABLE card_sessions ADD COLUMN clicks {json};
    CREATE INDEX card_sessions_with_agreement ON card_sessions (ended_at)
        WHERE agreement IS NOT NULL;
    ALTER TABLE card_sessions ADD COLUMN card {json};
    ALTER TABLE card_sessions ADD COLUMN browsers {json};
    CREATE INDEX card_sessions_browsers ON card_sessions (ended_at) WHERE browsers IS NOT NULL;
    CREATE INDEX event_deliveries_of_account ON event_deliveries (
        (event ->> 'account_id'), occurred_at, event_id, endpoint_id
    ) WHERE event ->> 'account_id' IS NOT NULL;
    CREATE INDEX event_deliveries_of_session ON event_deliveries (
        (event ->> 'token_id'), occurred_at, event_id, endpoint_id
    ) WHERE event ->> 'token_id' IS NOT NULL;
    CREATE INDEX card_sessions_of_account ON card_sessions (account_id)
        WHERE account_id IS NOT NULL;
    CREATE INDEX consents_of_session ON consents (token_id);
    CREATE INDEX consents_of_text ON consents (text_id);
    ALTER TABLE card_sessions ADD COLUMN is_evidence {boolean} NOT NULL DEFAULT false;
    DROP INDEX card_sessions_ended;
    CREATE INDEX card_sessions_ended ON card_sessions (ended_at)
        WHERE ended_at IS NOT NULL AND NOT is_evidence;
    ALTER TABLE event_deliveries ADD COLUMN is_evidence {boolean} NOT NULL DEFAULT false;
    CREATE INDEX event_deliveries_old ON event_deliveries (occurred_at) WHERE NOT is_evidence;
    ALTER TABLE payment_accounts ADD COLUMN is_evidence {boolean} NOT NULL DEFAULT false;
    DROP INDEX payment_accounts_removed;
    CREATE INDEX payment_accounts_removed ON payment_accounts (removed_at)
        WHERE removed_at IS NOT NULL AND NOT is_evidence;
    CREATE TABLE agreement_references (
        guest_id {uuid} NOT NULL,
        center_id {uuid} NOT NULL,
        reference text NOT NULL,
        token_id {uuid} NOT NULL,
        PRIMARY KEY (guest_id, center_id, reference)
    ){strict};
    CREATE INDEX agreement_references_of_session ON agreement_references (token_id);
    ALTER TABLE payment_accounts ADD COLUMN keep_until {time};
    CREATE INDEX payment_accounts_keep_until ON payment_accounts (keep_until)
        WHERE keep_until IS NOT NULL AND removed_at IS NULL;
    CREATE TABLE agreements (
        agreement_id {uuid} PRIMARY KEY,
        account_id {uuid} NOT NULL,
        guest_id {uuid} NOT NULL,
        center_id {uuid} NOT NULL,
        token_id {uuid} NOT NULL,
        terms {json} NOT NULL,
        shown {json} NOT NULL,
        agreed_at {time} NOT NULL,
        kept_until {time} NOT NULL,
        due_at {time},
        ended_at {time},
        reason text,
        stated_at {time}
    ){strict};
    CREATE INDEX agreements_of_account ON agreements (account_id, agreed_at, agreement_id);
    CREATE INDEX agreements_of_session ON agreements (token_id);
    CREATE INDEX agreements_kept_until ON agreements (kept_until) WHERE due_at IS NULL;
    CREATE INDEX agreements_due ON agreements (due_at) WHERE due_at IS NOT NULL;
    CREATE INDEX agreements_of_guest ON agreements (guest_id, agreed_at, agreement_id);
    ALTER TABLE center_settings ADD COLUMN time_zone text;
    ALTER TABLE center_settings ADD COLUMN accessibility text;
    CREATE TABLE center_reservation_texts (
        center_id {uuid} NOT NULL,
        language text NOT NULL,
        version text NOT NULL,
        text text NOT NULL,
        text_when_late text NOT NULL,
        button text NOT NULL,
        keep text NOT NULL,
        on_psp_page text NOT NULL,
        PRIMARY KEY (center_id, language)
    ){strict};
    CREATE UNIQUE INDEX card_sessions_link_key ON card_sessions (link_key)
        WHERE link_key IS NOT NULL;
    CREATE INDEX card_sessions_without_key ON card_sessions (created_at) WHERE link_key IS NULL;
    CREATE TABLE earlier_pages (
        token_id {uuid} NOT NULL,
        number integer NOT NULL,
        provider text NOT NULL,
        merchant_account text NOT NULL,
        page_reference text NOT NULL,
        attempt {json} NOT NULL,
        told_at {time},
        PRIMARY KEY (token_id, number)
    ){strict};
    CREATE INDEX earlier_pages_reference ON earlier_pages (
        provider, merchant_account, page_reference
    );
    CREATE TABLE desk_links (
        secret_hash text PRIMARY KEY,
        token_id {uuid} NOT NULL,
        label text NOT NULL,
        caller {json} NOT NULL,
        access_token_hash text NOT NULL,
        created_at {time} NOT NULL
    ){strict};
    CREATE INDEX desk_links_of_session ON desk_links (token_id, created_at, secret_hash);
    CREATE TABLE events (
        event_id text PRIMARY KEY,
        number {big_integer},
        center_id {uuid} NOT NULL,
        occurred_at {time} NOT NULL,
        event {json}{sequence}
    ){strict};
    CREATE UNIQUE INDEX events_number ON events (number) WHERE number IS NOT NULL;
    CREATE INDEX events_unnumbered ON events ({created}) WHERE number IS NULL;
    ALTER TABLE card_sessions ADD COLUMN unopened_at {time} DEFAULT '{long_ago}';
    CREATE INDEX card_sessions_unopened ON card_sessions (unopened_at, token_id)
        WHERE unopened_at IS NOT NULL AND ended_at IS NULL;
    CREATE TABLE portal_sessions (
        portal_id {uuid} PRIMARY KEY,
        secret_hash text NOT NULL,
        guest_id {uuid} NOT NULL,
        center_id {uuid} NOT NULL,
        caller text NOT NULL,
        access_token_hash text NOT NULL,
        shows_guest {boolean} NOT NULL,
        return_uri text NOT NULL,
        locale text,
        created_at {time} NOT NULL,
        expires_at {time} NOT NULL,
        visits {json} NOT NULL
    ){strict};
    CREATE UNIQUE INDEX portal_sessions_secret ON portal_sessions (secret_hash);
    CREATE INDEX portal_sessions_of_guest ON portal_sessions (guest_id, created_at, portal_id);
    CREATE INDEX portal_sessions_created ON portal_sessions (created_at);
    ALTER TABLE payment_configurations ADD COLUMN portal_minutes integer NOT NULL DEFAULT 15;
    ALTER TABLE payment_configurations ADD COLUMN guest_removal text;
    ALTER TABLE payment_accounts ADD COLUMN withdrawn_at {time};
    ALTER TABLE card_sessions ADD COLUMN replaces {json}
"""
"""The further tables of release 0.3.0: closed merchant accounts, unknown objects at PSPs,
earlier pages, merged guests, desk links, the list of events, and guests' own pages.
"""


def text_id(version: str, language: str | None, text: str | None) -> str:
    """Return the id of a consent text. Equal texts have equal ids."""
    return sha256(f"{version}\n{language}\n{text}".encode()).hexdigest()


class DatabaseIsNewer(DatabaseUnusable):
    """A newer release has migrated the database.

    This release does not know the `unknown` migrations.
    """

    def __init__(self, unknown: Sequence[str]) -> None:
        self.unknown = tuple(unknown)
        super().__init__(
            "a newer release of cardonfile has migrated the database "
            f"({', '.join(unknown)}); run that release or a later release"
        )


class DatabaseOfNoRelease(DatabaseUnusable):
    """The database was migrated by a build that is not a release.

    `unknown` contains the migrations of that build that this release does not have.
    """

    def __init__(self, unknown: Sequence[str]) -> None:
        super().__init__(
            "a build of cardonfile between releases has migrated the database "
            f"({', '.join(unknown)}), and no release can upgrade it; "
            "run that build, or begin with a new database"
        )


def pending_migrations(known: Sequence[str], applied: Collection[str]) -> list[str]:
    """Return the known migrations that were not applied, in order.

    Raises DatabaseIsNewer if an applied migration is not known. Raises DatabaseOfNoRelease if, in
    addition, a known migration was not applied.
    """
    unknown = [name for name in applied if name not in known]
    pending = [name for name in known if name not in applied]
    if unknown:
        raise (DatabaseOfNoRelease if pending else DatabaseIsNewer)(unknown)
    return pending

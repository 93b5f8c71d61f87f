"""The consent texts, and the guests' consents."""

from __future__ import annotations

from collections.abc import Sequence

from typing_extensions import override

from adapters.sql.migrations import CONSENTS_OF_SESSIONS, text_id
from adapters.sql.repositories.repository import Repository
from adapters.sql.rows import Rows
from domain.consents.consent_text import ConsentText, ConsentTexts
from domain.consents.given_consent import Consents, GivenConsent, StoredWithConsent
from domain.identifiers import AccountId, CenterId

_CONSENTS = Rows("consents", GivenConsent, key=("account_id", "token_id"))


class SqlConsents(Repository, Consents):
    """Stores the consents of guests."""

    @override
    def add(self, consent: GivenConsent) -> None:
        of_text = text_id(consent.version, consent.language, consent.text)
        row = {**_CONSENTS.row(consent), "text_id": of_text}
        self._transaction.execute(
            "INSERT INTO consent_texts (text_id, version, language, text) "
            "VALUES (:text_id, :version, :language, :text) ON CONFLICT DO NOTHING",
            row,
        )
        self._transaction.execute(
            "INSERT INTO consents (account_id, token_id, text_id, agreed_at) "
            "VALUES (:account_id, :token_id, :text_id, :agreed_at) "
            "ON CONFLICT (account_id, token_id) DO UPDATE "
            "SET text_id = excluded.text_id, agreed_at = excluded.agreed_at",
            row,
        )

    @override
    def copy(self, of: AccountId, to: AccountId) -> None:
        self._transaction.execute(
            "INSERT INTO consents (account_id, token_id, text_id, agreed_at) "
            "SELECT :to, token_id, text_id, agreed_at FROM consents WHERE account_id = :of "
            "ON CONFLICT DO NOTHING",
            {"of": of, "to": to},
        )

    @override
    def of(self, account: StoredWithConsent) -> Sequence[GivenConsent]:
        found = self._transaction.execute(
            f"SELECT {_CONSENTS.listed} FROM consents JOIN consent_texts USING (text_id) "
            "WHERE account_id = :account_id UNION ALL "
            f"SELECT {_CONSENTS.listed} FROM ({CONSENTS_OF_SESSIONS} "
            "AND card_sessions.guest_id = :guest_id) AS of_guest "
            "WHERE account_id = :account_id AND NOT EXISTS (SELECT 1 FROM consents "
            "WHERE account_id = :account_id AND token_id = of_guest.token_id)",
            {"account_id": account.account_id, "guest_id": account.guest_id},
        ).fetchall()
        consents = sorted(
            map(_CONSENTS.record, found),
            key=lambda each: (each.agreed_at, each.token_id),
            reverse=True,
        )
        # A guest who agreed on two of cardonfile's pages may have typed in the card on the page
        # that belongs to the first of them.
        applying = next((one for one in consents if one.version == account.consent_version), None)
        return sorted(consents, key=lambda each: each is not applying)


_CONSENT_TEXTS = Rows(
    "center_consent_texts", ConsentText, key=("center_id", "language"), extra_columns=("center_id",)
)


class SqlConsentTexts(Repository, ConsentTexts):
    """Stores the consent texts of each center."""

    @override
    def of(self, center_id: CenterId) -> Sequence[ConsentText]:
        values = {"center_id": center_id}
        condition = "WHERE center_id = :center_id ORDER BY language"
        return _CONSENT_TEXTS.find(self._transaction, condition, values)

    @override
    def put(self, center_id: CenterId, text: ConsentText) -> None:
        self._transaction.execute(
            _CONSENT_TEXTS.insert + _CONSENT_TEXTS.or_replace,
            _CONSENT_TEXTS.row(text) | {"center_id": center_id},
        )

    @override
    def remove(self, center_id: CenterId, language: str) -> None:
        _CONSENT_TEXTS.delete(self._transaction, center_id=center_id, language=language)

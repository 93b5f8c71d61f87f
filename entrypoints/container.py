"""Build the application from its settings, with the adapter for each port.

`databases.py` chooses the storage, `psps.py` finds the PSPs, and `worker/worker.py` builds the
background worker from the parts that are built here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from threading import Event
from typing import TYPE_CHECKING, Any, Self, TypeVar

import falcon
from dependency_injector.containers import DeclarativeContainer
from dependency_injector.providers import Dependency, Factory, Object, ThreadSafeSingleton
from limits.storage import Storage as CountStorage
from typing_extensions import override

from adapters.babel_formats import BabelFormats
from adapters.catalogs import LANGUAGES, shipped_consents, shipped_reservation_texts
from adapters.erasure_file import TextErasureFile
from adapters.events.payload import encode, examples
from adapters.events.sender import HttpEventSender
from adapters.http.agreements import AgreementResource
from adapters.http.app import create_app
from adapters.http.authentication import Authentication
from adapters.http.cards import CardResource
from adapters.http.centers import CenterResource
from adapters.http.desk_links import DeskResource
from adapters.http.events import EventResource
from adapters.http.evidence import EvidenceResource
from adapters.http.guests import GuestResource
from adapters.http.health import HealthChecks, WorkerWatch
from adapters.http.hosted_payments import HostedPayments
from adapters.http.logos import Logos
from adapters.http.portal import PortalResource
from adapters.http.products import ProductResource
from adapters.http.rate_limits import RateLimits, counts_in_redis
from adapters.http.sessions import SessionResource
from adapters.http.trusted_proxy import TrustedProxy
from adapters.http.webhooks import Webhooks
from adapters.identity import OpaqueTokens
from adapters.log import (
    LinesOfErasures,
    LinesOfSessions,
    log_lost_card,
    log_stopped_removal,
    log_taken_back,
)
from adapters.postal_codes import PostalCodeFormats
from adapters.psp_calls.bulkhead import Bulkhead
from adapters.psp_calls.circuit_breaker import CircuitBreakers
from adapters.psp_calls.guarded_provider import GuardedProvider
from adapters.psp_calls.merchants import MerchantCheck
from adapters.psp_calls.outages import OutageLog
from adapters.system import RandomIds, SystemClock, operating_system_user
from adapters.traces import TracesOfThreads
from domain.access.issue_token import IssueToken
from domain.access.revoke_token import RevokeToken
from domain.access.token import Identity
from domain.agreements.choose_reservation_text import ChooseReservationText
from domain.agreements.set_reservation_text import SetReservationText
from domain.audit.note_act import NoteAct, NoteOperatorsAct
from domain.cards.choose_default_card import ChooseDefaultCard
from domain.cards.compare_cards import CompareCards
from domain.cards.discard_tokens import DiscardToken
from domain.cards.end_agreements import EndAgreement, EndAgreements
from domain.cards.import_card import ImportCard
from domain.cards.notice_expiry import NoticeExpiry
from domain.cards.queries import (
    ListAccounts,
    ListAgreements,
    ListExpiringCards,
    ReadAccount,
    ReadAgreement,
    ReadConsent,
)
from domain.cards.refresh_account import RefreshAccount
from domain.cards.remove_account import RemoveAccount
from domain.cards.remove_ended_cards import RemoveEndedCards
from domain.cards.trust_keys import TrustKeys
from domain.cards.unknown_card import ConfirmKeys
from domain.centers.configure_payments import ConfigurePayments
from domain.centers.queries import ListCenters, ReadCenter
from domain.centers.set_center import SetCenter
from domain.consents.choose_consent import ChooseConsent, ConsentsOf
from domain.consents.set_consent import SetConsent
from domain.desk_links.cancel_at_desk import CancelAtDesk
from domain.desk_links.make_desk_link import MakeDeskLink
from domain.desk_links.queries import ReadDesk, ReadLinkToSend
from domain.disputes.evidence import EvidenceSigner, NoEvidenceKey
from domain.disputes.gather_evidence import GatherEvidence
from domain.disputes.read_evidence import ReadEvidence
from domain.events.add_event_endpoint import AddEventEndpoint
from domain.events.deliver_event import DeliverEvent
from domain.events.note_event import NoteEvent
from domain.events.queries import ListEvents, ReadEvent
from domain.events.remove_event_endpoint import RemoveEventEndpoint, RollEventSecret
from domain.events.replay_event import ReplayEvent, ReplayEventsSince
from domain.events.send_test_event import SendTestEvent
from domain.events.update_event_endpoint import UpdateEventEndpoint
from domain.guests.put_guest import PutGuest
from domain.guests.queries import ReadGuest, SearchGuests
from domain.hosted_payments.find_page_content import FindPageContent
from domain.hosted_payments.leave_hosted_page import CancelHostedPage, ReturnFromHostedPage
from domain.hosted_payments.link import HostedLinks
from domain.hosted_payments.open_hosted_page import OpenHostedPage
from domain.hosted_payments.show_agreement import ShowAgreement
from domain.hosted_payments.use_card_on_file import UseCardOnFile
from domain.identifiers import ProviderName
from domain.installation.change_origin import MoveInstallation, SeparateCopy
from domain.installation.recognize_origin import RecognizeOrigin
from domain.outside import Clock, Ids
from domain.personal_data.erase_guest import EraseGuest
from domain.personal_data.export_guest import ExportGuest
from domain.personal_data.finish_erasures import FinishErasures
from domain.personal_data.merge_guests import MergeGuests
from domain.portal.change_card import ChangeCard
from domain.portal.enter_portal import EnterPortal
from domain.portal.open_portal import OpenPortal
from domain.portal.queries import ReadPortal, ReadPortalLink
from domain.portal.replace_card import ReplaceCard
from domain.products.put_product import PutProduct
from domain.products.queries import ListProducts
from domain.psps.payment_provider import PaymentProvider, Providers
from domain.psps.recognize_merchant import RecognizeMerchant
from domain.sessions.add_card import AddCard
from domain.sessions.card_testing import FindCardTesting
from domain.sessions.notice_unopened import NoticeUnopened
from domain.sessions.queries import ListSessions, ReadSession
from domain.settling.cancel_session import CancelSession, CancelSessionsOfCaller
from domain.settling.complete_agreements import CompleteAgreements
from domain.settling.obtain_page import ObtainPage
from domain.settling.receive_webhook import ReceiveWebhook
from domain.settling.settle_session import SettleSession
from domain.worker.close_account import CloseAccount
from domain.worker.forget_old_records import ForgetOldRecords
from domain.worker.jobs import jobs_at_endpoints, jobs_at_psps
from domain.worker.leave_heartbeat import IsWorkerMissing, LeaveHeartbeat
from domain.worker.read_status import ReadStatus
from entrypoints.databases import storage_in
from entrypoints.psps import InstalledPsp
from entrypoints.settings import JwtSettings, Settings
from entrypoints.settings_error import SettingsError, with_extra_jwt

if TYPE_CHECKING:
    from adapters.json_web_tokens import SigningKeys


Built = TypeVar("Built")


class Part(ThreadSafeSingleton[Built]):
    """Builds a part of the application once.

    The arguments may be changed until the part is built. A later change would have no effect, so
    `add_kwargs` then raises RuntimeError.
    """

    _is_built = False

    @override
    def __call__(self, *args: Any, **kwargs: Any) -> Built:  # type: ignore[override] # no part is awaited
        self._is_built = True
        return super().__call__(*args, **kwargs)

    @override
    def add_kwargs(self, **kwargs: Any) -> Self:  # as in the library
        if self._is_built:
            raise RuntimeError(f"{self.cls.__name__} is built already, without {', '.join(kwargs)}")
        super().add_kwargs(**kwargs)
        return self

    @override
    def reset(self) -> Any:  # as in the library
        self._is_built = False
        return super().reset()


def decorated(part: Built, *, by: Callable[[Built], Built] = lambda part: part) -> Built:
    """Return a part wrapped in the decorator `by`. By default, the part is not wrapped."""
    return by(part)


def make_psps(
    psps: Mapping[ProviderName, InstalledPsp], clock: Clock, ids: Ids
) -> Mapping[ProviderName, PaymentProvider]:
    """Return the adapter of each PSP that is set up.

    Raises SettingsError if a plugin cannot make its adapter.
    """
    return {name: psp.make(clock, ids) for name, psp in psps.items() if psp.is_set_up}


def for_test_cards(psps: Mapping[ProviderName, InstalledPsp]) -> frozenset[ProviderName]:
    """Return the PSPs that take only test cards. Such PSPs do not have keys."""
    return frozenset(name for name, psp in psps.items() if psp.takes_test_cards)


def public_origin(settings: Settings) -> str | None:
    """Return the origin at which guests reach the service.

    Return None if only this machine can reach the service.
    """
    return None if settings.is_on_loopback else settings.public_base_url


def guard(
    psps: Mapping[ProviderName, PaymentProvider],
    *,
    bulkhead: Bulkhead | None,
    breakers: CircuitBreakers,
    outages: OutageLog,
    merchants: MerchantCheck,
) -> Providers:
    """Wrap each PSP's adapter in a GuardedProvider, which applies these guards to every call."""
    return Providers(
        {
            name: GuardedProvider(
                name,
                psp,
                bulkhead=bulkhead,
                breakers=breakers,
                outages=outages,
                merchants=merchants,
            )
            for name, psp in psps.items()
        }
    )


def shared_counts(settings: Settings) -> CountStorage | None:
    """Return the Redis storage in which all processes count for rate limits.

    Return None if CARDONFILE_RATE_LIMIT_STORAGE is not set. Does not connect yet. Raises
    SettingsError if the Redis client is not installed.
    """
    if settings.rate_limit_storage is None:
        return None
    try:
        return counts_in_redis(settings.rate_limit_storage)
    except ModuleNotFoundError as missing:
        if missing.name != "redis":
            raise
        raise SettingsError(
            "CARDONFILE_RATE_LIMIT_STORAGE is set, but the Redis client is not installed: "
            "install the extra `redis`"
        ) from None


def signing_keys(settings: JwtSettings) -> SigningKeys:
    """Return the signing keys of an identity provider. Does not connect yet.

    Raises SettingsError if the package for JSON Web Tokens is not installed.
    """
    with with_extra_jwt("CARDONFILE_JWT_ISSUER is set, but the package for JSON Web Tokens"):
        from adapters.json_web_tokens import SigningKeys
    return SigningKeys(settings.keys_url)


def identity_of(opaque: Identity, settings: JwtSettings | None) -> Identity:
    """Return the `Identity` that finds the caller to whom an access token belongs.

    With an identity provider, both the provider's JSON Web Tokens and opaque tokens are accepted.
    Raises SettingsError if the package for JSON Web Tokens is not installed.
    """
    if settings is None:
        return opaque
    keys = signing_keys(settings)
    from adapters.json_web_tokens import EitherIdentity, JsonWebTokens

    json_web = JsonWebTokens(
        issuer=settings.issuer,
        audience=settings.audience,
        keys=keys,
        caller_claim=settings.caller_claim,
        permissions_claim=settings.permissions_claim,
        centers_claim=settings.centers_claim,
        token_type=settings.token_type,
    )
    return EitherIdentity(opaque=opaque, json_web=json_web)


def evidence_signer(keys: str | None) -> EvidenceSigner:
    """Return a signer of evidence that uses `keys`. If `keys` is None, the signer refuses to sign.

    Raises SettingsError if the keys cannot be used, or if the package for signatures is not
    installed.
    """
    if keys is None:
        return NoEvidenceKey()
    with with_extra_jwt("CARDONFILE_EVIDENCE_KEYS is set, but the package for signatures"):
        from adapters.json_web_signatures import EvidenceKeys, NotKeys
    try:
        return EvidenceKeys(keys)
    except NotKeys as error:
        raise SettingsError(
            f"CARDONFILE_EVIDENCE_KEYS must be keys that `cardonfile evidence new-key` made: {error}"
        ) from None


def waking(work: Event, workers: WorkerWatch) -> Callable[[], None]:
    """Return a function that wakes this process's worker and checks that some worker runs.

    `work` is the event for which this process's worker waits. `workers` logs an error if no worker
    runs.
    """

    def wake() -> None:
        work.set()
        workers.check_if_due()

    return wake


def build_app(
    app: falcon.App[falcon.Request, falcon.Response],
    psps: Mapping[ProviderName, InstalledPsp],
    adapters: Mapping[ProviderName, PaymentProvider],
) -> falcon.App[falcon.Request, falcon.Response]:
    """Add the PSPs' own pages to the application, and return it."""
    for name, adapter in adapters.items():
        psps[name].add_routes(adapter, app)
    return app


class Container(DeclarativeContainer):
    """Builds each part of the application once, when it is first needed."""

    settings: Dependency[Settings] = Dependency(instance_of=Settings)

    clock = Part(SystemClock)
    ids = Part(RandomIds)
    traces = Part(TracesOfThreads)
    postal_codes = Part(PostalCodeFormats)
    storage = Part(
        storage_in,
        settings.provided.database,
        connections=settings.provided.database_connections,
    )
    # There is one thread. It starts with the first write, and therefore after any fork.
    token_uses: Part[Executor] = Part(
        ThreadPoolExecutor, max_workers=1, thread_name_prefix="token-uses"
    )
    identity = Part(
        identity_of,
        Factory(OpaqueTokens, storage=storage, clock=clock, writer=token_uses),
        settings.provided.jwt,
    )
    note_act = Part(NoteAct, operator=Factory(operating_system_user), clock=clock, ids=ids)
    note_operators_act = Part(NoteOperatorsAct, storage=storage, note_act=note_act)
    note_event = Part(NoteEvent, ids=ids, traces=traces, psps=settings.provided.psps)
    issue_token = Part(IssueToken, storage=storage, clock=clock, ids=ids, note_act=note_act)
    revoke_token = Part(RevokeToken, storage=storage, clock=clock, note_act=note_act)
    add_event_endpoint = Part(
        AddEventEndpoint,
        storage=storage,
        clock=clock,
        ids=ids,
        note_act=note_act,
        may_be_http=settings.provided.is_on_loopback,
    )
    remove_event_endpoint = Part(
        RemoveEventEndpoint, storage=storage, clock=clock, note_act=note_act
    )
    roll_event_secret = Part(
        RollEventSecret, storage=storage, clock=clock, ids=ids, note_act=note_act
    )
    update_event_endpoint = Part(UpdateEventEndpoint, storage=storage, note_act=note_act)
    replay_event = Part(ReplayEvent, storage=storage, clock=clock, note_act=note_act)
    replay_events_since = Part(ReplayEventsSince, storage=storage, clock=clock, note_act=note_act)
    set_center = Part(SetCenter, storage=storage, note_act=note_act)
    shipped_consents = Part(shipped_consents)
    configure_payments = Part(
        ConfigurePayments,
        storage=storage,
        psps=settings.provided.psps,
        consents_of=Part(ConsentsOf, shipped=shipped_consents),
        note_act=note_act,
    )
    set_consent = Part(
        SetConsent,
        storage=storage,
        psps=settings.provided.psps,
        shipped=shipped_consents,
        note_act=note_act,
    )
    locale_formats = Part(BabelFormats)
    shipped_reservation_texts = Part(shipped_reservation_texts)
    set_reservation_text = Part(
        SetReservationText,
        storage=storage,
        shipped=shipped_reservation_texts,
        formats=locale_formats,
        clock=clock,
        note_act=note_act,
    )
    choose_consent = Part(ChooseConsent, psps=settings.provided.psps, shipped=shipped_consents)
    choose_reservation_text = Part(
        ChooseReservationText,
        psps=settings.provided.psps,
        shipped=shipped_reservation_texts,
        formats=locale_formats,
        choose_consent=choose_consent,
    )
    show_agreement = Part(ShowAgreement, choose_reservation_text=choose_reservation_text)
    psp_adapters = Part(make_psps, settings.provided.psps, clock, ids)
    breakers = Part(CircuitBreakers)
    outages = Part(OutageLog)
    bulkhead = Part(Bulkhead, settings.provided.psp_calls)
    recognize_merchant = Part(
        RecognizeMerchant,
        storage=storage,
        without_keys=Factory(for_test_cards, settings.provided.psps),
    )
    merchants = Part(MerchantCheck, recognize_merchant)
    public_origin = Factory(public_origin, settings)
    recognize_origin = Part(RecognizeOrigin, storage=storage, origin=public_origin)
    move_installation = Part(
        MoveInstallation, storage=storage, origin=public_origin, note_act=note_act
    )
    separate_copy = Part(
        SeparateCopy, storage=storage, origin=public_origin, note_act=note_act, clock=clock
    )
    # The worker has separate threads and limits its calls itself, so it does not need a bulkhead.
    psps_in_worker = Factory(
        guard,
        psp_adapters,
        bulkhead=None,
        breakers=breakers,
        outages=outages,
        merchants=merchants,
    )
    worker_psps = Part(psps_in_worker)
    psps = Part(psps_in_worker, bulkhead=bulkhead)
    links = Part(HostedLinks, base_url=settings.provided.public_base_url)

    session_log = Part(decorated, Factory(LinesOfSessions))
    erasure_log = Part(LinesOfErasures)
    obtain_in_worker = Factory(
        ObtainPage,
        storage=storage,
        providers=worker_psps,
        clock=clock,
        note_event=note_event,
        log=session_log,
    )
    obtain_page = Part(obtain_in_worker, providers=psps)
    settle_in_worker = Factory(
        SettleSession,
        storage=storage,
        limits=settings.provided.card_testing_limits,
        providers=worker_psps,
        obtain_page=obtain_in_worker,
        clock=clock,
        ids=ids,
        traces=traces,
        note_event=note_event,
        note_act=note_act,
        log=session_log,
        log_taken_back=Object(log_taken_back),
    )
    settle_session = Part(settle_in_worker, providers=psps, obtain_page=obtain_page)
    discard_token = Part(DiscardToken, storage=storage, providers=worker_psps, clock=clock)
    refresh_account = Part(
        RefreshAccount,
        storage=storage,
        providers=worker_psps,
        psps=settings.provided.psps,
        clock=clock,
        note_event=note_event,
        log_lost=Object(log_lost_card),
        log_stopped=Object(log_stopped_removal),
    )
    import_card = Part(
        ImportCard,
        storage=storage,
        providers=worker_psps,
        psps=settings.provided.psps,
        clock=clock,
        ids=ids,
        note_event=note_event,
    )
    compare_cards = Part(CompareCards, storage=storage, providers=worker_psps, clock=clock)
    http_event_sender = Part(
        HttpEventSender,
        may_be_http=settings.provided.is_on_loopback,
        allowed_networks=settings.provided.event_networks,
    )
    event_sender = Part(decorated, http_event_sender)
    send_test_event = Part(
        SendTestEvent, storage=storage, sender=event_sender, clock=clock, ids=ids
    )
    deliver_event = Part(DeliverEvent, storage=storage, sender=event_sender, clock=clock)
    jobs_at_psps = Factory(jobs_at_psps, settle_in_worker, discard_token, refresh_account, clock)
    jobs_at_endpoints = Factory(jobs_at_endpoints, deliver_event)
    erasure_file = Part(TextErasureFile, settings.provided.erasures_file)
    finish_erasures = Part(
        FinishErasures,
        storage=storage,
        file=erasure_file,
        providers=worker_psps,
        psps=settings.provided.psps,
        log=erasure_log,
        clock=clock,
        note_event=note_event,
    )
    notice_expiry = Part(
        NoticeExpiry,
        storage=storage,
        psps=settings.provided.psps,
        clock=clock,
        note_event=note_event,
    )
    notice_unopened = Part(NoticeUnopened, storage=storage, clock=clock, note_event=note_event)
    end_agreements = Part(EndAgreements, storage=storage, clock=clock, note_event=note_event)
    remove_ended_cards = Part(RemoveEndedCards, storage=storage, clock=clock, note_event=note_event)
    complete_agreements = Part(
        CompleteAgreements, storage=storage, clock=clock, ids=ids, note_event=note_event
    )
    forget_old_records = Part(
        ForgetOldRecords,
        storage=storage,
        clock=clock,
        retention=settings.provided.retention,
    )
    cancel_sessions_of_caller = Part(
        CancelSessionsOfCaller, storage=storage, clock=clock, note_act=note_act
    )
    confirm_keys = Part(ConfirmKeys, storage=storage, clock=clock, note_act=note_act)
    trust_keys = Part(TrustKeys, storage=storage, note_act=note_act)
    close_account = Part(
        CloseAccount,
        storage=storage,
        settle=settle_in_worker,
        discard=discard_token,
        refresh=refresh_account,
        clock=clock,
        note_act=note_act,
    )
    export_guest = Part(ExportGuest, storage=storage, note=note_operators_act)
    find_card_testing = Part(FindCardTesting, storage=storage, clock=clock)

    # The use cases behind the API's operations.
    add_card = Part(
        AddCard,
        storage=storage,
        limits=settings.provided.card_testing_limits,
        postal_codes=postal_codes,
        psps=settings.provided.psps,
        formats=locale_formats,
        clock=clock,
        ids=ids,
        traces=traces,
        log=session_log,
    )
    list_sessions = Part(ListSessions, storage=storage)
    read_session = Part(ReadSession, storage=storage, clock=clock)
    cancel_session = Part(CancelSession, storage=storage, settle=settle_session, clock=clock)
    make_desk_link = Part(MakeDeskLink, storage=storage, clock=clock, ids=ids)
    read_link_to_send = Part(ReadLinkToSend, storage=storage, links=links, clock=clock)
    read_desk = Part(
        ReadDesk, storage=storage, links=links, choose_consent=choose_consent, clock=clock
    )
    cancel_at_desk = Part(CancelAtDesk, storage=storage, cancel_session=cancel_session, clock=clock)
    open_portal = Part(OpenPortal, storage=storage, clock=clock, ids=ids, note_act=note_act)
    enter_portal = Part(EnterPortal, storage=storage, clock=clock, ids=ids)
    languages = Object(LANGUAGES)
    read_portal_link = Part(
        ReadPortalLink, storage=storage, links=links, languages=languages, clock=clock
    )
    read_portal = Part(ReadPortal, storage=storage, links=links, languages=languages, clock=clock)
    change_card = Part(
        ChangeCard,
        storage=storage,
        clock=clock,
        note_event=note_event,
        note_act=note_act,
        log_taken_back=Object(log_taken_back),
    )
    replace_card = Part(
        ReplaceCard,
        storage=storage,
        limits=settings.provided.card_testing_limits,
        links=links,
        clock=clock,
        ids=ids,
        traces=traces,
        log=session_log,
    )
    list_accounts = Part(ListAccounts, storage=storage)
    read_account = Part(ReadAccount, storage=storage, psps=settings.provided.psps, clock=clock)
    read_consent = Part(ReadConsent, storage=storage)
    list_agreements = Part(ListAgreements, storage=storage)
    read_agreement = Part(ReadAgreement, storage=storage)
    signer = Part(evidence_signer, settings.provided.evidence_keys)
    read_evidence = Part(
        ReadEvidence,
        storage=storage,
        gather=Factory(GatherEvidence, base_url=settings.provided.public_base_url),
        signer=signer,
        clock=clock,
        note=note_operators_act,
    )
    end_agreement = Part(
        EndAgreement, storage=storage, clock=clock, note_event=note_event, note_act=note_act
    )
    remove_account = Part(
        RemoveAccount, storage=storage, clock=clock, note_event=note_event, note_act=note_act
    )
    choose_default_card = Part(ChooseDefaultCard, storage=storage)
    list_expiring_cards = Part(ListExpiringCards, storage=storage)
    merge_guests = Part(
        MergeGuests,
        storage=storage,
        file=erasure_file,
        note_act=note_act,
        clock=clock,
        note_event=note_event,
    )
    erase_guest = Part(
        EraseGuest,
        storage=storage,
        file=erasure_file,
        note_act=note_act,
        log=erasure_log,
        clock=clock,
        note_event=note_event,
        merge_guests=merge_guests,
    )
    put_guest = Part(PutGuest, storage=storage)
    read_guest = Part(ReadGuest, storage=storage)
    search_guests = Part(SearchGuests, storage=storage)
    list_centers = Part(ListCenters, storage=storage, psps=settings.provided.psps)
    read_center = Part(ReadCenter, storage=storage, psps=settings.provided.psps)
    list_events = Part(ListEvents, storage=storage, clock=clock)
    read_event = Part(ReadEvent, storage=storage)
    list_products = Part(ListProducts, storage=storage)
    put_product = Part(PutProduct, storage=storage)
    use_card_on_file = Part(
        UseCardOnFile,
        storage=storage,
        show_agreement=show_agreement,
        note_event=note_event,
        clock=clock,
        ids=ids,
        log=session_log,
    )
    open_hosted_page = Part(
        OpenHostedPage,
        storage=storage,
        limits=settings.provided.card_testing_limits,
        settle=settle_session,
        obtain_page=obtain_page,
        choose_consent=choose_consent,
        show_agreement=show_agreement,
        use_card_on_file=use_card_on_file,
        postal_codes=postal_codes,
        links=links,
        clock=clock,
        traces=traces,
        log=session_log,
        notes_browsers=settings.provided.notes_browsers,
    )
    return_from_hosted_page = Part(
        ReturnFromHostedPage,
        storage=storage,
        providers=psps,
        settle=settle_session,
        links=links,
        clock=clock,
    )
    cancel_hosted_page = Part(CancelHostedPage, storage=storage, clock=clock)
    find_page_content = Part(
        FindPageContent,
        storage=storage,
        links=links,
        psps=settings.provided.psps,
        choose_consent=choose_consent,
        show_agreement=show_agreement,
        clock=clock,
    )
    receive_webhook = Part(ReceiveWebhook, storage=storage, providers=psps, clock=clock)

    rate_limits = Part(
        RateLimits,
        write=settings.provided.write_limit,
        shared=Factory(shared_counts, settings),
    )
    leave_heartbeat = Part(LeaveHeartbeat, storage=storage, clock=clock)
    workers = Part(
        WorkerWatch,
        Factory(
            IsWorkerMissing, storage=storage, clock=clock, watching_since=clock.provided.now.call()
        ),
    )
    read_status = Part(ReadStatus, storage=storage, clock=clock)
    work_for_reconciler = Part(Event)
    wake_reconciler = Part(waking, work_for_reconciler, workers)

    # The resources of the API.
    authenticate = Part(Authentication, identity=identity, limits=rate_limits)
    guests = Part(
        GuestResource,
        put_guest=put_guest,
        read_guest=read_guest,
        search_guests=search_guests,
        erase_guest=erase_guest,
        merge_guests=merge_guests,
        wake_reconciler=wake_reconciler,
    )
    sessions = Part(
        SessionResource,
        add_card=add_card,
        list_sessions=list_sessions,
        read_session=read_session,
        cancel_session=cancel_session,
        links=links,
        wake_reconciler=wake_reconciler,
    )
    desk = Part(
        DeskResource,
        make_desk_link=make_desk_link,
        read_link_to_send=read_link_to_send,
        read_desk=read_desk,
        cancel_at_desk=cancel_at_desk,
        limits=rate_limits,
        links=links,
        wake_reconciler=wake_reconciler,
    )
    portal = Part(
        PortalResource,
        open_portal=open_portal,
        read_portal_link=read_portal_link,
        enter_portal=enter_portal,
        read_portal=read_portal,
        change_card=change_card,
        replace_card=replace_card,
        limits=rate_limits,
        links=links,
        formats=locale_formats,
        clock=clock,
        wake_reconciler=wake_reconciler,
    )
    cards = Part(
        CardResource,
        list_accounts=list_accounts,
        read_account=read_account,
        read_consent=read_consent,
        remove_account=remove_account,
        choose_default_card=choose_default_card,
        list_expiring_cards=list_expiring_cards,
        clock=clock,
        wake_reconciler=wake_reconciler,
    )
    centers = Part(CenterResource, list_centers=list_centers, read_center=read_center)
    agreements = Part(
        AgreementResource,
        list_agreements=list_agreements,
        read_agreement=read_agreement,
        end_agreement=end_agreement,
    )
    evidence = Part(EvidenceResource, read_evidence=read_evidence, signer=signer)
    products = Part(ProductResource, list_products=list_products, put_product=put_product)
    event_list = Part(
        EventResource,
        list_events=list_events,
        read_event=read_event,
        encode=Object(encode),
    )
    hosted_payments = Part(
        HostedPayments,
        open_hosted_page=open_hosted_page,
        return_from_hosted_page=return_from_hosted_page,
        cancel_hosted_page=cancel_hosted_page,
        find_page_content=find_page_content,
        links=links,
        ids=ids,
        wake_reconciler=wake_reconciler,
    )
    webhooks = Part(Webhooks, receive_webhook=receive_webhook, wake_reconciler=wake_reconciler)
    logos = Part(Logos, storage=storage)
    health = Part(HealthChecks, storage=storage, workers=workers)
    api = Part(
        create_app,
        guests=guests,
        sessions=sessions,
        desk=desk,
        portal=portal,
        cards=cards,
        agreements=agreements,
        evidence=evidence,
        centers=centers,
        products=products,
        event_list=event_list,
        hosted_payments=hosted_payments,
        webhooks=webhooks,
        health=health,
        logos=logos,
        authenticate=authenticate,
        links=links,
        events=Factory(examples),
        ids=ids,
        hsts=settings.provided.hsts,
    )
    app = Part(build_app, api, settings.provided.psps, psp_adapters)
    behind_proxy = Part(TrustedProxy, app, settings.provided.trusted_proxy)


def build(settings: Settings) -> Container:
    """Return the container for these settings. Nothing is opened before it is needed."""
    container = Container()
    container.settings.override(settings)
    return container

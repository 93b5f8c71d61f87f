"""The refusals by rules of the domain, each with its code, type and message.

Refusals of requests that do not reach a rule are in `adapters/http/errors.py`.

The code is both the HTTP status and the response's `error.code`. Types and messages are part of the
interface, because clients compare them. They do not change within a version of the API (`/v1` in
the path), even if the names of the classes change.
"""

from __future__ import annotations

from typing import ClassVar


class Refusal(Exception):
    """A request that a rule refuses. Its code, type and message are shown to the caller."""

    code: ClassVar[int]
    type: ClassVar[str]
    message: str

    def __init__(self) -> None:
        super().__init__(self.message)


class UserNotAuthenticated(Refusal):
    """The token is missing, unknown, expired or revoked."""

    code = 401
    type = "user_not_authenticated"
    message = "User not authenticated"


class UserNotAuthorized(Refusal):
    """The caller lacks the permission, or is limited to other centers."""

    code = 403
    type = "user_not_authorized"
    message = "User not authorized"


class GuestNotFound(Refusal):
    """The guest id is a UUID, but no guest has this id."""

    code = 404
    type = "guest_not_found"
    message = "Guest not found"


class GuestIdNotUsable(Refusal):
    """The guest id is not a UUID, so no guest can have it."""

    code = 400
    type = "invalid_guest_id"
    message = "Guest not found"


class InvalidCenterId(Refusal):
    """The center id is missing or malformed, or no center has this id."""

    code = 400
    type = "invalid_center_id"
    message = "Invalid center id"


class RedirectUriRequired(Refusal):
    """The redirect_uri is missing, null or blank."""

    code = 400
    type = "redirect_uri_required"
    message = "redirect_uri is required"


class RedirectUriInvalid(Refusal):
    """The redirect_uri is unusable, or not allowed at this center."""

    code = 400
    type = "redirect_uri_invalid"
    message = "redirect_uri is invalid"


class InvalidSource(Refusal):
    """The source is neither 1 (web store) nor 5 (mobile)."""

    code = 400
    type = "invalid_source"
    message = "Invalid source"


class BillingInfoRequired(Refusal):
    """Address verification is on, and billing_info or one of its required fields is missing.

    `field` is the field's name within billing_info; None means billing_info as a whole.
    """

    code = 400
    type = "billing_info_required"

    def __init__(self, field: str | None = None) -> None:
        self.message = f"{_billing_path(field)} is required"
        super().__init__()


class BillingInfoInvalid(Refusal):
    """A field of billing_info is malformed.

    `field` is the field's name within billing_info; None means billing_info as a whole.
    """

    code = 400
    type = "billing_info_invalid"

    def __init__(self, field: str | None = None) -> None:
        self.message = f"{_billing_path(field)} is invalid"
        super().__init__()


def _billing_path(field: str | None) -> str:
    return "billing_info" if field is None else f"billing_info.{field}"


class IdempotencyKeyInvalid(Refusal):
    """The Idempotency-Key is not 1 to 255 visible ASCII characters."""

    code = 400
    type = "idempotency_key_invalid"
    message = "Idempotency-Key is invalid"


class PreconditionFailed(Refusal):
    """If-Match does not name the guest's present version, or the guest does not exist yet."""

    code = 412
    type = "precondition_failed"
    message = "Precondition failed"


class IdempotencyKeyReused(Refusal):
    """The same caller sent a different request under this Idempotency-Key within 24 hours."""

    code = 422
    type = "idempotency_key_reused"
    message = "Idempotency-Key was used with a different request"


class PaymentConfigurationNotDone(Refusal):
    """The center has no payment processing configured."""

    code = 400
    type = "payment_configuration_not_done"
    message = "Payment configuration not done"


class PaymentMethodAlreadyExists(Refusal):
    """The same card is already on file."""

    code = 400
    type = "payment_method_already_exists"
    message = "Payment method already exists"


class CenterKeepsOneCard(PaymentMethodAlreadyExists):
    """The center keeps only one card of each guest, and the guest has another card there."""

    type = "center_keeps_one_card"


class CardIncomplete(Refusal):
    """The PSP left out a detail of the card that must be stored, such as the expiry date."""

    code = 400
    type = "card_incomplete"
    message = "Card details are incomplete"


class PaymentMethodNotAccepted(Refusal):
    """The center does not accept this funding, or the bank did not authenticate the guest."""

    code = 400
    type = "payment_method_not_accepted"
    message = "Payment method not accepted"


class IncorrectBillingAddress(Refusal):
    """The postal code does not have its country's format, or the bank says the address is wrong."""

    code = 400
    type = "incorrect_billing_address"
    message = (
        "Transaction failed due to an incorrect billing address. "
        "Please update the postal code and try again."
    )


class InvalidField(Refusal):
    """A field of a request, record, token or configuration is missing or has an invalid value.

    `expected` describes the valid values, for example "a UUID". Messages put it after "expected" or
    "must be". It never contains the invalid value, which may be a card number.
    """

    code = 400
    type = "invalid_field"

    def __init__(self, field: str, expected: str) -> None:
        self.field = field
        self.expected = expected
        self.message = f"{field} must be {expected}"
        super().__init__()


class InvalidProductId(Refusal):
    """The product id is not a UUID, or the product belongs to another center."""

    code = 400
    type = "invalid_product_id"
    message = "Invalid product id"


class SessionNotFound(Refusal):
    """The guest has no session with this token id at a center that the caller may see."""

    code = 404
    type = "session_not_found"
    message = "Session not found"


class SessionEnded(Refusal):
    """The session was cancelled or settled, or has expired, so its link no longer works."""

    code = 409
    type = "session_ended"
    message = "Session has ended"


class TooManyDeskLinks(Refusal):
    """The session already has 20 desk links."""

    code = 409
    type = "too_many_desk_links"
    message = "Too many desk links"


class PaymentAccountNotFound(Refusal):
    """The guest has no active account with this id at a center that the caller may see."""

    code = 404
    type = "payment_account_not_found"
    message = "Payment account not found"


class ConsentNotSet(Refusal):
    """The center takes no agreements yet, because its consent text about bookings is not set."""

    code = 400
    type = "consent_not_set"
    message = "Consent not set"


class AgreementReferenceUsed(Refusal):
    """The guest has another session or agreement for this booking at the center."""

    code = 409
    type = "agreement_reference_used"
    message = "Agreement reference used"


class AgreementEnded(Refusal):
    """The booking or its agreement had ended before the card could be stored."""

    code = 400
    type = "agreement_ended"
    message = "Agreement ended"


class TooManyAgreements(Refusal):
    """The card already has 20 open agreements."""

    code = 400
    type = "too_many_agreements"
    message = "Too many agreements"


class AgreementNotFound(Refusal):
    """The guest has no agreement with this id at a center that the caller may see."""

    code = 404
    type = "agreement_not_found"
    message = "Agreement not found"


class EventNotFound(Refusal):
    """No event with this id is stored at a center that the caller may see."""

    code = 404
    type = "event_not_found"
    message = "Event not found"


class EventsGone(Refusal):
    """Events after the requested position were deleted, or the position is from another list."""

    code = 410
    type = "events_gone"
    message = "Events gone"


class EvidenceKeyMissing(Refusal):
    """The operator has not set a key to sign evidence."""

    code = 400
    type = "evidence_key_missing"
    message = "Evidence key missing"


class CardsDoNotMatch(Refusal):
    """The cards of the two guests have changed since the caller read them."""

    code = 409
    type = "cards_do_not_match"
    message = "Cards do not match"


class TooManyItems(Refusal):
    """The requested page has more than 100 items."""

    code = 422
    type = "too_many_items"
    message = "You cannot request more than 100 items."


class PageParameterInvalid(Refusal):
    """`page` or `size` is not a plain decimal number of at least 1, or is repeated."""

    code = 422
    type = "page_parameter_invalid"

    def __init__(self, parameter: str) -> None:
        self.message = f"{parameter} must be a whole number of at least 1, in decimal digits"
        super().__init__()


class TooManyRequests(Refusal):
    """A limit is reached, and nothing was done.

    `retry_after_seconds` is the time to wait.
    """

    code = 429
    type = "too_many_requests"
    message = "Too many requests"

    def __init__(self, retry_after_seconds: int) -> None:
        self.retry_after_seconds = retry_after_seconds
        super().__init__()


class CardLimitReached(TooManyRequests):
    """A limit against card testing is reached, and nothing was done.

    `counted` is what the limit counts: sessions or refused cards. `of` names who reached the limit.
    It is the id of a guest or a center, or the name of a caller.
    """

    type = "card_limit_reached"

    def __init__(self, *, counted: str, of: str, retry_after_seconds: int) -> None:
        self.counted = counted
        self.of = of
        super().__init__(retry_after_seconds)


class PortalLimitReached(TooManyRequests):
    """The guest already had 20 portal sessions at this center in the last 24 hours."""

    type = "portal_limit_reached"


class ServiceUnavailable(Refusal):
    """The storage cannot be read or written now, or an identity provider's keys cannot be read.

    Nothing was done, unless the connection to the database was lost during a commit. In that case,
    the unit may have been committed.
    """

    code = 503
    type = "service_unavailable"
    message = "Service temporarily unavailable"

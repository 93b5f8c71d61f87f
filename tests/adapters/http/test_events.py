from __future__ import annotations

from datetime import timedelta

from adapters.events.payload import encode
from tests.adapters.http.api import Api, refused, refused_bare
from tests.installation import Installation

EVENTS = "/api/v1/events"


def test_an_event_in_the_list_has_the_same_bytes_as_the_event_sent_to_endpoints(
    installation: Installation,
) -> None:
    installation.has_endpoint()
    installation.removed_card()
    (pushed, _) = sorted(encode(each.event) for each in installation.deliveries())
    event = min(installation.events(), key=encode)
    api = Api(installation)

    assert pushed in api.get(EVENTS).content
    read = api.get(f"{EVENTS}/{event.event_id}")
    assert read.content == b'{"success":true,"error":null,"event":' + pushed + b"}"


def test_a_client_can_continue_reading_the_list_of_events_from_the_last_position(
    installation: Installation,
) -> None:
    installation.removed_card()
    api = Api(installation)
    first = api.get(EVENTS, "size=1").json
    second = api.get(EVENTS, f"after={first['next']}&type=account.removed&type=account.stored").json

    assert first.keys() == {"events", "next"}
    assert [each["type"] for each in first["events"] + second["events"]] == [
        "account.stored",
        "account.removed",
    ]
    assert api.get(EVENTS, f"after={second['next']}").json == {
        "events": [],
        "next": second["next"],
    }


def test_the_list_of_events_does_not_support_page_numbers(installation: Installation) -> None:
    api = Api(installation)
    assert refused(api.get(EVENTS, "page=1")) == (400, "Unknown query parameter: page")
    assert "link" not in api.get(EVENTS).headers
    too_many = (422, "You cannot request more than 100 items.")
    assert refused_bare(api.get(EVENTS, "size=101")) == too_many
    for size in ("0", "ten", "1&size=1"):
        assert refused_bare(api.get(EVENTS, f"size={size}"))[0] == 422


def test_listing_events_after_a_position_whose_events_were_deleted_responds_410(
    installation: Installation,
) -> None:
    api = Api(installation)
    beginning = api.get(EVENTS).json["next"]
    installation.stored_card()
    installation.clock.advance(timedelta(days=31))
    while installation.container.forget_old_records()():
        pass
    gone = Api(installation).get(EVENTS, f"after={beginning}")
    assert refused(gone) == (410, "Events gone")
    assert gone.headers["error-type"] == "events_gone"

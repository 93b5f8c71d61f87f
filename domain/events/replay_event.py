"""Send an event again."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from domain.audit.entry import Action
from domain.audit.note_act import NoteAct
from domain.events.event import EventDelivery
from domain.identifiers import EventId, plain_uuid
from domain.outside import Clock
from domain.storage import AlreadyStored, Storage, WriteUnit


class EventNotFound(LookupError):
    """No event with this id is on record for an endpoint."""

    def __init__(self) -> None:
        super().__init__("no event has this id")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayEvent:
    """Use case: send an event again to every endpoint that takes such events now.

    That may be another endpoint than at first. The event keeps its id. May be called again; each
    call sends it once more. Raises EventNotFound.
    """

    storage: Storage
    clock: Clock
    note_act: NoteAct

    def __call__(self, event_id: str) -> int:
        """Make the deliveries due at once, and return how many there are."""
        now = self.clock.now()
        uuid = plain_uuid(event_id.removeprefix("evt_"))
        if uuid is None:
            raise EventNotFound

        def replay(unit: WriteUnit) -> int:
            known = {
                delivery.endpoint_id: delivery
                for delivery in unit.event_deliveries.of(EventId(f"evt_{uuid}"))
            }
            if not known:
                raise EventNotFound
            event = next(iter(known.values())).event
            takers = [endpoint for endpoint in unit.event_endpoints.all() if endpoint.takes(event)]
            for endpoint in takers:
                delivery = known.get(endpoint.endpoint_id)
                if delivery is not None:
                    unit.event_deliveries.update(delivery.replayed(now))
                    continue
                # Another replay may add it at the same time. Then it is due as well.
                with suppress(AlreadyStored):
                    unit.event_deliveries.add(
                        EventDelivery(event=event, endpoint_id=endpoint.endpoint_id, due_at=now)
                    )
            self.note_act(unit, Action.EVENT_REPLAYED, event.event_id, {"endpoints": len(takers)})
            unit.commit()
            return len(takers)

        return self.storage.transact(replay)

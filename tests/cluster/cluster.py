"""Start and control the processes of a cluster, on ports of the loopback address.

Patroni and HAProxy run with the files that docs/scaling.md recommends.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Final

import psycopg

from adapters.postgresql.migrations import migrate
from tests.entrypoints.load import Machines
from tests.postgresql import server_user
from tests.programs import ROOT, SERVE, Program, Server, free_port
from tests.redis_server import own_redis
from tests.serving import GRANIAN_OPTIONS, START_GRANIAN
from tests.shared import NotInstalled
from tests.waiting import LIMIT_SECONDS, wait_until

EXAMPLES: Final = ROOT / "docs" / "examples"
NODES: Final = ("db1", "db2", "db3")
SYNCHRONOUS: Final = ("synchronous_mode", "synchronous_mode_strict")
PASSWORD: Final = "s3cret"
STATE_SECONDS: Final = 600
"""How long to wait for a state of the cluster. Even a busy machine takes less time."""
SESSION_MINUTES: Final = 720
"""The sessions' links are so long-lived that no link expires during a run."""


def replaced(text: str, changes: Mapping[str, str]) -> str:
    """Return an example file with these parts replaced. The example must contain each of them."""
    for there, here in changes.items():
        assert there in text, there
        text = text.replace(there, here)
    return text


def program(name: str) -> str:
    """Return the path of a program. Raises NotInstalled.

    Programs that `make test-cluster` has installed, such as Patroni, take precedence over those of
    this machine.
    """
    path = f"{ROOT}/build/cluster/bin:{os.environ.get('PATH', '')}:/usr/sbin"
    found = shutil.which(name, path=path)
    if found is None:
        raise NotInstalled(
            f"There is no {name}: run `make test-cluster`, as root or after installing it"
        )
    return found


def postgresql_programs() -> str:
    """Return the folder with the programs of the newest installed PostgreSQL package of Debian.

    Raises NotInstalled.
    """
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda each: int(each.parts[-2]))
    if not found:
        raise NotInstalled("There is no PostgreSQL: install the package postgresql")
    return str(found[-1])


class Process:
    """A program that can be killed and restarted. Its output is appended to a log file."""

    def __init__(self, folder: Path, *command: str, user: str | None = None) -> None:
        self._folder = folder
        self._command = command
        self._user = user
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the program, and return at once."""
        kept = {name: each for name, each in os.environ.items() if name in ("PATH", "LANG")}
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                cwd=self._folder,
                env={**kept, "HOME": str(self._folder)},
                stdout=log,
                stderr=log,
                user=self._user,
                start_new_session=True,
            )

    def kill(self) -> None:
        """Kill the program if it is running."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(LIMIT_SECONDS)
            self._process = None


class Node(Process):
    """A node of the cluster: a simulated machine with Patroni and PostgreSQL."""

    def __init__(self, folder: Path, name: str) -> None:
        self.name = name
        self.port, self.api_port = free_port(), free_port()
        self.configuration = folder / "patroni.yml"
        user = server_user()
        super().__init__(folder, program("patroni"), str(self.configuration), user=user)
        if user:
            shutil.chown(folder, user)
        self.url = f"postgresql://postgres:{PASSWORD}@127.0.0.1:{self.port}/postgres"

    def configure(self, etcd: int, changes: Mapping[str, str]) -> None:
        """Write the configuration of this node: the example file with these changes.

        `etcd` is the port of etcd.
        """
        text = (EXAMPLES / "patroni.yml").read_text()
        everywhere = {
            "name: db1": f"name: {self.name}",
            "10.0.0.11:8008": f"127.0.0.1:{self.api_port}",
            "10.0.0.11:2379,10.0.0.12:2379,10.0.0.13:2379": f"127.0.0.1:{etcd}",
            "10.0.0.11:5432": f"127.0.0.1:{self.port}",
            "/var/lib/postgresql/cardonfile": f"{self._folder}/data",
            "/usr/lib/postgresql/15/bin": postgresql_programs(),
            "change-me-1": PASSWORD,
            "change-me-2": PASSWORD,
            "change-me-3": PASSWORD,
            "  pg_hba:\n": f"  parameters:\n    unix_socket_directories: {self._folder}\n"
            "  pg_hba:\n",
        }
        self.configuration.write_text(replaced(text, {**everywhere, **changes}))

    def processes(self, state: str = "") -> list[int]:
        """Return the ids of the processes of Patroni and PostgreSQL on this node.

        `state` limits them to processes in one of these states, such as `T` for stopped.
        """
        found = []
        for each in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                here = (each / "cwd").readlink()
                # The state follows the name, which is in parentheses and may contain anything.
                now = (each / "stat").read_text().rpartition(")")[2].split()[0]
                if self._folder in (here, *here.parents) and now != "Z":
                    found.append((now != "T", int(each.name), now))
        return [process for _, process, now in sorted(found) if now in (state or now)]

    def signal(self, number: signal.Signals, *, only: str = "") -> None:
        """Send a signal to all processes of this node whose command line contains `only`."""
        for process in self.processes():
            with suppress(OSError):
                if only in Path(f"/proc/{process}/cmdline").read_text():
                    os.kill(process, number)

    def die(self) -> None:
        """Kill all processes of this node at once, as in a power failure."""

        def is_dead() -> bool:
            self.signal(signal.SIGKILL)
            return not self.processes()

        self.signal(signal.SIGSTOP)
        wait_until(is_dead)
        self.kill()

    def pause(self) -> None:
        """Pause all processes of this node, as when a virtual machine is migrated."""

        def is_paused() -> bool:
            self.signal(signal.SIGSTOP)
            return set(self.processes()) == set(self.processes("T"))

        wait_until(is_paused)

    def resume(self) -> None:
        """Let the processes that `pause` stopped continue."""
        self.signal(signal.SIGCONT)

    def responds(self, path: str) -> bool:
        """Return whether Patroni's API responds with 200 at `path`.

        HAProxy makes the same check.
        """
        connection = HTTPConnection("127.0.0.1", self.api_port, timeout=2)
        with suppress(OSError, HTTPException), closing(connection):
            connection.request("GET", path)
            return connection.getresponse().status == 200
        return False

    def ask(self, statement: str) -> str:
        """Run a statement on this node's server, and return its single value as text.

        Return "" if the server is unavailable.
        """
        with (
            suppress(psycopg.Error),
            psycopg.connect(self.url, connect_timeout=2, autocommit=True) as connection,
        ):
            row = connection.execute(statement.encode()).fetchone()
            return str(row[0]) if row else ""
        return ""

    @property
    def synchronous_standbys(self) -> int:
        """How many synchronous standbys are streaming from this node."""
        states = "sync_state IN ('sync', 'quorum') AND state = 'streaming'"
        return int(self.ask(f"SELECT count(*) FROM pg_stat_replication WHERE {states}") or 0)


class Cluster(Server):
    """Three nodes, etcd, HAProxy, and two machines that run the service: granian and a worker each.

    `port` is HAProxy's port for the service. `url` is the address of the database, also through
    HAProxy.
    """

    def __init__(self, folder: Path, *, is_synchronous: bool) -> None:
        folder.chmod(0o755)
        self._folder = folder
        self._stack = ExitStack()
        self._is_synchronous = is_synchronous
        self.port, database_port, etcd, peers = (free_port() for _ in range(4))
        self.url = f"postgresql://cardonfile:{PASSWORD}@127.0.0.1:{database_port}/cardonfile"
        self.etcd = self._etcd(etcd, peers)
        self.nodes = [Node(self._new(name), name) for name in NODES]
        off = {f"{name}: true": f"{name}: false" for name in SYNCHRONOUS}
        for node in self.nodes:
            node.configure(etcd, {} if is_synchronous else off)
        self._service_ports = free_port(), free_port()
        self.haproxy = self._haproxy(database_port)
        self.programs: list[Program] = []

    def start(self) -> Machines:
        """Start all processes, and return the service as clients and checks reach it."""
        self.etcd.start()
        for node in self.nodes:
            node.start()
        wait_until(self.is_healthy, seconds=STATE_SECONDS)
        for statement in (
            f"CREATE ROLE cardonfile LOGIN PASSWORD '{PASSWORD}'",
            "CREATE DATABASE cardonfile OWNER cardonfile",
            "CREATE TABLE written (number integer)",
        ):
            with psycopg.connect(self.primary().url, autocommit=True) as connection:
                connection.execute(statement.encode())
        self.haproxy.start()
        wait_until(self._leads_to_primary, seconds=STATE_SECONDS)
        migrate(self.url)
        redis = self._stack.enter_context(own_redis())
        machines = Machines(
            self._new("service"),
            self.url,
            machines=1,
            CARDONFILE_PUBLIC_BASE_URL=f"http://127.0.0.1:{self.port}",
            CARDONFILE_RATE_LIMIT_STORAGE=redis.url,
            CARDONFILE_WRITE_LIMIT="1000/second",
            CARDONFILE_TRUSTED_PROXY="127.0.0.1",
        )
        machines.installation.configure(session_minutes=SESSION_MINUTES)
        machines.installation.close()
        # Clients and commands reach the cluster only through HAProxy.
        (machine,) = machines.each
        machine.port = self.port
        for number, port in enumerate(self._service_ports):
            for name, command in {
                "granian": (
                    *(START_GRANIAN, *GRANIAN_OPTIONS),
                    *("--workers", "1", "--port", str(port)),
                ),
                "work": (SERVE, "work"),
            }.items():
                own = self._new(f"{name}-{number}")
                started = Program(own, *command, **machine.environment)
                self.programs.append(self._stack.enter_context(started))
        wait_until(lambda: self.status("/readyz") == 200, seconds=STATE_SECONDS)
        return machines

    def primary(self) -> Node:
        """Wait until Patroni reports a primary, and return that node."""
        return wait_until(
            lambda: next((each for each in self.nodes if each.responds("/primary")), None),
            seconds=STATE_SECONDS,
        )

    def standbys(self) -> list[Node]:
        """Return the nodes that are not the primary."""
        primary = self.primary()
        return [each for each in self.nodes if each is not primary]

    def writable(self, *, but: Node | None = None) -> Node | None:
        """Return the primary if it can commit. Return None if it cannot, or if it is `but`."""
        for node in self.nodes:
            if node is not but and node.responds("/primary"):
                can_commit = node.synchronous_standbys or not self._is_synchronous
                return node if can_commit and node.ask("SELECT 1") else None
        return None

    def is_healthy(self) -> bool:
        """Return whether a primary has two standbys that replicate in the configured mode."""
        for node in self.nodes:
            if node.responds("/primary"):
                if self._is_synchronous:
                    return node.synchronous_standbys == 2
                return node.ask("SELECT count(*) FROM pg_stat_replication") == "2"
        return False

    def switch_over(self, leader: Node, candidate: Node) -> subprocess.Popen[bytes]:
        """Start patronictl, with which an operator makes a standby the primary.

        Return its process.
        """
        names = ("--leader", leader.name, "--candidate", candidate.name)
        return subprocess.Popen(
            [
                *(program("patronictl"), "--config-file", str(leader.configuration)),
                *("switchover", *names, "--force"),
            ],
            stdout=subprocess.DEVNULL,
            env={"PATH": os.environ.get("PATH", ""), "LC_ALL": "C.UTF-8"},
        )

    def stop_service(self) -> list[int]:
        """Stop granian and the workers gracefully, and return their exit statuses."""
        for each in self.programs:
            each.tell(signal.SIGTERM)
        return [each.ends() for each in self.programs]

    def lines(self) -> Iterator[Mapping[str, object]]:
        """Yield all log lines of the service's processes."""
        for each in self.programs:
            yield from each.lines()

    def close(self) -> None:
        """Kill all processes that are still running."""
        self._stack.close()
        self.haproxy.kill()
        for node in self.nodes:
            node.die()
        self.etcd.kill()

    def _new(self, name: str) -> Path:
        folder = self._folder / name
        folder.mkdir()
        return folder

    def _etcd(self, port: int, peers: int) -> Process:
        folder = self._new("etcd")
        client, peer = (f"http://127.0.0.1:{each}" for each in (port, peers))
        return Process(
            folder,
            *(program("etcd"), "--data-dir", str(folder / "data")),
            *("--listen-client-urls", client, "--advertise-client-urls", client),
            *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
            *("--initial-cluster", f"default={peer}"),
            # The disk is slow, because many tests share it.
            *("--heartbeat-interval", "500", "--election-timeout", "5000"),
        )

    def _haproxy(self, database_port: int) -> Process:
        here = {
            "127.0.0.1:5432\n    mode": f"127.0.0.1:{database_port}\n    mode",
            "127.0.0.1:8080": f"127.0.0.1:{self.port}",
        }
        for number, node in enumerate(self.nodes, 1):
            there = f"10.0.0.1{number}:5432 check port 8008"
            here[there] = f"127.0.0.1:{node.port} check port {node.api_port}"
        for number, port in enumerate(self._service_ports, 1):
            here[f"10.0.0.3{number}:8000"] = f"127.0.0.1:{port}"
        folder = self._new("haproxy")
        file = folder / "haproxy.cfg"
        file.write_text(replaced((EXAMPLES / "haproxy.cfg").read_text(), here))
        return Process(folder, program("haproxy"), "-db", "-f", str(file))

    def _leads_to_primary(self) -> bool:
        """Return whether HAProxy leads only to the primary.

        At its start, HAProxy also leads to the standbys, until it has checked them.
        """
        with suppress(psycopg.Error):
            for _ in self.nodes:
                with psycopg.connect(self.url, connect_timeout=2) as connection:
                    if connection.execute("SELECT pg_is_in_recovery()").fetchone() != (False,):
                        return False
            return True
        return False


@contextmanager
def running(*, is_synchronous: bool) -> Iterator[tuple[Cluster, Machines]]:
    """Yield a running cluster and its service. After a failure, its folder is not deleted."""
    folder = Path(tempfile.mkdtemp(prefix="cluster-"))
    with (
        closing(Cluster(folder, is_synchronous=is_synchronous)) as cluster,
        closing(cluster.start()) as machines,
    ):
        yield cluster, machines
    shutil.rmtree(folder)

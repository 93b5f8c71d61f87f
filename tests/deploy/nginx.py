"""nginx with docs/examples/nginx.conf, on ports of the loopback address."""

from __future__ import annotations

import os
import shutil
import socket
import ssl
import subprocess
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

from tests.programs import ROOT, free_port
from tests.waiting import LIMIT_SECONDS, wait_until

EXAMPLE: Final = ROOT / "docs" / "examples" / "nginx.conf"
NAME: Final = "localhost"
"""The host that replaces cards.example. It resolves to the loopback address everywhere."""
MANY: Final = "127.0.0.9"
"""The address from which requests may state another source address in the header ADDRESS."""
ADDRESS: Final = "X-Test-Address"


class Nginx:
    """nginx in front of a service, whose public base URL must be `url`."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.plain_port = free_port()
        self.url = f"https://{NAME}:{self.port}"
        self.certificate = folder / "certificate.pem"
        self._key = folder / "key.pem"
        self.folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        subprocess.run(
            [
                *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-noenc", "-days", "2"),
                *("-subj", f"/CN={NAME}", "-addext", f"subjectAltName=DNS:{NAME}"),
                *("-keyout", str(self._key), "-out", str(self.certificate)),
            ],
            check=True,
            capture_output=True,
        )
        self.trust = ssl.create_default_context(cafile=str(self.certificate))

    def start(self, upstream: str) -> None:
        """Start nginx in front of a service at this address."""
        program = shutil.which(
            "nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin"
        )
        assert program, "there is no nginx: run `make test-deploy` as root, or install it"
        configuration = self.folder / "nginx.conf"
        configuration.write_text(self._configuration(upstream))
        (self.folder / "logs").mkdir(exist_ok=True)
        # Another user could not read the files of a test. Without root, this option has no effect.
        options = "daemon off; user root;"
        self._process = subprocess.Popen(
            [program, "-p", str(self.folder), "-c", str(configuration), "-g", options],
            stdin=subprocess.DEVNULL,
        )
        wait_until(self._is_listening)

    def _configuration(self, upstream: str) -> str:
        """Return the example with the ports and files of this test, otherwise unchanged."""
        text = EXAMPLE.read_text()
        for there, here in {
            "/run/nginx.pid": f"{self.folder}/nginx.pid",
            "root /var/www/html": f"root {self.folder}",
            "/var/log/nginx/error.log": f"{self.folder}/error.log",
            "/var/log/nginx/access.log": f"{self.folder}/access.log",
            "/etc/letsencrypt/live/cards.example/fullchain.pem": str(self.certificate),
            "/etc/letsencrypt/live/cards.example/privkey.pem": str(self._key),
            "https://cards.example$request_uri": f"{self.url}$request_uri",
            "server_name cards.example": f"server_name {NAME}",
            "        listen [::]:443 ssl;\n": "",
            "        listen [::]:80 default_server;\n": "",
            "listen 443 ssl": f"listen 127.0.0.1:{self.port} ssl",
            "listen 80 default_server": f"listen 127.0.0.1:{self.plain_port} default_server",
            "server 127.0.0.1:8000": f"server {upstream}",
            # This machine may not have several IPv6 addresses, so one source states the address.
            "http {\n": "http {\n"
            f"    set_real_ip_from {MANY};\n    real_ip_header {ADDRESS};\n"
            + "".join(
                f"    {kind}_temp_path {self.folder}/{kind};\n"
                for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
            ),
        }.items():
            assert text.count(there) == 1, there
            text = text.replace(there, here)
        return text

    def connect(self, source: str = "127.0.0.1") -> ssl.SSLSocket:
        """Open a TLS connection from one of this machine's addresses."""
        plain = socket.create_connection(
            ("127.0.0.1", self.port), LIMIT_SECONDS, source_address=(source, 0)
        )
        return self.trust.wrap_socket(plain, server_hostname=NAME)

    def send_raw(self, sent: bytes) -> bytes:
        """Send bytes as they are, and return everything received until nginx closes."""
        with closing(self.connect()) as connection:
            received = b""
            with suppress(OSError):
                connection.sendall(sent)
                while part := connection.recv(65536):
                    received += part
            return received

    def _is_listening(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, "nginx has ended"
        with closing(socket.socket()) as attempt:
            return attempt.connect_ex(("127.0.0.1", self.port)) == 0

    def close(self) -> None:
        """Stop nginx if it was started."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(LIMIT_SECONDS)

"""Cookies of guests' browsers, which only this service and no script can read."""

from __future__ import annotations

from dataclasses import dataclass

import falcon

from domain.hosted_payments.link import HostedLinks


@dataclass(frozen=True, kw_only=True)
class Cookies:
    """Reads and sets cookies for the whole public address of the service."""

    links: HostedLinks

    @property
    def is_secure(self) -> bool:
        """Whether browsers reach the service over https."""
        return self.links.base_url.startswith("https:")

    def get(self, req: falcon.Request, name: str) -> str | None:
        """Return the value of a cookie, or None. It may have been set by somebody else."""
        return req.cookies.get(self._name(name))

    def set(
        self,
        resp: falcon.Response,
        name: str,
        value: str,
        *,
        same_site: str = "Lax",
        seconds: int | None = None,
    ) -> None:
        """Set a cookie that lasts until the browser is closed, or for a number of seconds.

        A negative number removes the cookie. With "Lax", a browser that comes from the shop sends
        the cookie.
        """
        resp.set_cookie(
            self._name(name),
            value,
            path="/",
            max_age=seconds,
            secure=self.is_secure,
            http_only=True,
            same_site=same_site,
        )

    def _name(self, name: str) -> str:
        # With this prefix, browsers accept the cookie from no other host of the domain, but only
        # over https.
        return f"__Host-{name}" if self.is_secure else name

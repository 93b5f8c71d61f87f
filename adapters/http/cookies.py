"""Cookies in guests' browsers. Scripts and other hosts cannot read them."""

from __future__ import annotations

from dataclasses import dataclass

import falcon

from domain.hosted_payments.link import HostedLinks


@dataclass(frozen=True, kw_only=True)
class Cookies:
    """Reads and sets cookies that are valid for all paths of this service."""

    links: HostedLinks

    @property
    def is_secure(self) -> bool:
        """Whether the public address is https, so that cookies are only sent over https."""
        return self.links.base_url.startswith("https:")

    def get(self, req: falcon.Request, name: str) -> str | None:
        """Return the value of a cookie, or None. Anybody may have chosen the value."""
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
        """Set a cookie that lasts for a number of seconds, or until the browser is closed.

        A negative number removes the cookie. With `same_site` "Lax", the browser also sends the
        cookie when it follows a link on the shop's site.
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
        # With this prefix, browsers do not accept the cookie from other hosts of the domain. The
        # prefix works only over https.
        return f"__Host-{name}" if self.is_secure else name

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
        """Whether the public address is https. If it is, browsers send cookies only over https."""
        return self.links.base_url.startswith("https:")

    def get(self, req: falcon.Request, name: str) -> str | None:
        """Return the value of a cookie, or None if the browser did not send the cookie.

        Do not trust the value: a client may send any text.
        """
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
        """Set a cookie that lasts for `seconds`, or until the browser is closed if that is None.

        A negative number of seconds removes the cookie. `same_site` is the attribute SameSite. With
        "Lax", the browser also sends the cookie when the guest follows a link on the shop's site.
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

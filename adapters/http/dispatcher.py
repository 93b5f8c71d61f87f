"""The steps that all operations share, in the order that the interface defines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import falcon

from adapters.http.authentication import Authentication
from adapters.http.operations import Operation
from adapters.http.requests import Query, read_body
from adapters.http.responses import PageInfo, json_body
from domain.identifiers import plain_uuid
from domain.pagination import PageRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatcher:
    """Calls a resource's method to respond to an operation.

    The method receives the arguments that its signature names. These can be:

    - `req` and `resp`,
    - the parameters of the path,
    - `caller`, who has the permissions that the use case requires,
    - `body`, parsed,
    - the query parameters, each with the list of its values,
    - `page`, parsed from `page` and `size`.
    """

    operation: Operation
    resource: object
    authenticate: Authentication

    def respond(self, req: falcon.Request, resp: falcon.Response, **path: str) -> None:
        """Respond to a request. Raises the refusals of the operation."""
        operation = self.operation
        given: dict[str, object] = {"req": req, "resp": resp, **path}
        req.context.asked_for = {name: plain_uuid(path[name]) for name in operation.logged}
        if operation.calls is not None:
            caller = given["caller"] = self.authenticate(req, resp)
            caller.require(operation.calls.needs)
        if operation.body is not None:
            given["body"] = read_body(req, operation.body)
        asked: dict[str, Sequence[str]] = {}
        if operation.query:
            query = Query(req, None if operation.ignores_unknown else operation.query)
            asked = {name: query.all(name) for name in operation.query}
            given.update(asked)
            if "page" in operation.takes:
                given["page"] = PageRequest.parse(pages=asked["page"], sizes=asked["size"])
        body = operation.handler(self.resource, **{name: given[name] for name in operation.takes})
        if body is not None:
            json_body(resp, body)
        if isinstance(info := getattr(body, "page_info", None), PageInfo):
            resp.set_header("Link", info.links(asked))

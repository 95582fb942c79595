"""Service properties, and their effects: CORS and the default version."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from etagere.auth.request import octets
from etagere.engine.interface import Engine, unwrap
from etagere.model.service import CorsRule, ServiceProperties, ServicePropertiesChange
from etagere.operations.service import (
    SetServiceProperties,
    get_service_properties,
    set_service_properties,
)
from etagere.protocol.connections.sharing import FrontEndShare, single_front_end
from etagere.protocol.http.messages import Response
from etagere.protocol.rest import responses
from etagere.protocol.rest.exchange import VERSION_NEWEST, Exchange
from etagere.rules import cors
from etagere.rules.accounts import check_account_name

_BYTES_MAX: Final = 64 << 10
_ACCOUNTS_KNOWN_MAX: Final = 1_024
_RULES_KNOWN_SECONDS: Final = 5.0
"""The maximum time for which CORS rules are cached. If the client of a change disconnects, the
change may be published before it is made."""
_NOT_CACHED_STATUS_MIN: Final = 300
# The service lists these first and last, whether or not the response has the last ones.
_EXPOSED_FIRST: Final = ("x-ms-request-id", "x-ms-client-request-id", "Server", "x-ms-version")
_EXPOSED_LAST: Final = ("Content-Length", "Date", "Transfer-Encoding")


class PropertiesStore:
    """The service properties of all accounts, for one service."""

    def __init__(self, engine: Engine, service: str, share: FrontEndShare | None = None) -> None:
        self._engine = engine
        self._service = service
        self._share = share or single_front_end()
        self._rules_as_of = self._share.properties_changed
        self._rules_until = 0.0
        self._rules: dict[str, Sequence[CorsRule]] = {}

    async def read(self, account: str) -> ServiceProperties:
        if check_account_name(account) is not None:
            # Preflights are not authenticated, and their account may not exist.
            return ServiceProperties()
        return await self._engine.read(get_service_properties, (account, self._service))

    async def change(self, account: str, change: ServicePropertiesChange) -> None:
        command = SetServiceProperties(account, self._service, change)
        try:
            await self._engine.write(set_service_properties, command)
        finally:
            # The change may have been made, or be about to, even if the request was cancelled.
            self._share.publish_change_of_properties()

    async def default_version(self, exchange: Exchange) -> str | None:
        """Returns the default version that the owner of the account has set, if any."""
        version = (await self.read(exchange.request.account)).default_service_version
        return None if version is None else min(version, VERSION_NEWEST)

    async def preflight(self, exchange: Exchange) -> Response:
        """Answers the preflight request of a browser, which is not authenticated."""
        answer = unwrap(
            cors.preflight(
                (await self.read(exchange.request.account)).cors,
                exchange.header("origin"),
                exchange.header("access-control-request-method"),
                exchange.header("access-control-request-headers"),
            )
        )
        return Response(200, [(octets(name), octets(value)) for name, value in answer])

    def may_have_cors_headers(self, exchange: Exchange, response: Response) -> bool:
        """Returns whether a response may have CORS headers, which few have."""
        method = exchange.request.method
        if exchange.header("origin") is not None:
            return method != "OPTIONS"
        if method not in cors.CACHED_METHODS or response.status >= _NOT_CACHED_STATUS_MIN:
            return False
        rules = self._known_rules().get(exchange.request.account)
        return rules is None or bool(rules)

    async def cors_headers(self, exchange: Exchange, response: Response) -> responses.Headers:
        """Returns the CORS headers of a response that may have some, and has its common headers
        already."""
        origin, method = exchange.header("origin"), exchange.request.method
        if origin is None:
            rules = self._known_rules().get(exchange.request.account)
            if rules is None:
                rules = await self._load_rules(exchange)
        else:
            rules = (await self.read(exchange.request.account)).cors
        if not rules:
            return []
        found = cors.actual(rules, origin, method, _exposable(exchange, response))
        return [(octets(name), octets(value)) for name, value in found]

    def _known_rules(self) -> dict[str, Sequence[CorsRule]]:
        """Returns the cached CORS rules of accounts. Nearly all requests have no origin, and must
        not cost a read."""
        changed, now = self._share.properties_changed, time.monotonic()
        if changed != self._rules_as_of or now > self._rules_until:
            self._rules_as_of, self._rules = changed, {}
            self._rules_until = now + _RULES_KNOWN_SECONDS
        return self._rules

    async def _load_rules(self, exchange: Exchange) -> Sequence[CorsRule]:
        known = self._rules
        rules = (await self.read(exchange.request.account)).cors
        if len(known) >= _ACCOUNTS_KNOWN_MAX:
            known.clear()
        # Not into the new cache, if there was a change meanwhile.
        known[exchange.request.account] = rules
        return rules


def _exposable(exchange: Exchange, response: Response) -> list[str]:
    """Returns the names of the headers of a response that a rule may expose, in the order of the
    real service."""
    names = {name.decode(): None for name, _ in response.headers}
    if exchange.parameter("comp") == "properties":
        # Scripts may read it anyway. The service omits it here, except for listings.
        names.pop("Content-Type", None)
    # The first ones are listed whether the response has them or not.
    rest = [name for name in names if name not in _EXPOSED_FIRST]
    return [*_EXPOSED_FIRST, *rest, *_EXPOSED_LAST]

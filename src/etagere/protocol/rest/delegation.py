"""The handler of Get User Delegation Key, which is the same for all services that have it."""

from __future__ import annotations

from typing import Final

from etagere.auth.delegation import derive, key_time, rights_to_store
from etagere.auth.principal import User
from etagere.auth.sas import SERVICE_LETTERS, DelegationKey
from etagere.engine.interface import Refused, unwrap
from etagere.errors import Refusal
from etagere.model.delegation import IssueDelegationKey, UserName, new_secret
from etagere.operations.delegation import issue_delegation_key
from etagere.protocol.codecs import delegation_keys as codec
from etagere.protocol.http.messages import Response
from etagere.protocol.rest import responses
from etagere.protocol.rest.dependencies import Dependencies
from etagere.protocol.rest.exchange import Exchange

_SINCE: Final = {"blob": "2018-11-09", "queue": "2025-07-05", "file": "2025-07-05"}
"""The first version of each service that has user delegation keys."""


async def get_user_delegation_key(exchange: Exchange, deps: Dependencies) -> Response:
    service, version = exchange.request.service, exchange.version
    user = exchange.principal
    # Only users are authorized.
    assert isinstance(user, User)
    if version < _SINCE[service]:
        raise Refused(Refusal("InvalidQueryParameterValue", {"QueryParameterName": "comp"}))
    asked = unwrap(codec.decode(await exchange.http.body.read(codec.BYTES_MAX), version))
    command = IssueDelegationKey(
        UserName(user.account, user.tenant_id, user.object_id),
        rights_to_store(user.rights),
        asked.start,
        asked.expiry,
        new_secret(),
        user.token_issued,
    )
    issued = await deps.engine.write(issue_delegation_key, command)
    key = DelegationKey(
        user.object_id,
        user.tenant_id,
        key_time(issued.start),
        key_time(issued.expiry),
        SERVICE_LETTERS[service],
        version,
        asked.delegated_tenant_id,
    )
    return Response(200, [responses.XML], codec.encode(key, derive(issued.secret, key)))

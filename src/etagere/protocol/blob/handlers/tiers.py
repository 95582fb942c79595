"""Operations on tiers."""

from __future__ import annotations

from etagere.clock import TICKS_PER_SECOND
from etagere.model.tiers import Priority, SetBlobTier
from etagere.operations.blob import tiers
from etagere.protocol.blob import decode, decode_tiers
from etagere.protocol.blob.dependencies import BlobDependencies
from etagere.protocol.http.messages import Response
from etagere.protocol.rest import leases, requests
from etagere.protocol.rest.conditions import write_conditions
from etagere.protocol.rest.exchange import Exchange


async def set_blob_tier(exchange: Exchange, deps: BlobDependencies) -> Response:
    requests.required_header(exchange, "x-ms-access-tier")
    priority = decode_tiers.rehydrate_priority(exchange)
    command = SetBlobTier(
        decode.blob_name(exchange),
        decode_tiers.any_tier(exchange),
        _seconds(deps, priority) * TICKS_PER_SECOND,
        priority,
        write_conditions(exchange),
        leases.lease_id(exchange),
        decode.snapshot(exchange),
    )
    blob = await deps.engine.write(tiers.set_blob_tier, command)
    return Response(200 if blob.rehydration is None else 202)


def _seconds(deps: BlobDependencies, priority: Priority) -> int:
    """Returns the duration of a rehydration."""
    if priority is Priority.HIGH:
        return deps.settings.rehydrate_high_seconds
    return deps.settings.rehydrate_standard_seconds

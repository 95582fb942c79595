"""Operations on tiers."""

from __future__ import annotations

from etagere.clock import TICKS_PER_SECOND
from etagere.model.tiers import Priority, SetBlobTier
from etagere.operations.blob import tiers
from etagere.protocol import requests
from etagere.protocol.blob import decode, decode_tiers
from etagere.protocol.blob.handlers.base import Handling
from etagere.protocol.exchange import Exchange
from etagere.protocol.http.messages import Response


class TierHandlers(Handling):
    """Tiers, which are chosen."""

    async def set_blob_tier(self, exchange: Exchange) -> Response:
        requests.required_header(exchange, "x-ms-access-tier")
        priority = decode_tiers.rehydrate_priority(exchange)
        command = SetBlobTier(
            decode.blob_name(exchange),
            decode_tiers.any_tier(exchange),
            self._seconds(priority) * TICKS_PER_SECOND,
            priority,
            decode.write_conditions(exchange),
            decode.lease_id(exchange),
            decode.snapshot(exchange),
        )
        blob = await self._engine.write(tiers.set_blob_tier, command)
        return Response(200 if blob.rehydration is None else 202)

    def _seconds(self, priority: Priority) -> int:
        """How long the way out of the archive takes."""
        if priority is Priority.HIGH:
            return self._settings.rehydrate_high_seconds
        return self._settings.rehydrate_standard_seconds

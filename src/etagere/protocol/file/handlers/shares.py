"""Operations on shares."""

from __future__ import annotations

from etagere.model.ids import new_id
from etagere.model.leases import LeaseVerb
from etagere.model.shares import (
    CreateShare,
    DeleteShare,
    GetShare,
    LeaseShare,
    RestoreShare,
    SetShareMetadata,
    SetSharePolicies,
    SetShareProperties,
    ShareName,
    ShareRef,
    SnapshotShare,
    TimedShare,
)
from etagere.operations.file import shares
from etagere.protocol.file import decode, decode_shares, encode_shares
from etagere.protocol.file.dependencies import FileDependencies
from etagere.protocol.http.messages import Response
from etagere.protocol.rest import leases
from etagere.protocol.rest.access_policies import policies_response, read_policies
from etagere.protocol.rest.exchange import Exchange
from etagere.protocol.rest.metadata import metadata_headers, read_metadata
from etagere.protocol.rest.responses import XML, stamp_headers
from etagere.rules.dates import format_instant


async def create_share(exchange: Exchange, deps: FileDependencies) -> Response:
    premium = _is_premium(exchange, deps)
    command = CreateShare(
        _share_to_change(exchange),
        new_id(),
        decode_shares.settings_of_new(exchange, premium_account=premium),
        read_metadata(exchange),
    )
    made = await deps.engine.write(shares.create_share, command)
    return Response(201, encode_shares.changed_share_headers(made))


async def get_share_properties(exchange: Exchange, deps: FileDependencies) -> Response:
    shown = await _shown_share(exchange, deps)
    return Response(200, encode_shares.share_headers(shown, exchange.version))


async def get_share_metadata(exchange: Exchange, deps: FileDependencies) -> Response:
    share = (await _shown_share(exchange, deps)).share
    return Response(200, stamp_headers(share.stamp) + metadata_headers(share.metadata))


async def get_share_acl(exchange: Exchange, deps: FileDependencies) -> Response:
    decode.refuse_snapshot(exchange)
    share = (await _shown_share(exchange, deps)).share
    return policies_response(share.policies, stamp_headers(share.stamp))


async def get_share_stats(exchange: Exchange, deps: FileDependencies) -> Response:
    command = GetShare(ShareRef(_share_to_change(exchange)), leases.lease_id(exchange))
    shown = await deps.opens.rest_in_share(
        command.ref.share, lambda: deps.engine.read(shares.get_share_statistics, command)
    )
    return Response(200, [XML], encode_shares.share_stats(shown.usage_bytes))


async def _shown_share(exchange: Exchange, deps: FileDependencies) -> TimedShare:
    command = GetShare(decode.share_ref(exchange), leases.lease_id(exchange))
    return await deps.engine.read(shares.get_share, command)


async def set_share_properties(exchange: Exchange, deps: FileDependencies) -> Response:
    premium = _is_premium(exchange, deps)
    command = SetShareProperties(
        _share_to_change(exchange),
        decode_shares.settings_change(exchange, premium_account=premium),
        leases.lease_id(exchange),
    )
    changed = await deps.engine.write(shares.set_share_properties, command)
    headers = encode_shares.changed_share_headers(changed, with_downgrade_times=True)
    return Response(200, headers)


async def set_share_metadata(exchange: Exchange, deps: FileDependencies) -> Response:
    command = SetShareMetadata(
        _share_to_change(exchange), read_metadata(exchange), leases.lease_id(exchange)
    )
    changed = await deps.engine.write(shares.set_share_metadata, command)
    return Response(200, stamp_headers(changed.stamp))


async def set_share_acl(exchange: Exchange, deps: FileDependencies) -> Response:
    share = _share_to_change(exchange)
    policies = await read_policies(exchange)
    command = SetSharePolicies(share, policies, leases.lease_id(exchange))
    changed = await deps.engine.write(shares.set_share_policies, command)
    return Response(200, stamp_headers(changed.stamp))


async def lease_share(exchange: Exchange, deps: FileDependencies) -> Response:
    """Changes the lease of a share, or of a snapshot, which has its own."""
    action = leases.lease_action(exchange)
    command = LeaseShare(decode.share_ref(exchange), action)
    shown = await deps.engine.write(shares.lease_share, command)
    headers = stamp_headers(shown.share.stamp)
    headers += leases.lease_action_headers(shown.share.lease, shown.now)
    if action.verb is LeaseVerb.RELEASE:
        headers.append((b"x-ms-lease-time", b"0"))
    return Response(leases.LEASE_STATUS.get(action.verb, 200), headers)


async def delete_share(exchange: Exchange, deps: FileDependencies) -> Response:
    command = DeleteShare(
        decode.share_ref(exchange),
        decode_shares.delete_snapshots(exchange),
        leases.lease_id(exchange),
    )

    async def delete() -> None:
        if await deps.engine.write(shares.delete_share, command):
            deps.opens.drop(command.ref)

    # A deleted share can be restored, with everything that was written to its files.
    await deps.opens.rest_in_share(command.ref.share, delete, deletes=True)
    return Response(202)


async def snapshot_share(exchange: Exchange, deps: FileDependencies) -> Response:
    command = SnapshotShare(_share_to_change(exchange), read_metadata(exchange))
    taken = await deps.opens.rest_in_share(
        command.share,
        lambda: deps.engine.write(shares.snapshot_share, command),
        holds_writers=True,
    )
    assert taken.snapshot is not None
    headers = stamp_headers(taken.share.stamp)
    headers.append((b"x-ms-snapshot", format_instant(taken.snapshot).encode()))
    return Response(201, headers)


async def restore_share(exchange: Exchange, deps: FileDependencies) -> Response:
    command = RestoreShare(_share_to_change(exchange), *decode_shares.deleted_share(exchange))
    restored = await deps.engine.write(shares.restore_share, command)
    return Response(201, encode_shares.changed_share_headers(restored))


def _is_premium(exchange: Exchange, deps: FileDependencies) -> bool:
    return exchange.request.account in deps.settings.premium_file_accounts


def _share_to_change(exchange: Exchange) -> ShareName:
    """Returns the share of a request that cannot be for a snapshot."""
    decode.refuse_snapshot(exchange)
    return decode.share_name(exchange)

"""Decoding of requests for shares: settings, deletion, restoration and listings."""

from __future__ import annotations

import re
from typing import Final

from etagere.engine.interface import unwrap
from etagere.model.shares import (
    NO_SNAPSHOT,
    ListShares,
    PaidBursting,
    RootSquash,
    ShareProtocol,
    ShareSettings,
    ShareSettingsChange,
    SnapshotsOfShare,
)
from etagere.protocol.file.decode import switch
from etagere.protocol.rest.continuation_tokens import format_token, parse_token
from etagere.protocol.rest.exchange import Exchange
from etagere.protocol.rest.requests import (
    bad_parameter,
    included,
    integer_header,
    invalid_header,
    page_limit,
    required_header,
    text_parameter,
)
from etagere.rules.file_names import check_share_name
from etagere.rules.shares import (
    PREMIUM,
    QUOTA_GIB_MAX,
    QUOTA_GIB_MIN,
    changed_settings,
    default_settings,
    parse_share_tier,
)

DETAILS: Final = frozenset({"snapshots", "metadata", "deleted"})

_PERFORMANCE_MAX: Final = (1 << 31) - 1
"""Greater than any valid number of IOPS or MiB/s; the rules know the limits."""
_PROTOCOLS: Final = {protocol.value.lower(): protocol for protocol in ShareProtocol}
_ROOT_SQUASHES: Final = {squash.value.lower(): squash for squash in RootSquash}
_VERSION: Final = re.compile(r"[0-7][0-9A-F]{15}")
_PLACE: Final = re.compile(r"([a-z0-9-]{3,63})/([0-9]{1,18})/([0-9]{1,19})")


# Settings


def settings_of_new(exchange: Exchange, *, premium_account: bool) -> ShareSettings:
    written = exchange.header("x-ms-enabled-protocols")
    protocol = None
    if written:
        protocol = _PROTOCOLS.get(written.lower())
        if protocol is None:
            raise invalid_header("x-ms-enabled-protocols", written)
    change = settings_change(exchange, premium_account=premium_account)
    return unwrap(
        changed_settings(default_settings(protocol, premium_account=premium_account), change)
    )


def settings_change(exchange: Exchange, *, premium_account: bool) -> ShareSettingsChange:
    quota = integer_header(exchange, "x-ms-share-quota", QUOTA_GIB_MIN, QUOTA_GIB_MAX)
    return ShareSettingsChange(
        quota_gib=quota,
        tier=_tier(exchange, premium_account=premium_account),
        root_squash=_root_squash(exchange),
        snapshot_virtual_directory=_optional_switch(
            exchange, "x-ms-enable-snapshot-virtual-directory-access"
        ),
        provisioned_iops=_performance(exchange, "x-ms-share-provisioned-iops"),
        provisioned_bandwidth_mibps=_performance(
            exchange, "x-ms-share-provisioned-bandwidth-mibps"
        ),
        paid_bursting=PaidBursting(
            _optional_switch(exchange, "x-ms-share-paid-bursting-enabled"),
            _performance(exchange, "x-ms-share-paid-bursting-max-iops"),
            _performance(exchange, "x-ms-share-paid-bursting-max-bandwidth-mibps"),
        ),
        smb_directory_lease=_optional_switch(exchange, "x-ms-enable-smb-directory-lease"),
    )


def _tier(exchange: Exchange, *, premium_account: bool) -> str | None:
    written = exchange.header("x-ms-access-tier")
    if not written:
        return None
    tier = parse_share_tier(written)
    if tier is None or (premium_account and tier != PREMIUM):
        raise invalid_header("x-ms-access-tier", written)
    return tier


def _root_squash(exchange: Exchange) -> RootSquash | None:
    written = exchange.header("x-ms-root-squash")
    if not written:
        return None
    squash = _ROOT_SQUASHES.get(written.lower())
    if squash is None:
        raise invalid_header("x-ms-root-squash", written)
    return squash


def _optional_switch(exchange: Exchange, name: str) -> bool | None:
    return switch(exchange, name) if exchange.header(name) else None


def _performance(exchange: Exchange, name: str) -> int | None:
    return integer_header(exchange, name, 0, _PERFORMANCE_MAX)


# Deletion and restoration


def delete_snapshots(exchange: Exchange) -> SnapshotsOfShare:
    name = "x-ms-delete-snapshots"
    written = exchange.header(name)
    if not written:
        return SnapshotsOfShare.REFUSE
    if exchange.parameter("sharesnapshot"):
        # A snapshot has no snapshots.
        raise invalid_header(name, written)
    try:
        return SnapshotsOfShare(written.lower())
    except ValueError:
        raise invalid_header(name, written) from None


def deleted_share(exchange: Exchange) -> tuple[str, int]:
    """Returns the name and the version of the deleted share that is to be restored."""
    name = required_header(exchange, "x-ms-deleted-share-name")
    if check_share_name(name) is not None:
        raise invalid_header("x-ms-deleted-share-name", name)
    version = required_header(exchange, "x-ms-deleted-share-version")
    if _VERSION.fullmatch(version) is None:
        raise invalid_header("x-ms-deleted-share-version", version)
    return name, int(version, 16)


def format_version(version: int) -> str:
    """Returns the version that identifies a deleted share, as clients see it."""
    return f"{version:016X}"


# Listings


def list_shares(exchange: Exchange) -> tuple[ListShares, set[str]]:
    include = included(exchange, DETAILS)
    name, version, snapshot = _marker(exchange)
    command = ListShares(
        exchange.request.account,
        page_limit(exchange),
        text_parameter(exchange, "prefix"),
        name,
        version,
        snapshot,
        snapshots="snapshots" in include,
        deleted="deleted" in include,
    )
    return command, include


def _marker(exchange: Exchange) -> tuple[str, int, int]:
    """Returns name, version and snapshot of the first row of a page."""
    written = exchange.parameter("marker")
    if not written:
        return "", 0, 0
    match = _PLACE.fullmatch(parse_token(written) or "")
    if match is None:
        raise bad_parameter("OutOfRangeInput", "marker", written)
    return match[1], int(match[2]), min(int(match[3]), NO_SNAPSHOT)


def format_marker(name: str, version: int, snapshot: int) -> str:
    return format_token(f"{name}/{version}/{snapshot}")

"""Recorded requests for shares and the file service."""

from __future__ import annotations

import re
from typing import Final

from tests.probes.client import Request
from tests.recorded.cases import CaseContext
from tests.recorded.file_requests import (
    FILE,
    LEASE,
    META,
    NEWER,
    OTHER_LEASE,
    SDDL,
    SHARE,
    SHARE_LEASES,
    WITH_LEASE,
    XML,
    add,
    break_lease,
    delete_share,
    deleted_version,
    get_share,
    keeping,
    lease,
    lease_action,
    leased_share,
    request,
    share,
    signed_elsewhere,
    take_snapshot,
)
from tests.recorded.queue_cases import CORS_RULE, POLICY, metrics, properties

NOT_COMPARED: Final = {
    ("Share_Delete", 409, "ShareBeingDeleted"): (
        "names of the deleted are free at once; deletes that are repeated were mostly accepted"
    ),
}
"""Recorded responses without a case, and why."""

# The service

_SERVICE: Final = {"restype": "service", "comp": "properties"}
_MULTICHANNEL: Final = (
    "<ProtocolSettings><SMB><Multichannel><Enabled>false</Enabled></Multichannel></SMB>"
    "</ProtocolSettings>"
)


def set_service(*parts: str, versions: tuple[str, ...] = ()) -> None:
    def make(context: CaseContext) -> Request:
        usual = properties("<Cors />")
        context.afterwards.append(context.request("PUT", "", _SERVICE, XML, usual))
        return context.request("PUT", "", _SERVICE, XML, properties(*parts))

    name = re.sub(r"<|>.*", "", "".join(parts)) or "empty"
    FILE.add("Service_SetProperties", 202, make=make, name=name, versions=versions)


set_service(metrics("HourMetrics"))
set_service(metrics("MinuteMetrics"))
set_service("<Cors>", CORS_RULE, "</Cors>")
set_service(_MULTICHANNEL, versions=("2020-02-10", "2021-06-08"))


@FILE.case("Service_SetProperties", 400, "InvalidXmlDocument")
def set_too_many_rules(context: CaseContext) -> Request:
    body = properties("<Cors>", CORS_RULE * 6, "</Cors>")
    return context.request("PUT", "", _SERVICE, XML, body)


@FILE.case("Service_GetProperties", 200)
def get_service(context: CaseContext) -> Request:
    return context.request("GET", "", _SERVICE)


@FILE.case("Service_GetProperties", 200, name="all set", share=1, cors=False, versions=NEWER)
def get_full_service(context: CaseContext) -> Request:
    body = properties(metrics("HourMetrics"), metrics("MinuteMetrics"), _MULTICHANNEL)
    context.do("PUT", "", _SERVICE, XML, body)
    return context.request("GET", "", _SERVICE)


# Lists

_LIST: Final = {"comp": "list"}
_ROW: Final = "EnumerationResults/Shares/Share"


@FILE.case("Service_ListSharesSegment", 200)
def list_shares(context: CaseContext) -> Request:
    share(context)
    return context.request("GET", "", {**_LIST, "prefix": context.name})


@FILE.case("Service_ListSharesSegment", 200, name="snapshots", share=100, versions=NEWER,
           elements=(f"{_ROW}/Snapshot",))  # fmt: skip
def list_snapshots(context: CaseContext) -> Request:
    share(context)
    for _ in range(2):
        take_snapshot(context)
    return context.request("GET", "", {**_LIST, "prefix": context.name, "include": "snapshots"})


@FILE.case("Service_ListSharesSegment", 200, name="metadata, pages", share=12)
def list_some(context: CaseContext) -> Request:
    for letter in "abc":
        context.do("PUT", context.name + letter, SHARE, META)
    query = {**_LIST, "prefix": context.name, "include": "metadata", "maxresults": "2"}
    return context.request("GET", "", query)


@FILE.case("Service_ListSharesSegment", 200, name="marker", share=6)
def list_from_marker(context: CaseContext) -> Request:
    for letter in "abc":
        context.do("PUT", context.name + letter, SHARE)
    query = {**_LIST, "prefix": context.name, "maxresults": "2"}
    found = re.search("<NextMarker>(.*?)<", context.do("GET", "", query).body.decode())
    assert found is not None
    return context.request("GET", "", {**query, "marker": found[1]})


@FILE.case("Service_ListSharesSegment", 200, name="leased", share=20, versions=NEWER,
           elements=(f"{_ROW}/Properties/LeaseState=leased",
                     f"{_ROW}/Properties/LeaseDuration=infinite"))  # fmt: skip
def list_leased(context: CaseContext) -> Request:
    leased_share(context)
    return context.request("GET", "", {**_LIST, "prefix": context.name})


@FILE.case("Service_ListSharesSegment", 200, name="deleted", share=20, versions=NEWER, signs=False,
           cors=False, elements=(f"{_ROW}/Version=<text>", f"{_ROW}/Properties/DeletedTime",
                                 f"{_ROW}/Properties/LeaseState=broken"))  # fmt: skip
def list_deleted(context: CaseContext) -> Request:
    elsewhere = keeping(context)
    deleted_version(elsewhere)
    query = {**_LIST, "prefix": elsewhere.name, "include": "deleted,metadata,snapshots"}
    return signed_elsewhere(elsewhere.request("GET", "", query))


@FILE.case("Service_ListSharesSegment", 200, name="provisioned", share=3, versions=NEWER,
           elements=(f"{_ROW}/Properties/EnabledProtocols=NFS",
                     f"{_ROW}/Properties/RootSquash=AllSquash",
                     f"{_ROW}/Properties/AccessTier=Premium",
                     f"{_ROW}/Properties/ProvisionedIops"))  # fmt: skip
def list_provisioned(context: CaseContext) -> Request:
    share(context, x_ms_enabled_protocols="NFS", x_ms_root_squash="AllSquash")
    return context.request("GET", "", {**_LIST, "prefix": context.name})


# Shares

create_share: Final = request("PUT", SHARE)
add("Share_Create", 201, create_share, lambda s: s.name)
add("Share_Create", 201, create_share, lambda s: s.name, headers=META, name="metadata", share=31)
add("Share_Create", 201, create_share, lambda s: s.name, name="quota", share=6,
    headers={"x-ms-share-quota": "1"})  # fmt: skip
add("Share_Create", 201, create_share, lambda s: s.name, name="tier", share=4, versions=NEWER,
    headers={"x-ms-access-tier": "Hot"})  # fmt: skip
add("Share_Create", 201, create_share, lambda s: s.name, name="NFS", share=8, versions=NEWER,
    headers={"x-ms-enabled-protocols": "NFS", "x-ms-root-squash": "RootSquash"})  # fmt: skip
add("Share_Create", 400, create_share, lambda _: "啊齄丂狛狜", "InvalidResourceName")
add("Share_Create", 409, create_share, share, "ShareAlreadyExists")

_LEASES: Final = frozenset({"x-ms-lease-state", "x-ms-lease-status"})
_TIERED: Final = frozenset({"x-ms-access-tier", "x-ms-access-tier-change-time"})
_PROVISIONED: Final = frozenset(
    {"x-ms-access-tier", "x-ms-enabled-protocols", "x-ms-root-squash"}
    | {f"x-ms-share-provisioned-{name}" for name in ("bandwidth-mibps", "egress-mbps")}
    | {f"x-ms-share-provisioned-{name}" for name in ("ingress-mbps", "iops")}
    | {"x-ms-share-next-allowed-quota-downgrade-time"}
)
# The rule for all origins exposes only metadata.
_NOTHING_EXPOSED: Final = frozenset({"access-control-expose-headers"})


def described(context: CaseContext) -> str:
    return share(context, **{name.replace("-", "_"): value for name, value in META.items()})


add("Share_GetProperties", 200, get_share, share, lacking=_NOTHING_EXPOSED,
    versions=("2019-02-02",))  # fmt: skip
add("Share_GetProperties", 200, get_share, share, name="tier, lease", lacking=_NOTHING_EXPOSED,
    having=_LEASES | _TIERED, share=20, versions=NEWER,
    values={"x-ms-access-tier": "TransactionOptimized", "x-ms-access-tier-change-time": "<rfc1123>"}
    )  # fmt: skip
add("Share_GetProperties", 200, get_share, described, name="metadata", share=41,
    having={"x-ms-meta-*"}, versions=("2019-02-02",))  # fmt: skip
add("Share_GetProperties", 200, get_share, leased_share, name="leased", lacking=_NOTHING_EXPOSED,
    having=_LEASES | _TIERED | {"x-ms-lease-duration"}, share="x-ms-lease-duration",
    versions=NEWER)  # fmt: skip
add("Share_GetProperties", 200, get_share, name="NFS", share=14, lacking=_NOTHING_EXPOSED,
    prepare=lambda s: share(s, x_ms_enabled_protocols="NFS", x_ms_root_squash="RootSquash"),
    having=_LEASES | _PROVISIONED, versions=NEWER,
    values={"x-ms-access-tier": "Premium", "x-ms-share-quota": "<int>"})  # fmt: skip


@FILE.case("Share_GetProperties", 200, name="snapshot", share=4, having=_LEASES | _TIERED,
           lacking=_NOTHING_EXPOSED, versions=NEWER)  # fmt: skip
def get_snapshot(context: CaseContext) -> Request:
    share(context)
    query = {**SHARE, "sharesnapshot": take_snapshot(context)}
    return context.request("GET", context.name, query)


add("Share_GetProperties", 404, get_share, lambda s: s.name, "ShareNotFound")
add("Share_GetProperties", 412, get_share, leased_share, "LeaseIdMismatchWithContainerOperation",
    {"x-ms-lease-id": OTHER_LEASE}, versions=SHARE_LEASES)  # fmt: skip


@FILE.case("Share_GetProperties", 412, "LeaseIdMismatchWithContainerOperation", name="snapshot",
           share=4, versions=SHARE_LEASES)  # fmt: skip
def get_leased_snapshot(context: CaseContext) -> Request:
    moment = take_snapshot_of(context)
    lease(context, context.name, snapshot=moment)
    query = {**SHARE, "sharesnapshot": moment}
    return context.request("GET", context.name, query, {"x-ms-lease-id": OTHER_LEASE})


def take_snapshot_of(context: CaseContext) -> str:
    share(context)
    return take_snapshot(context)


_INCLUDE: Final = {"x-ms-delete-snapshots": "include"}


def with_snapshot(context: CaseContext) -> str:
    take_snapshot_of(context)
    return context.name


def with_leased_snapshot(context: CaseContext) -> str:
    return lease(context, context.name, snapshot=take_snapshot_of(context))


def deleted(context: CaseContext) -> str:
    context.do("DELETE", share(context), SHARE)
    return context.name


def broken(context: CaseContext) -> str:
    path = leased_share(context)
    break_lease(context, path, x_ms_lease_break_period="0")
    return path


add("Share_Delete", 202, delete_share, share)
add("Share_Delete", 202, delete_share, with_snapshot, headers=_INCLUDE, name="with snapshots",
    share=150)  # fmt: skip
add("Share_Delete", 202, delete_share, leased_share, headers=WITH_LEASE, name="leased", share=4,
    versions=SHARE_LEASES)  # fmt: skip
add("Share_Delete", 202, delete_share, deleted, headers=_INCLUDE, name="again", share=70)
add("Share_Delete", 404, delete_share, lambda s: s.name, "ShareNotFound")
add("Share_Delete", 409, delete_share, with_leased_snapshot, "DeleteShareWhenSnapshotLeased",
    _INCLUDE, versions=SHARE_LEASES)  # fmt: skip
add("Share_Delete", 409, delete_share, with_snapshot, "ShareHasSnapshots")
add("Share_Delete", 412, delete_share, leased_share, "LeaseIdMissing", _INCLUDE,
    versions=SHARE_LEASES)  # fmt: skip
add("Share_Delete", 412, delete_share, broken, "LeaseLost", WITH_LEASE,
    versions=SHARE_LEASES)  # fmt: skip


@FILE.case("Share_Delete", 202, name="snapshot", share=6)
def delete_snapshot(context: CaseContext) -> Request:
    query = {**SHARE, "sharesnapshot": take_snapshot_of(context)}
    return context.request("DELETE", context.name, query)


# Leases

_ACQUIRE: Final = {"x_ms_lease_duration": "-1", "x_ms_proposed_lease_id": LEASE}
_OTHERS: Final = {"x_ms_lease_duration": "-1", "x_ms_proposed_lease_id": OTHER_LEASE}
add("Share_AcquireLease", 201, lease_action("acquire", **_ACQUIRE), share, versions=SHARE_LEASES)
add("Share_AcquireLease", 201, lease_action("acquire", **_ACQUIRE), leased_share, name="again",
    share=4, versions=SHARE_LEASES)  # fmt: skip
add("Share_AcquireLease", 409, lease_action("acquire", **_OTHERS), leased_share,
    "LeaseAlreadyPresent", versions=SHARE_LEASES)  # fmt: skip
add("Share_ReleaseLease", 200, lease_action("release", x_ms_lease_id=LEASE), leased_share,
    versions=SHARE_LEASES)  # fmt: skip
add("Share_ChangeLease", 200, lease_action("change", x_ms_lease_id=LEASE,
    x_ms_proposed_lease_id=OTHER_LEASE), leased_share, versions=SHARE_LEASES)  # fmt: skip
add("Share_RenewLease", 200, lease_action("renew", x_ms_lease_id=LEASE), versions=SHARE_LEASES,
    prepare=lambda s: lease(s, share(s), "15"))  # fmt: skip
add("Share_BreakLease", 202, lease_action("break"), leased_share, versions=SHARE_LEASES)
add("Share_BreakLease", 202, lease_action("break", x_ms_lease_break_period="5"), leased_share,
    name="period", share=4, versions=SHARE_LEASES)  # fmt: skip

for _action in ("acquire", "release"):

    @FILE.case(f"Share_{_action.title()}Lease", {"acquire": 201, "release": 200}[_action],
               name="snapshot", share=4, versions=SHARE_LEASES)  # fmt: skip
    def lease_snapshot(context: CaseContext, action: str = _action) -> Request:
        moment = take_snapshot_of(context)
        headers = {"x-ms-lease-action": action}
        if action == "acquire":
            headers |= {"x-ms-lease-duration": "-1", "x-ms-proposed-lease-id": LEASE}
        else:
            lease(context, context.name, snapshot=moment)
            headers |= WITH_LEASE
        query = {"comp": "lease", **SHARE, "sharesnapshot": moment}
        return context.request("PUT", context.name, query, headers)


# Snapshots, permissions and properties

_SNAPSHOT: Final = request("PUT", {"comp": "snapshot", **SHARE})
add("Share_CreateSnapshot", 201, _SNAPSHOT, share)
add("Share_CreateSnapshot", 201, _SNAPSHOT, share, headers=META, name="metadata", share=6)

_PERMISSION: Final = {"comp": "filepermission", **SHARE}
_JSON: Final = {"Content-Type": "application/json"}
_DOCUMENT: Final = f'{{"permission": "{SDDL}"}}'
add("Share_CreatePermission", 201, request("PUT", _PERMISSION, _DOCUMENT), share, headers=_JSON)


@FILE.case("Share_GetPermission", 200)
def get_permission(context: CaseContext) -> Request:
    made = context.do("PUT", share(context), _PERMISSION, _JSON, _DOCUMENT)
    name = "x-ms-file-permission-key"
    return context.request("GET", context.name, _PERMISSION, {name: made.headers[name]})


_SET: Final = request("PUT", {"comp": "properties", **SHARE})
add("Share_SetProperties", 200, _SET, share, headers={"x-ms-share-quota": "3"})
add("Share_SetProperties", 200, _SET, share, headers={"x-ms-access-tier": "Cool"}, name="tier",
    share=8, versions=NEWER)  # fmt: skip
add("Share_SetProperties", 200, _SET, headers={"x-ms-root-squash": "NoRootSquash"}, share=8,
    prepare=lambda s: share(s, x_ms_enabled_protocols="NFS"), name="root squash",
    versions=NEWER)  # fmt: skip
_SET_METADATA: Final = request("PUT", {"comp": "metadata", **SHARE})
add("Share_SetMetadata", 200, _SET_METADATA, share, headers=META)
add("Share_SetMetadata", 200, _SET_METADATA, leased_share, headers={**META, **WITH_LEASE}, share=4,
    name="leased", versions=SHARE_LEASES)  # fmt: skip

_ACL: Final = {"comp": "acl", **SHARE}


def with_policy(context: CaseContext) -> str:
    context.do("PUT", share(context), _ACL, XML, POLICY)
    return context.name


add("Share_GetAccessPolicy", 200, request("GET", _ACL), share)
add("Share_GetAccessPolicy", 200, request("GET", _ACL), with_policy, name="policy", share=10)
add("Share_SetAccessPolicy", 200, request("PUT", _ACL, POLICY), share, headers=XML)
add("Share_SetAccessPolicy", 200, request("PUT", _ACL), share, name="without a body", share=14)
add("Share_GetStatistics", 200, request("GET", {"comp": "stats", **SHARE}), share)


# Deleted shares

_UNDELETE: Final = {"comp": "undelete", **SHARE}


@FILE.case("Share_Restore", 201, signs=False, versions=NEWER)
def restore(context: CaseContext) -> Request:
    return _restoration(keeping(context))


@FILE.case("Share_Restore", 400, "InvalidHeaderValue", signs=False, versions=("2019-12-12",))
def restore_slash(context: CaseContext) -> Request:
    return _restoration(keeping(context), "/")


@FILE.case("Share_Restore", 409, "ShareAlreadyExists", signs=False, versions=NEWER)
def restore_existing(context: CaseContext) -> Request:
    elsewhere = keeping(context)
    restoration = _restoration(elsewhere)
    share(elsewhere)
    return restoration


def _restoration(context: CaseContext, before: str = "") -> Request:
    version = deleted_version(context)
    headers = {
        "x-ms-deleted-share-name": before + context.name,
        "x-ms-deleted-share-version": version,
    }
    return signed_elsewhere(context.request("PUT", context.name, _UNDELETE, headers))

"""The operations of the file service: one row each.

A row names its routes (method, level, `comp`, `restype`, and whether there is a source), the
permission that the caller needs, and its handler. A request to a share with the `restype` of a
directory is for the root directory of the share.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from etagere.auth.file_permissions import (
    READ_FILE,
    on_directory,
    on_file,
    on_file_service_properties,
    on_handles,
    on_hard_link,
    on_list_of_files,
    on_share,
    on_share_permissions,
    on_shares,
)
from etagere.auth.permissions import Permission, on_delegation_key
from etagere.engine.interface import Refused
from etagere.model.base import KeyEnum
from etagere.model.leases import LeaseVerb
from etagere.protocol.file.handlers import (
    copies,
    directories,
    downloads,
    files,
    handles,
    links,
    permissions,
    ranges,
    service,
    shares,
)
from etagere.protocol.rest import delegation, operations, service_operations
from etagere.protocol.rest.exchange import Exchange
from etagere.protocol.rest.operations import (
    Operation,
    Route,
    index_routes,
    restypes_of,
)


class Level(KeyEnum):
    """The kind of resource in the address of a request."""

    SERVICE = enum.auto()
    SHARE = enum.auto()
    PATH = enum.auto()
    """A directory or file below the root of a share."""


class Source(enum.Enum):
    """Whether a request has `x-ms-copy-source`."""

    URL = enum.auto()


SERVICE, SHARE, PATH = Level


@dataclass(frozen=True, kw_only=True, eq=False)
class FileOperation(Operation):
    """One row: an operation of the file service."""

    lease_verbs: tuple[LeaseVerb, ...] = ()
    """The lease actions that it accepts, of an operation on leases."""

    @property
    def permissions(self) -> Mapping[str, Permission]:
        if not self.lease_verbs:
            return super().permissions
        leased = self.name.removeprefix("lease_")
        return {f"{verb.value}_{leased}_lease": self.permission for verb in self.lease_verbs}


# The formatter would spread each row over many lines.
# fmt: off
OPERATIONS: Final = (
    # The service
    FileOperation(
        name="list_shares", handler=service.list_shares,
        permission=on_shares("l"),
        routes=(Route("GET", SERVICE, "list"),)),
    FileOperation(
        name="get_file_service_properties", handler=service_operations.get_service_properties,
        permission=on_file_service_properties("r"),
        routes=(Route("GET", SERVICE, "properties", "service"),)),
    FileOperation(
        name="set_file_service_properties", handler=service_operations.set_service_properties,
        permission=on_file_service_properties("w"),
        routes=(Route("PUT", SERVICE, "properties", "service"),)),
    FileOperation(
        name="get_user_delegation_key", handler=delegation.get_user_delegation_key,
        permission=on_delegation_key(),
        routes=(Route("POST", SERVICE, "userdelegationkey", "service"),)),
    # Shares
    FileOperation(
        name="create_share", handler=shares.create_share,
        permission=on_share("c|w"),
        routes=(Route("PUT", SHARE, "", "share"),)),
    FileOperation(
        name="get_share_properties", handler=shares.get_share_properties,
        permission=on_share("r"),
        routes=(Route("GET", SHARE, "", "share"),)),
    FileOperation(
        name="delete_share", handler=shares.delete_share,
        permission=on_share("d"),
        routes=(Route("DELETE", SHARE, "", "share"),)),
    FileOperation(
        name="set_share_properties", handler=shares.set_share_properties,
        permission=on_share("w"),
        routes=(Route("PUT", SHARE, "properties", "share"),)),
    FileOperation(
        name="get_share_metadata", handler=shares.get_share_metadata,
        permission=on_share("r"),
        routes=(Route("GET", SHARE, "metadata", "share"),)),
    FileOperation(
        name="set_share_metadata", handler=shares.set_share_metadata,
        permission=on_share("w"),
        routes=(Route("PUT", SHARE, "metadata", "share"),)),
    FileOperation(
        name="get_share_acl", handler=shares.get_share_acl,
        permission=on_share(None),
        routes=(Route("GET", SHARE, "acl", "share"),)),
    FileOperation(
        name="set_share_acl", handler=shares.set_share_acl,
        permission=on_share(None),
        routes=(Route("PUT", SHARE, "acl", "share"),)),
    FileOperation(
        name="get_share_stats", handler=shares.get_share_stats,
        permission=on_share("r"),
        routes=(Route("GET", SHARE, "stats", "share"),)),
    FileOperation(
        name="lease_share", handler=shares.lease_share,
        permission=on_share("w"), lease_verbs=tuple(LeaseVerb),
        routes=(Route("PUT", SHARE, "lease", "share"),)),
    FileOperation(
        name="snapshot_share", handler=shares.snapshot_share,
        permission=on_share("c|w"),
        routes=(Route("PUT", SHARE, "snapshot", "share"),)),
    FileOperation(
        name="restore_share", handler=shares.restore_share,
        permission=on_share("w"),
        routes=(Route("PUT", SHARE, "undelete", "share"),)),
    # Permissions
    FileOperation(
        name="create_permission", handler=permissions.create_permission,
        permission=on_share_permissions("wd"),
        routes=(Route("PUT", SHARE, "filepermission", "share"),)),
    FileOperation(
        name="get_permission", handler=permissions.get_permission,
        permission=on_share_permissions("r"),
        routes=(Route("GET", SHARE, "filepermission", "share"),)),
    # Directories
    FileOperation(
        name="create_directory", handler=directories.create_directory,
        permission=on_directory("c|w"),
        routes=tuple(Route("PUT", level, "", "directory") for level in (SHARE, PATH))),
    FileOperation(
        name="get_directory_properties", handler=directories.get_directory_properties,
        permission=on_directory("r"),
        routes=tuple(Route("GET", level, "", "directory") for level in (SHARE, PATH))),
    FileOperation(
        name="delete_directory", handler=directories.delete_directory,
        permission=on_directory("d"),
        routes=tuple(Route("DELETE", level, "", "directory") for level in (SHARE, PATH))),
    FileOperation(
        name="set_directory_properties", handler=directories.set_directory_properties,
        permission=on_directory("w"),
        routes=tuple(Route("PUT", level, "properties", "directory") for level in (SHARE, PATH))),
    FileOperation(
        name="get_directory_metadata", handler=directories.get_directory_metadata,
        permission=on_directory("r"),
        routes=tuple(Route("GET", level, "metadata", "directory") for level in (SHARE, PATH))),
    FileOperation(
        name="set_directory_metadata", handler=directories.set_directory_metadata,
        permission=on_directory("w"),
        routes=tuple(Route("PUT", level, "metadata", "directory") for level in (SHARE, PATH))),
    FileOperation(
        name="list_directories_and_files", handler=directories.list_directories_and_files,
        permission=on_list_of_files("l"),
        routes=tuple(Route("GET", level, "list", "directory") for level in (SHARE, PATH))),
    FileOperation(
        name="rename_directory", handler=directories.rename_directory,
        permission=on_directory("w", if_absent="c"),
        routes=tuple(Route("PUT", level, "rename", "directory") for level in (SHARE, PATH))),
    # Files
    FileOperation(
        name="create_file", handler=files.create_file,
        permission=on_file("w", if_absent="c"),
        routes=(Route("PUT", PATH),)),
    FileOperation(
        name="get_file", handler=downloads.get_file,
        permission=READ_FILE,
        routes=(Route("GET", PATH),)),
    FileOperation(
        name="get_file_properties", handler=files.get_file_properties,
        permission=READ_FILE,
        routes=(Route("HEAD", PATH),)),
    FileOperation(
        name="delete_file", handler=files.delete_file,
        permission=on_file("d"),
        routes=(Route("DELETE", PATH),)),
    FileOperation(
        name="set_file_properties", handler=files.set_file_properties,
        permission=on_file("w"),
        routes=(Route("PUT", PATH, "properties"),)),
    FileOperation(
        name="get_file_metadata", handler=files.get_file_metadata,
        permission=READ_FILE,
        routes=(Route("GET", PATH, "metadata"),)),
    FileOperation(
        name="set_file_metadata", handler=files.set_file_metadata,
        permission=on_file("w"),
        routes=(Route("PUT", PATH, "metadata"),)),
    FileOperation(
        name="lease_file", handler=files.lease_file,
        permission=on_file("w"),
        # The lease of a file is infinite, so there is nothing to renew.
        lease_verbs=tuple(verb for verb in LeaseVerb if verb is not LeaseVerb.RENEW),
        routes=(Route("PUT", PATH, "lease"),)),
    FileOperation(
        name="rename_file", handler=files.rename_file,
        permission=on_file("w", if_absent="c"),
        routes=(Route("PUT", PATH, "rename"),)),
    # Ranges of files
    FileOperation(
        name="put_range", handler=ranges.put_range,
        permission=on_file("w"),
        routes=(Route("PUT", PATH, "range"),)),
    FileOperation(
        name="list_ranges", handler=ranges.list_ranges,
        permission=READ_FILE,
        routes=(Route("GET", PATH, "rangelist"),)),
    # Copies
    FileOperation(
        name="put_range_from_url", handler=copies.put_range_from_url,
        permission=on_file("w"),
        routes=(Route("PUT", PATH, "range", variant=Source.URL),)),
    FileOperation(
        name="copy_file", handler=copies.copy_file,
        permission=on_file("w", if_absent="c"),
        routes=(Route("PUT", PATH, variant=Source.URL),)),
    FileOperation(
        name="abort_copy_file", handler=copies.abort_copy_file,
        permission=on_file("w"),
        routes=(Route("PUT", PATH, "copy"),)),
    # Links
    FileOperation(
        name="create_symbolic_link", handler=links.create_symbolic_link,
        # Neither kind of link replaces an entry.
        permission=on_file("c|w"),
        routes=(Route("PUT", PATH, "", "symboliclink"),)),
    FileOperation(
        name="get_symbolic_link", handler=links.get_symbolic_link,
        permission=READ_FILE,
        routes=(Route("GET", PATH, "", "symboliclink"),)),
    FileOperation(
        name="create_hard_link", handler=links.create_hard_link,
        permission=on_hard_link(),
        routes=(Route("PUT", PATH, "", "hardlink"),)),
    # Handles
    FileOperation(
        name="list_handles", handler=handles.list_handles,
        permission=on_handles("l"),
        routes=tuple(Route("GET", level, "listhandles") for level in (SHARE, PATH))),
    FileOperation(
        name="force_close_handles", handler=handles.force_close_handles,
        permission=on_handles("w"),
        routes=tuple(Route("PUT", level, "forceclosehandles") for level in (SHARE, PATH))),
)
# fmt: on

_INDEX: Final = index_routes(OPERATIONS, Source)
_RESTYPES: Final = {level: restypes_of(_INDEX, level) for level in Level}


def find_operation(exchange: Exchange) -> FileOperation | None:
    """Returns the operation of a request, or None if there is no such operation."""
    request = exchange.request
    parameters, level = request.parameters, _level(exchange)
    comp, restype = parameters.get("comp", "").lower(), parameters.get("restype", "").lower()
    source = Source.URL if "x-ms-copy-source" in request.fields else None
    return _INDEX.get((request.method, level, comp, restype, source))


def refuse_unrouted(exchange: Exchange) -> Refused:
    """Returns the refusal of a request for which there is no operation."""
    level = _level(exchange)
    return operations.refuse_unrouted(exchange, _RESTYPES[level], service=level is SERVICE)


def _level(exchange: Exchange) -> Level:
    share, path = exchange.request.resource
    return PATH if path else SHARE if share else SERVICE

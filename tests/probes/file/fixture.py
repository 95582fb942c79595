"""Shares, directories and files to attack, and a dump of everything in the file service."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Final
from urllib.parse import quote
from xml.etree import ElementTree

from tests.probes.client import Answer, Pairs, Request
from tests.probes.file.operations import (
    LEASE,
    PERMISSION,
    PROPERTIES,
    VERSION,
    FileOperation,
    FileTarget,
)
from tests.probes.service import SCHEMES, ServiceFixture, lasting
from tests.server import ACCOUNT, Server, unique

CONTENT: Final = b"what is on the shelf"
_SHARE: Final = ("restype", "share")
_DIRECTORY: Final = ("restype", "directory")
_VERSIONED: Final = ("x-ms-version", VERSION)


class FileFixture(ServiceFixture[FileTarget]):
    """The owner's side of a probe of the file service."""

    service: ClassVar[str] = "file"
    schemes = SCHEMES
    default_properties = PROPERTIES.replace(b"<Enabled>true</Enabled><Days>5</Days>",
                                            b"<Enabled>false</Enabled>")  # fmt: skip

    def __init__(self, server: Server, endless: str = "") -> None:
        """`endless` is the URL of a source from which a copy never ends."""
        super().__init__(server)
        self.endless = endless

    def create(
        self, account: str = ACCOUNT, *, leased: str = "", is_nfs: bool = False
    ) -> FileTarget:
        """`leased` says what is to be leased: the share or the file."""
        target = FileTarget(unique("probe"), account)
        protocol = (("x-ms-enabled-protocols", "NFS"),) if is_nfs else ()
        self._put(target, "", (_SHARE,), *protocol)
        self._put(target, target.directory, (_DIRECTORY,))
        self._put(target, target.file.partition("/")[0], (_DIRECTORY,))
        self.write(target, target.file, CONTENT)
        if is_nfs:
            text = ("x-ms-link-text", "shelf/book")
            self._put(target, target.link, (("restype", "symboliclink"),), text)
        if leased:
            headers = (
                ("x-ms-lease-action", "acquire"),
                ("x-ms-lease-duration", "-1"),
                ("x-ms-proposed-lease-id", LEASE),
            )
            path, query = (target.file, ()) if leased == "file" else ("", (_SHARE,))
            self._put(target, path, (*query, ("comp", "lease")), *headers)
        return target

    def create_for(self, operation: FileOperation) -> FileTarget:
        leased = operation.level if operation.needs_lease else ""
        target = self.create(leased=leased, is_nfs=operation.needs_nfs)
        if operation.source == "directory to rename":
            self._put(target, target.source, (_DIRECTORY,))
        elif operation.source:
            self.write(target, target.source, CONTENT)
        if operation.row == "get_permission":
            query = (_SHARE, ("comp", "filepermission"))
            path = f"/{target.account}/{target.share}"
            answer = self.send_as_owner(Request("PUT", path, query, (_VERSIONED,), PERMISSION))
            key = answer.headers["x-ms-file-permission-key"]
            target = target._replace(permission_key=key)
        if operation.aborts:
            answer = self._put(target, target.file, (), ("x-ms-copy-source", self.endless))
            target = target._replace(copy_id=answer.headers["x-ms-copy-id"])
        if operation.restores:
            target = target._replace(deleted_version=self._soft_delete(target))
        return target

    def _soft_delete(self, target: FileTarget) -> str:
        """Deletes a share so that it can be restored; returns its version."""
        path, days = f"/{target.account}/", b"<Enabled>true</Enabled><Days>1</Days>"
        for policy in (days, b"<Enabled>false</Enabled>"):
            document = (
                b"<StorageServiceProperties><ShareDeleteRetentionPolicy>%b"
                b"</ShareDeleteRetentionPolicy></StorageServiceProperties>" % policy
            )
            query: Pairs = (("restype", "service"), ("comp", "properties"))
            self.send_as_owner(Request("PUT", path, query, (_VERSIONED,), document))
            if policy is days:
                delete = Request("DELETE", f"{path}{target.share}", (_SHARE,), (_VERSIONED,))
                self.send_as_owner(delete)
        query = (("comp", "list"), ("include", "deleted"), ("prefix", target.share))
        page = ElementTree.fromstring(self._get(target.account, "/", query).body)
        return page.findtext("Shares/Share/Version") or ""

    def write(self, target: FileTarget, path: str, content: bytes) -> None:
        """Creates a file with this content."""
        length = ("x-ms-content-length", str(len(content)))
        meta = ("x-ms-meta-title", "Shelf")
        self._put(target, path, (), ("x-ms-type", "file"), length, meta)
        whole = ("x-ms-range", f"bytes=0-{len(content) - 1}")
        update = ("x-ms-write", "update")
        self._put(target, path, (("comp", "range"),), whole, update, body=content)

    def _put(
        self,
        target: FileTarget,
        path: str,
        query: Pairs = (),
        *headers: tuple[str, str],
        body: bytes = b"",
    ) -> Answer:
        address = f"/{target.account}/{target.share}" + (f"/{path}" if path else "")
        request = Request("PUT", address, query, (_VERSIONED, *headers), body)
        return self.send_as_owner(request, target.account)

    def remove(self, target: FileTarget) -> None:
        for share in (target.share, target.free_share):
            path = f"/{target.account}/{share}"
            included = ("x-ms-delete-snapshots", "include")
            delete = Request("DELETE", path, (_SHARE,), (_VERSIONED, included))
            if self.client.ask(self.sign_as_owner(delete, target.account)).status == 412:
                broken = (("x-ms-lease-action", "break"), ("x-ms-lease-break-period", "0"))
                self._put(target, "", (_SHARE, ("comp", "lease")), *broken)
                self.send_as_owner(delete, target.account)

    def set_policies(self, target: FileTarget, document: bytes) -> None:
        self._put(target, "", (_SHARE, ("comp", "acl")), body=document)

    def dump_resources(self, account: str) -> Iterator[tuple[str, object]]:
        included = ("include", "metadata,snapshots,deleted")
        page = self._get(account, "/", (("comp", "list"), included)).body
        yield "/shares", page
        for share in _listed(page, "Shares/Share", without="Deleted"):
            path = f"/{share}"
            for comp in ("", "acl", "stats"):
                query: Pairs = (_SHARE, ("comp", comp)) if comp else (_SHARE,)
                yield f"{path}?{comp}", lasting(self._get(account, path, query))
            yield from self._dump_directory(account, path)

    def _dump_directory(self, account: str, path: str) -> Iterator[tuple[str, object]]:
        yield path, lasting(self._get(account, path, (_DIRECTORY,)))
        page = self._get(account, path, (_DIRECTORY, ("comp", "list"))).body
        yield f"{path}/*", page
        for name in _listed(page, "Entries/Directory"):
            yield from self._dump_directory(account, f"{path}/{quote(name)}")
        for name in _listed(page, "Entries/File"):
            file = f"{path}/{quote(name)}"
            properties = Request("HEAD", f"/{account}{file}", (), (_VERSIONED,))
            shown = self.send_as_owner(properties, account)
            yield f"{file}?properties", lasting(shown)
            is_link = shown.headers.get("x-ms-file-file-type") == "SymLink"
            query = (("restype", "symboliclink"),) if is_link else ()
            yield file, lasting(self._get(account, file, query))

    def _get(self, account: str, path: str, query: Pairs) -> Answer:
        request = Request("GET", f"/{account}{path}", query, (_VERSIONED,))
        return self.send_as_owner(request, account)


def _listed(page: bytes, path: str, without: str = "") -> list[str]:
    """Returns the names of the listed elements, each once, except those with another element."""
    found = ElementTree.fromstring(page).findall(path)
    names = [element.findtext("Name") or "" for element in found if not element.findtext(without)]
    return list(dict.fromkeys(names))

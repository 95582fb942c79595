"""Containers and blobs to attack, and a dump of everything in the blob service."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Final
from urllib.parse import quote
from xml.etree import ElementTree

from tests.probes.blob.operations import LEASE, PAGE, BlobOperation, BlobTarget
from tests.probes.client import Pairs, Request
from tests.probes.service import SCHEMES, ServiceFixture, lasting
from tests.server import ACCOUNT, Server, unique

CONTENT: Final = b"what is on the shelf"
_CONTAINER: Final = ("restype", "container")
_METADATA: Final = ("include", "metadata")
_BLOCKS: Final = (("comp", "blocklist"), ("blocklisttype", "all"))
_EVERYTHING: Final = ("include", "metadata,snapshots,uncommittedblobs,tags,copy")
SOURCE: Final = b"s" * PAGE


class BlobFixture(ServiceFixture[BlobTarget]):
    """The owner's side of a probe of the blob service."""

    service: ClassVar[str] = "blob"
    schemes = SCHEMES

    def __init__(self, server: Server, endless: str = "") -> None:
        """`endless` is the URL of a source from which a copy never ends."""
        super().__init__(server)
        self.endless = endless

    def create(
        self,
        account: str = ACCOUNT,
        *,
        leased: bool = False,
        access: str = "",
        kind: str = "BlockBlob",
    ) -> BlobTarget:
        target = BlobTarget(unique("probe"), leased=leased, account=account)
        path = f"/{account}/{target.container}"
        headers: Pairs = (("x-ms-blob-public-access", access),) if access else ()
        self.send_as_owner(Request("PUT", path, (_CONTAINER,), headers), account)
        self.put(target, target.blob, kind, CONTENT)
        if leased:
            self.lease(target)
        return target

    def create_for(self, operation: BlobOperation, access: str = "") -> BlobTarget:
        target = self.create(leased=operation.needs_lease, access=access, kind=operation.kind)
        if operation.source:
            self.put(target, target.source, operation.source, SOURCE)
        if operation.source == "PageBlob":
            path = f"/{target.account}/{target.container}/{target.source}"
            answer = self.send_as_owner(Request("PUT", path, (("comp", "snapshot"),)))
            target = target._replace(snapshot=answer.headers["x-ms-snapshot"])
        if operation.aborts:
            path = f"/{target.account}/{target.container}/{target.blob}"
            begun = self.send_as_owner(
                Request("PUT", path, (), (("x-ms-copy-source", self.endless),))
            )
            target = target._replace(copy_id=begun.headers["x-ms-copy-id"])
        return target

    def put(self, target: BlobTarget, blob: str, kind: str, content: bytes) -> None:
        headers: Pairs = (("x-ms-blob-type", kind), ("x-ms-meta-title", "Shelf"))
        headers += (("x-ms-tags", "kind=book"),)
        if kind == "PageBlob":
            headers += (("x-ms-blob-content-length", str(PAGE)),)
        path = f"/{target.account}/{target.container}/{blob}"
        body = content if kind == "BlockBlob" else b""
        self.send_as_owner(Request("PUT", path, (), headers, body), target.account)

    def lease(self, target: BlobTarget) -> None:
        headers = (
            ("x-ms-lease-action", "acquire"),
            ("x-ms-lease-duration", "-1"),
            ("x-ms-proposed-lease-id", LEASE),
        )
        path, comp = f"/{target.account}/{target.container}", ("comp", "lease")
        self.send_as_owner(Request("PUT", path, (_CONTAINER, comp), headers), target.account)
        self.send_as_owner(
            Request("PUT", f"{path}/{target.blob}", (comp,), headers), target.account
        )

    def remove(self, target: BlobTarget) -> None:
        for container in (target.container, target.free_container):
            path = f"/{target.account}/{container}"
            delete = Request("DELETE", path, (_CONTAINER,))
            if self.client.ask(self.sign_as_owner(delete, target.account)).status == 412:
                broken = (("x-ms-lease-action", "break"), ("x-ms-lease-break-period", "0"))
                lease = Request("PUT", path, (_CONTAINER, ("comp", "lease")), broken)
                self.send_as_owner(lease, target.account)
                self.send_as_owner(delete, target.account)

    def set_policies(self, target: BlobTarget, document: bytes) -> None:
        path = f"/{target.account}/{target.container}"
        query = (_CONTAINER, ("comp", "acl"))
        self.send_as_owner(Request("PUT", path, query, (), document), target.account)

    def dump_resources(self, account: str) -> Iterator[tuple[str, object]]:
        query = (("comp", "list"), _METADATA)
        page = self.send_as_owner(Request("GET", f"/{account}/", query), account).body
        yield "/containers", page
        for container in _names(page, "Container"):
            yield from self._dump_container(account, container)

    def _dump_container(self, account: str, container: str) -> Iterator[tuple[str, object]]:
        path = f"/{account}/{container}"
        access = Request("GET", path, (_CONTAINER, ("comp", "acl")))
        yield f"/{container}", lasting(self.send_as_owner(access, account))
        listing = Request("GET", path, (_CONTAINER, ("comp", "list"), _EVERYTHING))
        page = self.send_as_owner(listing, account).body
        yield f"/{container}/blobs", page
        # An incremental copy cannot be read, only its snapshots, which are listed.
        unread = _names(page, "Blob", "/IncrementalCopy")
        for blob in filter(lambda blob: blob not in unread, _names(page, "Blob", "/Etag")):
            answer = self.send_as_owner(Request("GET", f"{path}/{quote(blob)}"), account)
            yield f"/{container}/blobs/{blob}", lasting(answer)
        for blob in _names(page, "Blob", "[BlobType='BlockBlob']"):
            blocks = Request("GET", f"{path}/{quote(blob)}", _BLOCKS)
            yield f"/{container}/blocks/{blob}", self.send_as_owner(blocks, account).body


def _names(page: bytes, tag: str, having: str = "") -> list[str]:
    """Returns the names of the listed elements, or of those that match a path in Properties."""
    root = ElementTree.fromstring(page)
    elements = [
        element
        for element in root.iter(tag)
        if not having or element.find(f"Properties{having}") is not None
    ]
    return list(dict.fromkeys(element.findtext("Name") or "" for element in elements))

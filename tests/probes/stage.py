"""A server under attack: its owner prepares what is attacked, and looks whether it has changed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Final
from urllib.parse import quote
from xml.etree import ElementTree

from tests.probes.client import Answer, Client, Pairs, Request, shared_key
from tests.probes.operations import LEASE, PAGE, Operation, Place
from tests.server import ACCOUNT, KEY, SECOND_ACCOUNT, SECOND_KEYS, Server, unique

OWNERS: Final = {
    ACCOUNT: shared_key(ACCOUNT, KEY),
    SECOND_ACCOUNT: shared_key(SECOND_ACCOUNT, SECOND_KEYS[0]),
}
CONTENT: Final = b"what is on the shelf"
_CONTAINER: Final = ("restype", "container")
_METADATA: Final = ("include", "metadata")
_BLOCKS: Final = (("comp", "blocklist"), ("blocklisttype", "all"))
_EVERYTHING: Final = ("include", "metadata,snapshots,uncommittedblobs,tags,copy")
SOURCE: Final = b"s" * PAGE
# What differs between two answers that say the same.
_OF_THE_MOMENT: Final = {"date", "x-ms-request-id"}

Dump = dict[str, object]


class Stage:
    """The owner's side of a probe."""

    def __init__(self, server: Server, endless: str = "") -> None:
        """`endless` is the address of what can be copied for ever."""
        self.server = server
        self.endless = endless
        self.client = Client(server.endpoints["blob"])

    def own(self, request: Request, account: str = ACCOUNT) -> Answer:
        """What the owner asks for is given."""
        answer = self.client.ask(OWNERS[account](request))
        assert answer.status < 300, (request, answer)
        return answer

    # Places

    def make(
        self,
        *,
        leased: bool = False,
        access: str = "",
        account: str = ACCOUNT,
        kind: str = "BlockBlob",
    ) -> Place:
        place = Place(unique("probe"), leased=leased, account=account)
        path = f"/{account}/{place.container}"
        headers: Pairs = (("x-ms-blob-public-access", access),) if access else ()
        self.own(Request("PUT", path, (_CONTAINER,), headers), account)
        self.put(place, place.blob, kind, CONTENT)
        if leased:
            self.lease(place)
        return place

    def make_for(self, operation: Operation, access: str = "") -> Place:
        """With all that it needs to be carried out."""
        place = self.make(leased=operation.needs_lease, access=access, kind=operation.kind)
        if operation.source:
            self.put(place, place.source, operation.source, SOURCE)
        if operation.source == "PageBlob":
            path = f"/{place.account}/{place.container}/{place.source}"
            taken = self.own(Request("PUT", path, (("comp", "snapshot"),)))
            place = place._replace(snapshot=taken.headers["x-ms-snapshot"])
        if operation.aborts:
            path = f"/{place.account}/{place.container}/{place.blob}"
            begun = self.own(Request("PUT", path, (), (("x-ms-copy-source", self.endless),)))
            place = place._replace(copy_id=begun.headers["x-ms-copy-id"])
        return place

    def put(self, place: Place, blob: str, kind: str, content: bytes) -> None:
        headers: Pairs = (("x-ms-blob-type", kind), ("x-ms-meta-title", "Shelf"))
        headers += (("x-ms-tags", "kind=book"),)
        if kind == "PageBlob":
            headers += (("x-ms-blob-content-length", str(PAGE)),)
        path = f"/{place.account}/{place.container}/{blob}"
        body = content if kind == "BlockBlob" else b""
        self.own(Request("PUT", path, (), headers, body), place.account)

    def lease(self, place: Place) -> None:
        headers = (
            ("x-ms-lease-action", "acquire"),
            ("x-ms-lease-duration", "-1"),
            ("x-ms-proposed-lease-id", LEASE),
        )
        path, comp = f"/{place.account}/{place.container}", ("comp", "lease")
        self.own(Request("PUT", path, (_CONTAINER, comp), headers), place.account)
        self.own(Request("PUT", f"{path}/{place.blob}", (comp,), headers), place.account)

    def remove(self, place: Place) -> None:
        """Whatever was done to it meanwhile."""
        sign = OWNERS[place.account]
        for container in (place.container, place.free_container):
            path = f"/{place.account}/{container}"
            delete = Request("DELETE", path, (_CONTAINER,))
            if self.client.ask(sign(delete)).status == 412:
                broken = (("x-ms-lease-action", "break"), ("x-ms-lease-break-period", "0"))
                lease = Request("PUT", path, (_CONTAINER, ("comp", "lease")), broken)
                self.own(lease, place.account)
                self.own(delete, place.account)

    @contextlib.contextmanager
    def place_for(self, operation: Operation) -> Iterator[Place]:
        place = self.make_for(operation)
        try:
            yield place
        finally:
            self.remove(place)
            if operation.row == "set_blob_service_properties":
                usual = operation.body.replace(b"true", b"false")
                self.own(replace(operation.request(place), body=usual))

    # What is there

    @contextlib.contextmanager
    def unchanged(self) -> Iterator[None]:
        """Everything is afterwards as it was before."""
        before = self.dump()
        assert any("/blobs/" in name for name in before), "there is something to change"
        yield
        assert self.dump() == before

    def dump(self) -> Dump:
        return {
            f"/{account}{name}": found
            for account in OWNERS
            for name, found in self._account(account)
        }

    def _account(self, account: str) -> Iterator[tuple[str, object]]:
        path = f"/{account}/"
        properties = Request("GET", path, (("restype", "service"), ("comp", "properties")))
        yield "", self.own(properties, account).body
        page = self.own(Request("GET", path, (("comp", "list"), _METADATA)), account).body
        yield "/containers", page
        for container in _names(page, "Container"):
            yield from self._container(account, container)

    def _container(self, account: str, container: str) -> Iterator[tuple[str, object]]:
        path = f"/{account}/{container}"
        access = Request("GET", path, (_CONTAINER, ("comp", "acl")))
        yield f"/{container}", _lasting(self.own(access, account))
        listing = Request("GET", path, (_CONTAINER, ("comp", "list"), _EVERYTHING))
        page = self.own(listing, account).body
        yield f"/{container}/blobs", page
        # Of a copy made in steps only snapshots are read, and those are listed.
        unread = _names(page, "Blob", "/IncrementalCopy")
        for blob in filter(lambda blob: blob not in unread, _names(page, "Blob", "/Etag")):
            answer = self.own(Request("GET", f"{path}/{quote(blob)}"), account)
            yield f"/{container}/blobs/{blob}", _lasting(answer)
        for blob in _names(page, "Blob", "[BlobType='BlockBlob']"):
            blocks = Request("GET", f"{path}/{quote(blob)}", _BLOCKS)
            yield f"/{container}/blocks/{blob}", self.own(blocks, account).body


def _names(page: bytes, tag: str, having: str = "") -> list[str]:
    """Of all, or of those that have a property."""
    root = ElementTree.fromstring(page)
    found = [
        element
        for element in root.iter(tag)
        if not having or element.find(f"Properties{having}") is not None
    ]
    return list(dict.fromkeys(element.findtext("Name") or "" for element in found))


def _lasting(answer: Answer) -> tuple[dict[str, str], bytes]:
    headers = {name: value for name, value in answer.headers.items() if name not in _OF_THE_MOMENT}
    return headers, answer.body

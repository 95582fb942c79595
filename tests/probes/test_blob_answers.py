"""Answers of the blob service, header by header and element by element."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import replace
from typing import Final, NamedTuple
from xml.etree import ElementTree

import pytest

from tests.probes.client import Answer, Pairs, Request, http_date, md5, shared_key
from tests.probes.operations import LEASE
from tests.probes.parts import BOUNDARY, CONTENT_TYPE, answered, batch
from tests.probes.stage import Stage
from tests.probes.tokens import account_token, service_token
from tests.server import ACCOUNT, KEY, unique

SIGN = shared_key(ACCOUNT, KEY)
VERSION: Final = "2021-08-06"
NEWEST: Final = "2026-10-06"
CONTAINER: Final = ("restype", "container")
BODY: Final = b"0123456789"
PAGE: Final = b"p" * 512
BLOCK: Final = base64.b64encode(b"block").decode()
# What every answer has, and how the end of a body is told.
COMMON: Final = {
    "date", "server", "x-ms-request-id", "x-ms-version", "content-length", "transfer-encoding",
}  # fmt: skip
STAMP: Final = {"etag", "last-modified"}
ENCRYPTED: Final = "x-ms-request-server-encrypted"
OF_BLOBS: Final = STAMP | {
    "accept-ranges", "content-type", "x-ms-blob-type", "x-ms-creation-time", "x-ms-lease-state",
    "x-ms-lease-status", "x-ms-server-encrypted",
}  # fmt: skip
LEASES: Final = {"x-ms-lease-state", "x-ms-lease-status"}
TIER: Final = {"x-ms-access-tier", "x-ms-access-tier-inferred"}


class Sent(NamedTuple):
    """The owner of a container of its own, who asks for this and that in it."""

    stage: Stage
    container: str

    def ask(
        self,
        method: str,
        blob: str = "",
        query: Pairs = (),
        headers: Pairs = (),
        body: bytes = b"",
        version: str = VERSION,
    ) -> Answer:
        path = f"/{ACCOUNT}/{self.container}{f'/{blob}' if blob else ''}"
        return self.send(Request(method, path, query, headers, body), version)

    def send(self, request: Request, version: str = VERSION) -> Answer:
        return self.stage.client.ask(SIGN(request.having(("x-ms-version", version))))

    def put(self, blob: str, body: bytes = BODY, *headers: tuple[str, str]) -> Answer:
        made = self.ask("PUT", blob, (), (("x-ms-blob-type", "BlockBlob"), *headers), body)
        assert made.status == 201, made
        return made

    def make(self, blob: str, kind: str) -> None:
        headers: Pairs = (("x-ms-blob-type", kind),)
        if kind == "PageBlob":
            headers += (("x-ms-blob-content-length", "2048"),)
        made = self.ask("PUT", blob, (), headers)
        assert made.status == 201, made

    def snapshot(self, blob: str) -> str:
        taken = self.ask("PUT", blob, (("comp", "snapshot"),))
        assert taken.status == 201, taken
        return taken.headers["x-ms-snapshot"]

    def url(self, blob: str) -> str:
        token = service_token(ACCOUNT, KEY, self.container, permissions="r")
        return f"{self.stage.server.url('blob')}/{self.container}/{blob}?{token}"

    def list_blobs(self, *query: tuple[str, str], version: str = VERSION) -> ElementTree.Element:
        listed = self.ask("GET", "", (CONTAINER, ("comp", "list"), *query), version=version)
        assert listed.status == 200, listed
        return ElementTree.fromstring(listed.body)


@pytest.fixture
def sent(stage: Stage) -> Iterator[Sent]:
    box = Sent(stage, unique("box"))
    assert box.ask("PUT", "", (CONTAINER,)).status == 201
    yield box
    assert box.ask("DELETE", "", (CONTAINER,)).status == 202


def told(answer: Answer) -> set[str]:
    return set(answer.headers) - COMMON


def tags(element: ElementTree.Element | None) -> list[str]:
    assert element is not None
    return [child.tag for child in element]


def error_of(answer: Answer) -> tuple[int, str, str]:
    """Status, code and the first line of the message, which the status line repeats."""
    message = answer.error().get("Message", "").partition("\n")[0]
    assert answer.reason == message
    return answer.status, answer.code, message


# Headers of reads


def test_who_asks_for_bytes_is_not_told_the_tier(sent: Sent) -> None:
    sent.put("a")
    whole = sent.ask("GET", "a")
    assert told(whole) == OF_BLOBS | {"content-md5"}
    part = sent.ask("GET", "a", (), (("x-ms-range", "bytes=0-1"),))
    assert told(part) == OF_BLOBS | {"content-range", "x-ms-blob-content-md5"}
    assert told(sent.ask("HEAD", "a")) == OF_BLOBS | TIER | {"content-md5"}
    newest = sent.ask("GET", "a", version=NEWEST)
    assert told(newest) == OF_BLOBS | TIER | {"content-md5"}


@pytest.mark.parametrize("kind", ["BlockBlob", "PageBlob", "AppendBlob"])
def test_snapshots_have_no_lease(sent: Sent, kind: str) -> None:
    sent.make("a", kind)
    moment = ("snapshot", sent.snapshot("a"))
    leased = (("x-ms-lease-action", "acquire"), ("x-ms-lease-duration", "-1"))
    held = sent.ask("PUT", "a", (("comp", "lease"),), leased).headers["x-ms-lease-id"]
    for method in ("GET", "HEAD"):
        assert told(sent.ask(method, "a")) >= LEASES
        assert not {name for name in told(sent.ask(method, "a", (moment,))) if "lease" in name}
    past, current = sent.list_blobs(("include", "snapshots")).iter("Properties")
    assert not [tag for tag in tags(past) if tag.startswith("Lease")]
    assert {"LeaseStatus", "LeaseState", "LeaseDuration"} <= set(tags(current))
    released = (("x-ms-lease-action", "release"), ("x-ms-lease-id", held))
    assert sent.ask("PUT", "a", (("comp", "lease"),), released).status == 200


def test_what_is_only_blocks_has_no_length(sent: Sent) -> None:
    query: Pairs = (("comp", "blocklist"), ("blocklisttype", "all"))
    sent.ask("PUT", "a", (("comp", "block"), ("blockid", BLOCK)), (), BODY)
    assert told(sent.ask("GET", "a", query)) == {"content-type"}
    sent.put("a")
    assert told(sent.ask("GET", "a", query)) == STAMP | {"content-type", "x-ms-blob-content-length"}


@pytest.mark.parametrize(("version", "is_told"), [("2019-07-07", False), ("2020-10-02", True)])
def test_properties_of_containers(sent: Sent, version: str, is_told: bool) -> None:
    found = sent.ask("GET", "", (CONTAINER,), version=version)
    name = "x-ms-immutable-storage-with-versioning-enabled"
    assert (name in found.headers) is is_told
    page = sent.send(
        Request("GET", f"/{ACCOUNT}/", (("comp", "list"), ("prefix", sent.container))), version
    )
    (properties,) = ElementTree.fromstring(page.body).iter("Properties")
    assert ("ImmutableStorageWithVersioningEnabled" in tags(properties)) is is_told


@pytest.mark.parametrize(("version", "is_told"), [("2019-02-02", False), (VERSION, True)])
def test_old_clients_are_not_told_about_hierarchies(
    sent: Sent, version: str, is_told: bool
) -> None:
    query = (("restype", "account"), ("comp", "properties"))
    found = sent.ask("GET", "", query, version=version)
    expected = {"x-ms-sku-name", "x-ms-account-kind"}
    assert told(found) == expected | ({"x-ms-is-hns-enabled"} if is_told else set())


# Headers of writes

OF_UPLOADS: Final = {
    "a block": ("PUT", "a", (("comp", "block"), ("blockid", BLOCK)), (), BODY, {ENCRYPTED}),
    "an appended block": (
        "PUT", "append", (("comp", "appendblock"),), (), BODY,
        STAMP | {ENCRYPTED, "x-ms-blob-append-offset", "x-ms-blob-committed-block-count"},
    ),
    "pages": (
        "PUT", "page", (("comp", "page"),),
        (("x-ms-page-write", "update"), ("x-ms-range", "bytes=0-511")), PAGE,
        STAMP | {ENCRYPTED, "x-ms-blob-sequence-number"},
    ),
    "a block list": (
        "PUT", "list", (("comp", "blocklist"),), (), b"<BlockList />", STAMP | {ENCRYPTED},
    ),
}  # fmt: skip


@pytest.mark.parametrize("upload", OF_UPLOADS)
def test_an_upload_is_answered_with_its_checksums(sent: Sent, upload: str) -> None:
    method, blob, query, headers, body, expected = OF_UPLOADS[upload]
    sent.make("append", "AppendBlob")
    sent.make("page", "PageBlob")
    plain = sent.ask(method, blob, query, headers, body)
    assert (plain.status, told(plain)) == (201, expected | {"x-ms-content-crc64"})
    crc = plain.headers["x-ms-content-crc64"]
    by_crc = sent.ask(method, blob, query, (*headers, ("x-ms-content-crc64", crc)), body)
    assert (by_crc.status, told(by_crc)) == (201, expected | {"x-ms-content-crc64"})
    by_md5 = sent.ask(method, blob, query, (*headers, ("Content-MD5", md5(body))), body)
    assert (by_md5.status, told(by_md5)) == (201, expected | {"content-md5"})
    newest = sent.ask(method, blob, query, (*headers, ("Content-MD5", md5(body))), body, NEWEST)
    both: set[str] = set() if "blocklist" in dict(query).values() else {"x-ms-content-crc64"}
    assert (newest.status, told(newest)) == (201, expected | {"content-md5"} | both)


def test_a_blob_that_is_put_is_answered_with_both(sent: Sent) -> None:
    expected = STAMP | {ENCRYPTED, "content-md5", "x-ms-content-crc64"}
    assert told(sent.put("a")) == expected
    assert told(sent.put("a", BODY, ("Content-MD5", md5(BODY)))) == expected


FROM_URLS: Final = {
    "a blob": ("a", (), (("x-ms-blob-type", "BlockBlob"),), STAMP | {ENCRYPTED}),
    "a block": ("a", (("comp", "block"), ("blockid", BLOCK)), (), {ENCRYPTED}),
    "an appended block": (
        "append", (("comp", "appendblock"),), (),
        STAMP | {ENCRYPTED, "x-ms-blob-append-offset", "x-ms-blob-committed-block-count"},
    ),
    "pages": (
        "page", (("comp", "page"),),
        (
            ("x-ms-page-write", "update"),
            ("x-ms-range", "bytes=0-511"),
            ("x-ms-source-range", "bytes=0-511"),
        ),
        STAMP | {ENCRYPTED, "x-ms-blob-sequence-number"},
    ),
    "a copy": (
        "copy", (), (("x-ms-requires-sync", "true"),),
        STAMP | {ENCRYPTED, "x-ms-copy-id", "x-ms-copy-status"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("upload", FROM_URLS)
@pytest.mark.parametrize("size", [512, 5 << 20])
def test_so_is_one_from_elsewhere(sent: Sent, upload: str, size: int) -> None:
    blob, query, headers, expected = FROM_URLS[upload]
    source = bytes(size)
    sent.put("source", source)
    if upload == "an appended block" and size > 4 << 20:
        headers = (("x-ms-source-range", "bytes=0-511"),)
        source = source[:512]
    if upload == "pages":
        source = source[:512]
    sent.make("append", "AppendBlob")
    sent.make("page", "PageBlob")
    headers = (*headers, ("x-ms-copy-source", sent.url("source")))
    plain = sent.ask("PUT", blob, query, headers)
    assert (plain.status // 100, told(plain)) == (2, expected | {"x-ms-content-crc64"})
    sent_md5 = ("x-ms-source-content-md5", md5(source))
    by_md5 = sent.ask("PUT", blob, query, (*headers, sent_md5))
    assert (by_md5.status // 100, told(by_md5)) == (2, expected | {"content-md5"})
    newest = sent.ask("PUT", blob, query, (*headers, sent_md5), version=NEWEST)
    both: set[str] = set() if blob == "copy" else {"x-ms-content-crc64"}
    assert (newest.status // 100, told(newest)) == (2, expected | {"content-md5"} | both)


def test_a_source_of_several_blocks_has_a_checksum(sent: Sent) -> None:
    """Too large to be read, as its bytes can be shared."""
    blocks = [bytes([n]) * (2 << 20) for n in range(3)]
    names = [base64.b64encode(b"%d" % n).decode() for n in range(3)]
    for name, block in zip(names, blocks, strict=True):
        query = (("comp", "block"), ("blockid", name))
        assert sent.ask("PUT", "source", query, (), block).status == 201
    listed = "".join(f"<Latest>{name}</Latest>" for name in names)
    document = f"<BlockList>{listed}</BlockList>".encode()
    assert sent.ask("PUT", "source", (("comp", "blocklist"),), (), document).status == 201
    expected = sent.put("whole", b"".join(blocks)).headers["x-ms-content-crc64"]
    for header in (("x-ms-blob-type", "BlockBlob"), ("x-ms-requires-sync", "true")):
        copied = sent.ask("PUT", "a", (), (header, ("x-ms-copy-source", sent.url("source"))))
        assert copied.headers["x-ms-content-crc64"] == expected


def test_what_says_that_nothing_was_encrypted(sent: Sent) -> None:
    sent.put("a")
    taken = sent.ask("PUT", "a", (("comp", "snapshot"),))
    assert told(taken) == STAMP | {ENCRYPTED, "x-ms-snapshot"}
    assert taken.headers[ENCRYPTED] == "false"
    headers = (("x-ms-copy-source", sent.url("a")), ("x-ms-requires-sync", "true"))
    copied = sent.ask("PUT", "b", (), headers)
    assert copied.headers[ENCRYPTED] == "true"
    assert ENCRYPTED not in sent.ask("PUT", "b", (), headers, version="2020-10-02").headers
    sent.ask("DELETE", "a", (), (("x-ms-delete-snapshots", "include"),))


# Refusals


def test_the_status_line_says_why(sent: Sent) -> None:
    message = "The specified blob does not exist."
    assert error_of(sent.ask("GET", "none")) == (404, "BlobNotFound", message)
    sent.put("a")
    etag = sent.ask("HEAD", "a").headers["etag"]
    same = sent.ask("GET", "a", (), (("If-None-Match", etag),))
    unmet = "The condition specified using HTTP conditional header(s) is not met."
    assert (same.status, same.reason, told(same)) == (304, unmet, {"x-ms-error-code"})
    assert sent.ask("GET", "a").reason == "OK"


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ((), 404, "BlobNotFound"),
        ((("x-ms-lease-id", "none"),), 400, "InvalidHeaderValue"),
        ((("Authorization", "SharedKey a:b"),), 403, "AuthenticationFailed"),
    ],
)
def test_an_error_to_head_has_no_body(sent: Sent, headers: Pairs, status: int, code: str) -> None:
    answer = sent.ask("HEAD", "none", (), headers)
    if status == 403:
        path = f"/{ACCOUNT}/{sent.container}/none"
        request = Request("HEAD", path, (), (("x-ms-date", http_date()), *headers))
        answer = sent.stage.client.ask(request)
    assert (answer.status, answer.code) == (status, code)
    assert not {"content-type", "content-length"} & set(answer.headers)
    # The connection goes on behind it.
    assert sent.ask("HEAD", "none").status == 404


@pytest.mark.parametrize(
    ("target", "headers", "status"),
    [
        ("/a", (), 400),
        ("/a", ("Host: h", "No Name: 1"), 400),
        ("/a", ("Host: h", "Content-Length: -1"), 400),
        ("/a", ("Host: h", *(f"x-{n}: 1" for n in range(300))), 431),
        ("/" + "a" * 70_000, ("Host: h",), 414),
    ],
    ids=["no host", "name", "length", "many", "long"],
)
def test_a_malformed_head_has_no_body_in_its_error(
    stage: Stage, target: str, headers: tuple[str, ...], status: int
) -> None:
    sent = "\r\n".join([f"HEAD {target} HTTP/1.1", *headers, "", ""]).encode()
    (answer,) = stage.client.send_bytes(sent, "HEAD")
    assert answer.status == status
    assert not {"content-type", "content-length"} & set(answer.headers)
    (answer,) = stage.client.send_bytes(sent.replace(b"HEAD", b"GET", 1))
    assert (answer.status, answer.headers["content-type"]) == (status, "application/xml")


@pytest.mark.parametrize("length", [0, 10])
def test_a_range_behind_the_end(sent: Sent, length: int) -> None:
    sent.put("a", BODY[:length])
    for name in ("Range", "x-ms-range"):
        answer = sent.ask("GET", "a", (), ((name, f"bytes={length}-"),))
        assert (answer.status, answer.code) == (416, "InvalidRange")
        assert answer.headers["content-range"] == f"bytes */{length}"


@pytest.mark.parametrize(
    ("container", "code", "message"),
    [
        ("ab", "OutOfRangeInput",
         "The specified resource name length is not within the permissible limits."),
        ("a" * 64, "OutOfRangeInput",
         "The specified resource name length is not within the permissible limits."),
        ("a--b", "InvalidResourceName",
         "The specifed resource name contains invalid characters."),
    ],
)  # fmt: skip
def test_names_that_containers_cannot_have(
    sent: Sent, container: str, code: str, message: str
) -> None:
    answer = sent.send(Request("PUT", f"/{ACCOUNT}/{container}", (CONTAINER,)))
    assert error_of(answer) == (400, code, message)


def test_a_sealed_blob(sent: Sent) -> None:
    sent.make("a", "AppendBlob")
    assert told(sent.ask("PUT", "a", (("comp", "seal"),))) == STAMP | {"x-ms-blob-sealed"}
    answer = sent.ask("PUT", "a", (("comp", "appendblock"),), (), BODY)
    message = "The blob is sealed and its contents cannot be modified."
    assert error_of(answer) == (409, "BlobIsSealed", message)


def test_who_has_no_name_is_challenged(sent: Sent) -> None:
    path = f"/{ACCOUNT}/{sent.container}"
    request = Request("GET", path, (CONTAINER,), (("x-ms-version", VERSION),))
    message = (
        "Server failed to authenticate the request. Please refer to the information in the "
        "www-authenticate header."
    )
    answer = sent.stage.client.ask(request)
    assert error_of(answer) == (401, "NoAuthenticationInformation", message)


# Conditions where there are none

CONDITIONS: Final = (
    ("If-Match", '"0x8D"'),
    ("If-None-Match", "*"),
    ("If-Modified-Since", "Fri, 01 Jan 2021 00:00:00 GMT"),
    ("If-Unmodified-Since", "Fri, 01 Jan 2021 00:00:00 GMT"),
)


@pytest.mark.parametrize("condition", CONDITIONS, ids=[name for name, _ in CONDITIONS])
@pytest.mark.parametrize(
    ("method", "target", "query"),
    [
        ("PUT", "/new", (CONTAINER,)),
        ("GET", "/box", (CONTAINER,)),
        ("HEAD", "/box", (CONTAINER,)),
        ("GET", "/box", (CONTAINER, ("comp", "metadata"))),
        ("GET", "/box", (CONTAINER, ("comp", "acl"))),
        ("GET", "/box", (CONTAINER, ("comp", "list"))),
        ("GET", "/box", (CONTAINER, ("comp", "blobs"), ("where", "a%3D%27b%27"))),
        ("GET", "/", (("comp", "list"),)),
        ("GET", "/", (("restype", "service"), ("comp", "properties"))),
        ("GET", "/", (("comp", "blobs"), ("where", "a%3D%27b%27"))),
        ("PUT", "/box/a", (("comp", "copy"), ("copyid", LEASE))),
        ("PUT", "/box/a", (("comp", "block"), ("blockid", BLOCK))),
        ("GET", "/box/a", (("comp", "blocklist"),)),
    ],
)
def test_conditions_on_what_takes_none(
    stage: Stage, method: str, target: str, query: Pairs, condition: tuple[str, str]
) -> None:
    headers: Pairs = (condition, ("x-ms-version", VERSION), ("x-ms-copy-action", "abort"))
    body = BODY if ("comp", "block") in query else b""
    answer = stage.client.ask(SIGN(Request(method, f"/{ACCOUNT}{target}", query, headers, body)))
    assert (answer.status, answer.code) == (400, "ConditionHeadersNotSupported")


@pytest.mark.parametrize(
    ("method", "target", "query"),
    [
        ("PUT", "/new", (CONTAINER,)),
        ("GET", "/box", (CONTAINER,)),
        ("GET", "/box", (CONTAINER, ("comp", "list"))),
        ("PUT", "/box", (CONTAINER, ("comp", "metadata"))),
        ("PUT", "/box", (CONTAINER, ("comp", "acl"))),
        ("PUT", "/box", (CONTAINER, ("comp", "lease"))),
        ("DELETE", "/box", (CONTAINER,)),
        ("GET", "/", (("comp", "list"),)),
        ("GET", "/", (("restype", "service"), ("comp", "properties"))),
        ("PUT", "/box/a", (("comp", "copy"), ("copyid", LEASE))),
        ("PUT", "/box/a", (("comp", "block"), ("blockid", BLOCK))),
        ("GET", "/box/a", (("restype", "account"), ("comp", "properties"))),
    ],
)
@pytest.mark.parametrize("signed", [True, False])
def test_conditions_on_tags_where_there_are_none(
    stage: Stage, method: str, target: str, query: Pairs, signed: bool
) -> None:
    headers: Pairs = (("x-ms-if-tags", "k = 'v'"), ("x-ms-version", VERSION))
    body = BODY if ("comp", "block") in query else b""
    request = Request(method, f"/{ACCOUNT}{target}", query, headers, body)
    # Who may do it is told so, whether they may read tags or not.
    token = account_token(ACCOUNT, KEY, permissions="rwdlac")
    answer = stage.client.ask(SIGN(request) if signed else token.put_on(request))
    if signed or ("comp", "acl") not in query:
        assert (answer.status, answer.code) == (400, "ConditionHeadersNotSupported")


# If-Range


@pytest.mark.parametrize(
    ("named", "status"),
    [
        ("{etag}", 206),
        ("{date}", 206),
        ("W/{etag}", 200),
        ('"0x8D0000000000000"', 200),
        ("Fri, 01 Jan 2021 00:00:00 GMT", 200),
        ("none", 200),
    ],
)
def test_if_range(sent: Sent, named: str, status: int) -> None:
    made = sent.put("a").headers
    value = named.format(etag=made["etag"], date=made["last-modified"])
    answer = sent.ask("GET", "a", (), (("Range", "bytes=2-3"), ("If-Range", value)))
    expected = (206, b"23") if status == 206 else (200, BODY)
    assert (answer.status, answer.body) == expected
    assert ("content-range" in answer.headers) is (status == 206)
    # A range that is not there does not matter if it is not asked for.
    behind = sent.ask("GET", "a", (), (("Range", "bytes=20-"), ("If-Range", value)))
    assert behind.status == (416 if status == 206 else 200)
    assert sent.ask("GET", "a", (), (("If-Range", value),)).status == 200


# Listings

BLOB: Final = [
    "Creation-Time", "Last-Modified", "Etag", "Content-Length", "Content-Type", "Content-Encoding",
    "Content-Language", "Content-CRC64", "Content-MD5", "Cache-Control", "Content-Disposition",
]  # fmt: skip


def test_elements_of_blobs(sent: Sent) -> None:
    sent.put("a", BODY, ("x-ms-tags", "k=v"), ("x-ms-meta-m", "1"))
    sent.ask("PUT", "copy", (), (("x-ms-copy-source", sent.url("a")),))
    sent.make("append", "AppendBlob")
    sent.ask("PUT", "append", (("comp", "seal"),))
    sent.make("page", "PageBlob")
    sent.ask("PUT", "blocks", (("comp", "block"), ("blockid", BLOCK)), (), BODY)
    everything = "copy,metadata,tags,uncommittedblobs"
    found = sent.list_blobs(("include", everything))
    assert tags(found) == ["Blobs", "NextMarker"]
    rows = {row.findtext("Name"): row for row in found.iter("Blob")}
    properties = {name: tags(row.find("Properties")) for name, row in rows.items()}
    tier, lease = ["AccessTier", "AccessTierInferred"], ["LeaseStatus", "LeaseState"]
    assert tags(rows["a"]) == ["Name", "Properties", "Tags", "Metadata", "OrMetadata"]
    assert properties["a"] == [*BLOB, "BlobType", *tier, *lease, "ServerEncrypted", "TagCount"]
    copied = ["CopyId", "CopySource", "CopyStatus", "CopyProgress", "CopyCompletionTime"]
    assert properties["copy"] == [*BLOB, "BlobType", *tier, *lease, *copied, "ServerEncrypted"]
    assert properties["append"] == [*BLOB, "BlobType", *lease, "ServerEncrypted", "Sealed"]
    number = "x-ms-blob-sequence-number"
    assert properties["page"] == [*BLOB, number, "BlobType", *tier, *lease, "ServerEncrypted"]
    # What is only blocks has been neither made nor changed.
    uncommitted = ["Content-Length", "BlobType", *tier, *lease, "ServerEncrypted"]
    assert properties["blocks"] == uncommitted
    old = sent.list_blobs(version="2021-06-08")
    assert {tuple(tags(row)) for row in old.iter("Blob")} == {("Name", "Properties")}


def test_elements_of_tiers(sent: Sent) -> None:
    sent.put("a", BODY, ("x-ms-access-tier", "Archive"))
    cool = (("x-ms-access-tier", "Cool"),)
    assert sent.ask("PUT", "a", (("comp", "tier"),), cool).status == 202
    (properties,) = sent.list_blobs().iter("Properties")
    shown = tags(properties)[len(BLOB) :]
    assert shown == [
        "BlobType", "AccessTier", "ArchiveStatus", "RehydratePriority", "AccessTierChangeTime",
        "LeaseStatus", "LeaseState", "ServerEncrypted",
    ]  # fmt: skip


def test_elements_of_containers(stage: Stage) -> None:
    box = Sent(stage, unique("box"))
    assert box.ask("PUT", "", (CONTAINER,), (("x-ms-blob-public-access", "blob"),)).status == 201
    leased = (("x-ms-lease-action", "acquire"), ("x-ms-lease-duration", "15"))
    held = box.ask("PUT", "", (CONTAINER, ("comp", "lease")), leased).headers["x-ms-lease-id"]
    query = (("comp", "list"), ("prefix", box.container), ("include", "metadata"))
    page = ElementTree.fromstring(box.send(Request("GET", f"/{ACCOUNT}/", query)).body)
    assert tags(page) == ["Prefix", "Containers", "NextMarker"]
    (row,) = page.iter("Container")
    assert tags(row) == ["Name", "Properties", "Metadata"]
    assert tags(row.find("Properties")) == [
        "Last-Modified", "Etag", "LeaseStatus", "LeaseState", "PublicAccess", "LeaseDuration",
        "DefaultEncryptionScope", "DenyEncryptionScopeOverride", "HasImmutabilityPolicy",
        "HasLegalHold", "ImmutableStorageWithVersioningEnabled",
    ]  # fmt: skip
    assert box.ask("DELETE", "", (CONTAINER,), (("x-ms-lease-id", held),)).status == 202


def test_listings_echo_what_was_sent(sent: Sent) -> None:
    for name in ("a", "b", "c"):
        sent.put(name)
    assert tags(sent.list_blobs()) == ["Blobs", "NextMarker"]
    assert tags(sent.list_blobs(("startFrom", "b"), ("endBefore", "c"))) == ["Blobs", "NextMarker"]
    first = sent.list_blobs(("maxresults", "1"), ("prefix", ""))
    assert tags(first) == ["Prefix", "MaxResults", "Blobs", "NextMarker"]
    marker = first.findtext("NextMarker") or ""
    query = (("delimiter", "%2F"), ("maxresults", "7"), ("marker", marker), ("prefix", "%01%26"))
    asked = sent.list_blobs(*query)
    assert tags(asked)[:4] == ["Prefix", "Marker", "MaxResults", "Delimiter"]
    assert [asked.findtext(name) for name in tags(asked)[:4]] == ["%01%26", marker, "7", "/"]
    prefix = asked.find("Prefix")
    assert prefix is not None
    assert prefix.attrib == {"Encoded": "true"}
    plain = sent.list_blobs(("prefix", "%26%3C")).find("Prefix")
    assert plain is not None
    assert (plain.text, plain.attrib) == ("&<", {})


def test_page_ranges_have_a_marker_if_parts_were_asked_for(sent: Sent) -> None:
    sent.make("a", "PageBlob")
    update = ("x-ms-page-write", "update")
    for start in (0, 1024):
        written = ("x-ms-range", f"bytes={start}-{start + 511}")
        assert sent.ask("PUT", "a", (("comp", "page"),), (update, written), PAGE).status == 201
    found = sent.ask("GET", "a", (("comp", "pagelist"),))
    assert told(found) == STAMP | {"content-type", "x-ms-blob-content-length"}
    assert tags(ElementTree.fromstring(found.body)) == ["PageRange", "PageRange"]
    for limit, marker in (("1", True), ("2", False)):
        asked = sent.ask("GET", "a", (("comp", "pagelist"), ("maxresults", limit)))
        following = ElementTree.fromstring(asked.body).find("NextMarker")
        assert following is not None
        assert bool(following.text) is marker


def test_what_a_search_finds(sent: Sent) -> None:
    for name in ("a", "b"):
        sent.put(name, BODY, ("x-ms-tags", "k=v&other=o"))
    query: Pairs = (CONTAINER, ("comp", "blobs"), ("where", "k%3D%27v%27"))

    def page(*more: tuple[str, str], version: str = VERSION) -> ElementTree.Element:
        return ElementTree.fromstring(sent.ask("GET", "", (*query, *more), version=version).body)

    first = page(("maxresults", "1"))
    assert tags(first) == ["Where", "MaxResults", "Blobs", "NextMarker"]
    second = page(("marker", first.findtext("NextMarker") or ""), ("maxresults", "1"))
    assert tags(second) == ["Marker", "Where", "MaxResults", "Blobs", "NextMarker"]
    assert tags(page(("marker", "")))[0] == "Marker"
    everything = page()
    assert tags(everything) == ["Where", "Blobs", "NextMarker"]
    rows = list(everything.iter("Blob"))
    assert [tags(row) for row in rows] == [["Name", "ContainerName", "Tags"]] * 2
    assert [tag.findtext("Key") for tag in everything.iter("Tag")] == ["k", "k"]
    old = page(version="2019-12-12")
    assert [row.findtext("TagValue") for row in old.iter("Blob")] == ["v", "v"]
    assert old.find("Blobs/Blob/Tags") is None


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("k 'v'", "3: expected an operator"),
        ("'k' = 'v'", "1: expected the name of a tag"),
        ("k = 'v' AND @box = 'b'", "13: unsupported parameter '@box'"),
        ("k <> 'v'", "3: "),
    ],
)
def test_what_cannot_be_searched_for(sent: Sent, where: str, said: str) -> None:
    written = where.replace(" ", "%20").replace("'", "%27").replace("<", "%3C")
    answer = sent.ask("GET", "", (CONTAINER, ("comp", "blobs"), ("where", written)))
    assert (answer.status, answer.code) == (400, "InvalidQueryParameterValue")
    message = answer.error()["Message"]
    assert message.startswith(f"Error parsing query at or near character position {said}")


# Refusals explain themselves


def test_facts_of_tiers(sent: Sent) -> None:
    sent.put("a", BODY, ("x-ms-access-tier", "Cool"))
    since = http_date(3600)
    headers = (("x-ms-access-tier-if-modified-since", since),)
    told_facts = sent.ask("DELETE", "a", (), headers).error()
    assert told_facts["Condition"] == "x-ms-access-tier-if-modified-since"
    assert told_facts["Sent"] == since
    changed = sent.ask("HEAD", "a").headers["x-ms-access-tier-change-time"]
    assert told_facts["Current"] == changed
    headers = (("x-ms-access-tier-if-unmodified-since", http_date(-3600)),)
    told_facts = sent.ask("DELETE", "a", (), headers).error()
    assert told_facts["Condition"] == "x-ms-access-tier-if-unmodified-since"


def test_facts_of_tags_are_for_those_who_may_read_them(sent: Sent) -> None:
    sent.put("a", BODY, ("x-ms-tags", "k=v&l=w"))
    path = f"/{ACCOUNT}/{sent.container}/a"
    request = Request("GET", path, (), (("x-ms-if-tags", "k = 'x'"), ("x-ms-version", VERSION)))

    def error(letters: str) -> dict[str, str]:
        if not letters:
            return sent.stage.client.ask(SIGN(request)).error()
        token = service_token(ACCOUNT, KEY, sent.container, permissions=letters)
        return sent.stage.client.ask(token.put_on(request)).error()

    for letters in ("", "rt"):
        told_facts = error(letters)
        assert told_facts["Code"] == "ConditionNotMet"
        assert told_facts["Condition"] == "x-ms-if-tags"
        assert told_facts["Sent"] == "k = 'x'"
        assert told_facts["Current"] == "k=v&l=w"
    assert "Current" not in error("r")
    # Who may not read the blob may still read its tags.
    request = replace(request, method="PUT", query=(("comp", "metadata"),))
    for letters in ("", "wt"):
        assert error(letters)["Current"] == "k=v&l=w"
    request = request.lacking("x-ms-if-tags").having(("If-Match", '"0x8D"'))
    assert "Current" in error("rwt")
    assert "Current" not in error("wt")


@pytest.mark.parametrize("access", ["blob", "container", ""])
def test_facts_for_everybody(stage: Stage, access: str) -> None:
    box = Sent(stage, unique("box"))
    public: Pairs = (("x-ms-blob-public-access", access),) if access else ()
    assert box.ask("PUT", "", (CONTAINER,), public).status == 201
    etag = box.put("a").headers["etag"]
    path = f"/{ACCOUNT}/{box.container}/a"
    headers = (("If-Match", '"0x8D"'), ("x-ms-version", VERSION))
    told_facts = stage.client.ask(Request("GET", path, (), headers)).error()
    if access:
        assert (told_facts["Code"], told_facts["Current"]) == ("ConditionNotMet", etag)
    else:
        assert told_facts["Code"] == "NoAuthenticationInformation"
        assert set(told_facts) == {"Code", "Message"}
    assert box.ask("DELETE", "", (CONTAINER,)).status == 202


# Batches


def deletes(*targets: str) -> bytes:
    return batch([SIGN(Request("DELETE", f"/{ACCOUNT}/{target}")) for target in targets])


@pytest.mark.parametrize(
    ("content_type", "code"),
    [
        ("multipart/mixed", "InvalidHeaderValue"),
        ("multipart/mixed; boundary=", "InvalidHeaderValue"),
        ('multipart/mixed; boundary=""', "InvalidHeaderValue"),
        (f"{CONTENT_TYPE}; boundary={BOUNDARY}", "InvalidInput"),
    ],
)
@pytest.mark.parametrize("scope", ["account", "container"])
def test_batches_that_cannot_be_taken_apart(
    sent: Sent, content_type: str, code: str, scope: str
) -> None:
    sent.put("a")
    answer = _batched(sent, scope, content_type, deletes(f"{sent.container}/a"))
    assert answer.status == 202
    assert answered(answer) == [(400, code)]
    assert b"Content-ID" not in answer.body
    assert sent.ask("HEAD", "a").status == 200


def test_a_doubled_boundary_in_a_batch(sent: Sent) -> None:
    sent.put("a")
    body = f"--{BOUNDARY}\r\n".encode() + deletes(f"{sent.container}/a")
    answer = _batched(sent, "account", CONTENT_TYPE, body)
    assert (answer.status, answered(answer)) == (202, [(400, "InvalidInput")])
    assert sent.ask("HEAD", "a").status == 200


def test_a_part_for_a_foreign_container(sent: Sent) -> None:
    sent.put("a")
    body = deletes(f"{sent.container}/a", "elsewhere/a")
    answer = _batched(sent, "container", CONTENT_TYPE, body)
    assert (answer.status, answered(answer)) == (202, [(400, "InvalidInput")])
    assert b"HTTP/1.1 400 One of the request inputs is not valid.\r\n" in answer.body
    assert sent.ask("HEAD", "a").status == 200


def test_parts_of_a_batch_say_why(sent: Sent) -> None:
    sent.put("a")
    body = deletes(f"{sent.container}/a", f"{sent.container}/none")
    answer = _batched(sent, "container", CONTENT_TYPE, body)
    assert answered(answer) == [(202, ""), (404, "BlobNotFound")]
    assert b"HTTP/1.1 202 Accepted\r\n" in answer.body
    assert b"HTTP/1.1 404 The specified blob does not exist.\r\n" in answer.body


def _batched(sent: Sent, scope: str, content_type: str, body: bytes) -> Answer:
    headers = (("Content-Type", content_type),)
    if scope == "container":
        return sent.ask("POST", "", (CONTAINER, ("comp", "batch")), headers, body)
    return sent.send(Request("POST", f"/{ACCOUNT}/", (("comp", "batch"),), headers, body))

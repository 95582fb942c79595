"""Responses of the blob service: headers, errors, and elements of listings."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import replace
from typing import Final, NamedTuple
from xml.etree import ElementTree

import pytest

from tests.probes.blob.batches import BOUNDARY, CONTENT_TYPE, answered, batch
from tests.probes.blob.fixture import BlobFixture
from tests.probes.blob.operations import LEASE
from tests.probes.client import Answer, Pairs, Request, http_date, md5, shared_key
from tests.probes.tokens import account_token, service_token
from tests.server import ACCOUNT, KEY, unique

SIGN = shared_key(ACCOUNT, KEY)
VERSION: Final = "2021-08-06"
NEWEST: Final = "2026-10-06"
CONTAINER: Final = ("restype", "container")
BODY: Final = b"0123456789"
PAGE: Final = b"p" * 512
BLOCK: Final = base64.b64encode(b"block").decode()
# Headers of every response, and those that frame its body.
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


class ContainerClient(NamedTuple):
    """Sends requests of the owner to a container."""

    blobs: BlobFixture
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
        return self.blobs.client.ask(SIGN(request.having(("x-ms-version", version))))

    def put(self, blob: str, body: bytes = BODY, *headers: tuple[str, str]) -> Answer:
        created = self.ask("PUT", blob, (), (("x-ms-blob-type", "BlockBlob"), *headers), body)
        assert created.status == 201, created
        return created

    def create(self, blob: str, kind: str) -> None:
        headers: Pairs = (("x-ms-blob-type", kind),)
        if kind == "PageBlob":
            headers += (("x-ms-blob-content-length", "2048"),)
        created = self.ask("PUT", blob, (), headers)
        assert created.status == 201, created

    def snapshot(self, blob: str) -> str:
        created = self.ask("PUT", blob, (("comp", "snapshot"),))
        assert created.status == 201, created
        return created.headers["x-ms-snapshot"]

    def url(self, blob: str) -> str:
        token = service_token(ACCOUNT, KEY, self.container, permissions="r")
        return f"{self.blobs.server.endpoints['blob']}/{ACCOUNT}/{self.container}/{blob}?{token}"

    def list_blobs(self, *query: tuple[str, str], version: str = VERSION) -> ElementTree.Element:
        listed = self.ask("GET", "", (CONTAINER, ("comp", "list"), *query), version=version)
        assert listed.status == 200, listed
        return ElementTree.fromstring(listed.body)


@pytest.fixture
def client(blobs: BlobFixture) -> Iterator[ContainerClient]:
    client = ContainerClient(blobs, unique("box"))
    assert client.ask("PUT", "", (CONTAINER,)).status == 201
    yield client
    assert client.ask("DELETE", "", (CONTAINER,)).status == 202


def header_names(answer: Answer) -> set[str]:
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


def test_old_versions_of_get_blob_omit_the_tier(client: ContainerClient) -> None:
    client.put("a")
    full = client.ask("GET", "a")
    assert header_names(full) == OF_BLOBS | {"content-md5"}
    part = client.ask("GET", "a", (), (("x-ms-range", "bytes=0-1"),))
    assert header_names(part) == OF_BLOBS | {"content-range", "x-ms-blob-content-md5"}
    assert header_names(client.ask("HEAD", "a")) == OF_BLOBS | TIER | {"content-md5"}
    newest = client.ask("GET", "a", version=NEWEST)
    assert header_names(newest) == OF_BLOBS | TIER | {"content-md5"}


@pytest.mark.parametrize("kind", ["BlockBlob", "PageBlob", "AppendBlob"])
def test_snapshots_have_no_lease(client: ContainerClient, kind: str) -> None:
    client.create("a", kind)
    moment = ("snapshot", client.snapshot("a"))
    leased = (("x-ms-lease-action", "acquire"), ("x-ms-lease-duration", "-1"))
    lease_id = client.ask("PUT", "a", (("comp", "lease"),), leased).headers["x-ms-lease-id"]
    for method in ("GET", "HEAD"):
        assert header_names(client.ask(method, "a")) >= LEASES
        assert not {
            name for name in header_names(client.ask(method, "a", (moment,))) if "lease" in name
        }
    past, current = client.list_blobs(("include", "snapshots")).iter("Properties")
    assert not [tag for tag in tags(past) if tag.startswith("Lease")]
    assert {"LeaseStatus", "LeaseState", "LeaseDuration"} <= set(tags(current))
    released = (("x-ms-lease-action", "release"), ("x-ms-lease-id", lease_id))
    assert client.ask("PUT", "a", (("comp", "lease"),), released).status == 200


def test_the_block_list_of_an_uncommitted_blob_has_no_length(client: ContainerClient) -> None:
    query: Pairs = (("comp", "blocklist"), ("blocklisttype", "all"))
    client.ask("PUT", "a", (("comp", "block"), ("blockid", BLOCK)), (), BODY)
    assert header_names(client.ask("GET", "a", query)) == {"content-type"}
    client.put("a")
    assert header_names(client.ask("GET", "a", query)) == STAMP | {
        "content-type",
        "x-ms-blob-content-length",
    }


@pytest.mark.parametrize(("version", "expected"), [("2019-07-07", False), ("2020-10-02", True)])
def test_properties_of_containers(client: ContainerClient, version: str, expected: bool) -> None:
    response = client.ask("GET", "", (CONTAINER,), version=version)
    name = "x-ms-immutable-storage-with-versioning-enabled"
    assert (name in response.headers) is expected
    page = client.send(
        Request("GET", f"/{ACCOUNT}/", (("comp", "list"), ("prefix", client.container))), version
    )
    (properties,) = ElementTree.fromstring(page.body).iter("Properties")
    assert ("ImmutableStorageWithVersioningEnabled" in tags(properties)) is expected


@pytest.mark.parametrize(("version", "expected"), [("2019-02-02", False), (VERSION, True)])
def test_old_versions_omit_the_hierarchical_namespace(
    client: ContainerClient, version: str, expected: bool
) -> None:
    query = (("restype", "account"), ("comp", "properties"))
    response = client.ask("GET", "", query, version=version)
    common = {"x-ms-sku-name", "x-ms-account-kind"}
    assert header_names(response) == common | ({"x-ms-is-hns-enabled"} if expected else set())


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
def test_checksums_of_uploads(client: ContainerClient, upload: str) -> None:
    method, blob, query, headers, body, expected = OF_UPLOADS[upload]
    client.create("append", "AppendBlob")
    client.create("page", "PageBlob")
    plain = client.ask(method, blob, query, headers, body)
    assert (plain.status, header_names(plain)) == (201, expected | {"x-ms-content-crc64"})
    crc = plain.headers["x-ms-content-crc64"]
    by_crc = client.ask(method, blob, query, (*headers, ("x-ms-content-crc64", crc)), body)
    assert (by_crc.status, header_names(by_crc)) == (201, expected | {"x-ms-content-crc64"})
    by_md5 = client.ask(method, blob, query, (*headers, ("Content-MD5", md5(body))), body)
    assert (by_md5.status, header_names(by_md5)) == (201, expected | {"content-md5"})
    newest = client.ask(method, blob, query, (*headers, ("Content-MD5", md5(body))), body, NEWEST)
    both: set[str] = set() if "blocklist" in dict(query).values() else {"x-ms-content-crc64"}
    assert (newest.status, header_names(newest)) == (201, expected | {"content-md5"} | both)


def test_put_blob_returns_both_checksums(client: ContainerClient) -> None:
    expected = STAMP | {ENCRYPTED, "content-md5", "x-ms-content-crc64"}
    assert header_names(client.put("a")) == expected
    assert header_names(client.put("a", BODY, ("Content-MD5", md5(BODY)))) == expected


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
def test_checksums_of_uploads_from_urls(client: ContainerClient, upload: str, size: int) -> None:
    blob, query, headers, expected = FROM_URLS[upload]
    source = bytes(size)
    client.put("source", source)
    if upload == "an appended block" and size > 4 << 20:
        headers = (("x-ms-source-range", "bytes=0-511"),)
        source = source[:512]
    if upload == "pages":
        source = source[:512]
    client.create("append", "AppendBlob")
    client.create("page", "PageBlob")
    headers = (*headers, ("x-ms-copy-source", client.url("source")))
    plain = client.ask("PUT", blob, query, headers)
    assert (plain.status // 100, header_names(plain)) == (2, expected | {"x-ms-content-crc64"})
    source_md5 = ("x-ms-source-content-md5", md5(source))
    by_md5 = client.ask("PUT", blob, query, (*headers, source_md5))
    assert (by_md5.status // 100, header_names(by_md5)) == (2, expected | {"content-md5"})
    newest = client.ask("PUT", blob, query, (*headers, source_md5), version=NEWEST)
    both: set[str] = set() if blob == "copy" else {"x-ms-content-crc64"}
    assert (newest.status // 100, header_names(newest)) == (2, expected | {"content-md5"} | both)


def test_checksum_of_a_source_of_several_blocks(client: ContainerClient) -> None:
    """The bytes of a large source are shared, not read."""
    blocks = [bytes([n]) * (2 << 20) for n in range(3)]
    names = [base64.b64encode(b"%d" % n).decode() for n in range(3)]
    for name, block in zip(names, blocks, strict=True):
        query = (("comp", "block"), ("blockid", name))
        assert client.ask("PUT", "source", query, (), block).status == 201
    listed = "".join(f"<Latest>{name}</Latest>" for name in names)
    document = f"<BlockList>{listed}</BlockList>".encode()
    assert client.ask("PUT", "source", (("comp", "blocklist"),), (), document).status == 201
    expected = client.put("whole", b"".join(blocks)).headers["x-ms-content-crc64"]
    for header in (("x-ms-blob-type", "BlockBlob"), ("x-ms-requires-sync", "true")):
        copied = client.ask("PUT", "a", (), (header, ("x-ms-copy-source", client.url("source"))))
        assert copied.headers["x-ms-content-crc64"] == expected


def test_whether_the_request_was_encrypted(client: ContainerClient) -> None:
    client.put("a")
    snapshot = client.ask("PUT", "a", (("comp", "snapshot"),))
    assert header_names(snapshot) == STAMP | {ENCRYPTED, "x-ms-snapshot"}
    assert snapshot.headers[ENCRYPTED] == "false"
    headers = (("x-ms-copy-source", client.url("a")), ("x-ms-requires-sync", "true"))
    copied = client.ask("PUT", "b", (), headers)
    assert copied.headers[ENCRYPTED] == "true"
    assert ENCRYPTED not in client.ask("PUT", "b", (), headers, version="2020-10-02").headers
    client.ask("DELETE", "a", (), (("x-ms-delete-snapshots", "include"),))


# Refusals


def test_the_status_line_has_the_message(client: ContainerClient) -> None:
    message = "The specified blob does not exist."
    assert error_of(client.ask("GET", "none")) == (404, "BlobNotFound", message)
    client.put("a")
    etag = client.ask("HEAD", "a").headers["etag"]
    same = client.ask("GET", "a", (), (("If-None-Match", etag),))
    unmet = "The condition specified using HTTP conditional header(s) is not met."
    assert (same.status, same.reason, header_names(same)) == (304, unmet, {"x-ms-error-code"})
    assert client.ask("GET", "a").reason == "OK"


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ((), 404, "BlobNotFound"),
        ((("x-ms-lease-id", "none"),), 400, "InvalidHeaderValue"),
        ((("Authorization", "SharedKey a:b"),), 403, "AuthenticationFailed"),
    ],
)
def test_an_error_to_head_has_no_body(
    client: ContainerClient, headers: Pairs, status: int, code: str
) -> None:
    answer = client.ask("HEAD", "none", (), headers)
    if status == 403:
        path = f"/{ACCOUNT}/{client.container}/none"
        request = Request("HEAD", path, (), (("x-ms-date", http_date()), *headers))
        answer = client.blobs.client.ask(request)
    assert (answer.status, answer.code) == (status, code)
    assert not {"content-type", "content-length"} & set(answer.headers)
    # The connection stays usable.
    assert client.ask("HEAD", "none").status == 404


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
    blobs: BlobFixture, target: str, headers: tuple[str, ...], status: int
) -> None:
    raw = "\r\n".join([f"HEAD {target} HTTP/1.1", *headers, "", ""]).encode()
    (answer,) = blobs.client.send_bytes(raw, "HEAD")
    assert answer.status == status
    assert not {"content-type", "content-length"} & set(answer.headers)
    (answer,) = blobs.client.send_bytes(raw.replace(b"HEAD", b"GET", 1))
    assert (answer.status, answer.headers["content-type"]) == (status, "application/xml")


@pytest.mark.parametrize("length", [0, 10])
def test_a_range_beyond_the_end(client: ContainerClient, length: int) -> None:
    client.put("a", BODY[:length])
    for name in ("Range", "x-ms-range"):
        answer = client.ask("GET", "a", (), ((name, f"bytes={length}-"),))
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
def test_invalid_container_names(
    client: ContainerClient, container: str, code: str, message: str
) -> None:
    answer = client.send(Request("PUT", f"/{ACCOUNT}/{container}", (CONTAINER,)))
    assert error_of(answer) == (400, code, message)


def test_a_sealed_blob(client: ContainerClient) -> None:
    client.create("a", "AppendBlob")
    assert header_names(client.ask("PUT", "a", (("comp", "seal"),))) == STAMP | {"x-ms-blob-sealed"}
    answer = client.ask("PUT", "a", (("comp", "appendblock"),), (), BODY)
    message = "The blob is sealed and its contents cannot be modified."
    assert error_of(answer) == (409, "BlobIsSealed", message)


def test_anonymous_callers_are_challenged(client: ContainerClient) -> None:
    path = f"/{ACCOUNT}/{client.container}"
    request = Request("GET", path, (CONTAINER,), (("x-ms-version", VERSION),))
    message = (
        "Server failed to authenticate the request. Please refer to the information in the "
        "www-authenticate header."
    )
    answer = client.blobs.client.ask(request)
    assert error_of(answer) == (401, "NoAuthenticationInformation", message)


# Operations without conditions

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
def test_operations_that_refuse_conditions(
    blobs: BlobFixture, method: str, target: str, query: Pairs, condition: tuple[str, str]
) -> None:
    headers: Pairs = (condition, ("x-ms-version", VERSION), ("x-ms-copy-action", "abort"))
    body = BODY if ("comp", "block") in query else b""
    answer = blobs.client.ask(SIGN(Request(method, f"/{ACCOUNT}{target}", query, headers, body)))
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
def test_operations_that_refuse_tag_conditions(
    blobs: BlobFixture, method: str, target: str, query: Pairs, signed: bool
) -> None:
    headers: Pairs = (("x-ms-if-tags", "k = 'v'"), ("x-ms-version", VERSION))
    body = BODY if ("comp", "block") in query else b""
    request = Request(method, f"/{ACCOUNT}{target}", query, headers, body)
    # Authorized callers get this error with or without the permission to read tags.
    token = account_token(ACCOUNT, KEY, permissions="rwdlac")
    answer = blobs.client.ask(SIGN(request) if signed else token.put_on(request))
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
def test_if_range(client: ContainerClient, named: str, status: int) -> None:
    created = client.put("a").headers
    value = named.format(etag=created["etag"], date=created["last-modified"])
    answer = client.ask("GET", "a", (), (("Range", "bytes=2-3"), ("If-Range", value)))
    expected = (206, b"23") if status == 206 else (200, BODY)
    assert (answer.status, answer.body) == expected
    assert ("content-range" in answer.headers) is (status == 206)
    # An unsatisfiable range is no error where the whole blob is sent.
    beyond = client.ask("GET", "a", (), (("Range", "bytes=20-"), ("If-Range", value)))
    assert beyond.status == (416 if status == 206 else 200)
    assert client.ask("GET", "a", (), (("If-Range", value),)).status == 200


# Listings

BLOB: Final = [
    "Creation-Time", "Last-Modified", "Etag", "Content-Length", "Content-Type", "Content-Encoding",
    "Content-Language", "Content-CRC64", "Content-MD5", "Cache-Control", "Content-Disposition",
]  # fmt: skip


def test_elements_of_blobs(client: ContainerClient) -> None:
    client.put("a", BODY, ("x-ms-tags", "k=v"), ("x-ms-meta-m", "1"))
    client.ask("PUT", "copy", (), (("x-ms-copy-source", client.url("a")),))
    client.create("append", "AppendBlob")
    client.ask("PUT", "append", (("comp", "seal"),))
    client.create("page", "PageBlob")
    client.ask("PUT", "blocks", (("comp", "block"), ("blockid", BLOCK)), (), BODY)
    everything = "copy,metadata,tags,uncommittedblobs"
    listing = client.list_blobs(("include", everything))
    assert tags(listing) == ["Blobs", "NextMarker"]
    rows = {row.findtext("Name"): row for row in listing.iter("Blob")}
    properties = {name: tags(row.find("Properties")) for name, row in rows.items()}
    tier, lease = ["AccessTier", "AccessTierInferred"], ["LeaseStatus", "LeaseState"]
    assert tags(rows["a"]) == ["Name", "Properties", "Tags", "Metadata", "OrMetadata"]
    assert properties["a"] == [*BLOB, "BlobType", *tier, *lease, "ServerEncrypted", "TagCount"]
    copied = ["CopyId", "CopySource", "CopyStatus", "CopyProgress", "CopyCompletionTime"]
    assert properties["copy"] == [*BLOB, "BlobType", *tier, *lease, *copied, "ServerEncrypted"]
    assert properties["append"] == [*BLOB, "BlobType", *lease, "ServerEncrypted", "Sealed"]
    number = "x-ms-blob-sequence-number"
    assert properties["page"] == [*BLOB, number, "BlobType", *tier, *lease, "ServerEncrypted"]
    # An uncommitted blob has neither a creation nor a modification time.
    uncommitted = ["Content-Length", "BlobType", *tier, *lease, "ServerEncrypted"]
    assert properties["blocks"] == uncommitted
    old = client.list_blobs(version="2021-06-08")
    assert {tuple(tags(row)) for row in old.iter("Blob")} == {("Name", "Properties")}


def test_elements_of_tiers(client: ContainerClient) -> None:
    client.put("a", BODY, ("x-ms-access-tier", "Archive"))
    cool = (("x-ms-access-tier", "Cool"),)
    assert client.ask("PUT", "a", (("comp", "tier"),), cool).status == 202
    (properties,) = client.list_blobs().iter("Properties")
    elements = tags(properties)[len(BLOB) :]
    assert elements == [
        "BlobType", "AccessTier", "ArchiveStatus", "RehydratePriority", "AccessTierChangeTime",
        "LeaseStatus", "LeaseState", "ServerEncrypted",
    ]  # fmt: skip


def test_elements_of_containers(blobs: BlobFixture) -> None:
    client = ContainerClient(blobs, unique("box"))
    assert client.ask("PUT", "", (CONTAINER,), (("x-ms-blob-public-access", "blob"),)).status == 201
    leased = (("x-ms-lease-action", "acquire"), ("x-ms-lease-duration", "15"))
    lease_id = client.ask("PUT", "", (CONTAINER, ("comp", "lease")), leased).headers[
        "x-ms-lease-id"
    ]
    query = (("comp", "list"), ("prefix", client.container), ("include", "metadata"))
    page = ElementTree.fromstring(client.send(Request("GET", f"/{ACCOUNT}/", query)).body)
    assert tags(page) == ["Prefix", "Containers", "NextMarker"]
    (row,) = page.iter("Container")
    assert tags(row) == ["Name", "Properties", "Metadata"]
    assert tags(row.find("Properties")) == [
        "Last-Modified", "Etag", "LeaseStatus", "LeaseState", "PublicAccess", "LeaseDuration",
        "DefaultEncryptionScope", "DenyEncryptionScopeOverride", "HasImmutabilityPolicy",
        "HasLegalHold", "ImmutableStorageWithVersioningEnabled",
    ]  # fmt: skip
    assert client.ask("DELETE", "", (CONTAINER,), (("x-ms-lease-id", lease_id),)).status == 202


def test_listings_repeat_the_parameters(client: ContainerClient) -> None:
    for name in ("a", "b", "c"):
        client.put(name)
    assert tags(client.list_blobs()) == ["Blobs", "NextMarker"]
    assert tags(client.list_blobs(("startFrom", "b"), ("endBefore", "c"))) == [
        "Blobs",
        "NextMarker",
    ]
    first = client.list_blobs(("maxresults", "1"), ("prefix", ""))
    assert tags(first) == ["Prefix", "MaxResults", "Blobs", "NextMarker"]
    marker = first.findtext("NextMarker") or ""
    query = (("delimiter", "%2F"), ("maxresults", "7"), ("marker", marker), ("prefix", "%01%26"))
    listing = client.list_blobs(*query)
    assert tags(listing)[:4] == ["Prefix", "Marker", "MaxResults", "Delimiter"]
    assert [listing.findtext(name) for name in tags(listing)[:4]] == ["%01%26", marker, "7", "/"]
    prefix = listing.find("Prefix")
    assert prefix is not None
    assert prefix.attrib == {"Encoded": "true"}
    plain = client.list_blobs(("prefix", "%26%3C")).find("Prefix")
    assert plain is not None
    assert (plain.text, plain.attrib) == ("&<", {})


def test_page_ranges_have_a_marker_if_the_request_has_a_limit(client: ContainerClient) -> None:
    client.create("a", "PageBlob")
    update = ("x-ms-page-write", "update")
    for start in (0, 1024):
        written = ("x-ms-range", f"bytes={start}-{start + 511}")
        assert client.ask("PUT", "a", (("comp", "page"),), (update, written), PAGE).status == 201
    response = client.ask("GET", "a", (("comp", "pagelist"),))
    assert header_names(response) == STAMP | {"content-type", "x-ms-blob-content-length"}
    assert tags(ElementTree.fromstring(response.body)) == ["PageRange", "PageRange"]
    for limit, marker in (("1", True), ("2", False)):
        response = client.ask("GET", "a", (("comp", "pagelist"), ("maxresults", limit)))
        following = ElementTree.fromstring(response.body).find("NextMarker")
        assert following is not None
        assert bool(following.text) is marker


def test_elements_of_searches(client: ContainerClient) -> None:
    for name in ("a", "b"):
        client.put(name, BODY, ("x-ms-tags", "k=v&other=o"))
    query: Pairs = (CONTAINER, ("comp", "blobs"), ("where", "k%3D%27v%27"))

    def page(*more: tuple[str, str], version: str = VERSION) -> ElementTree.Element:
        return ElementTree.fromstring(client.ask("GET", "", (*query, *more), version=version).body)

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
    ("where", "fault"),
    [
        ("k 'v'", "3: expected an operator"),
        ("'k' = 'v'", "1: expected the name of a tag"),
        ("k = 'v' AND @box = 'b'", "13: unsupported parameter '@box'"),
        ("k <> 'v'", "3: "),
    ],
)
def test_invalid_searches(client: ContainerClient, where: str, fault: str) -> None:
    written = where.replace(" ", "%20").replace("'", "%27").replace("<", "%3C")
    answer = client.ask("GET", "", (CONTAINER, ("comp", "blobs"), ("where", written)))
    assert (answer.status, answer.code) == (400, "InvalidQueryParameterValue")
    message = answer.error()["Message"]
    assert message.startswith(f"Error parsing query at or near character position {fault}")


# Details of errors


def test_details_of_tier_conditions(client: ContainerClient) -> None:
    client.put("a", BODY, ("x-ms-access-tier", "Cool"))
    since = http_date(3600)
    headers = (("x-ms-access-tier-if-modified-since", since),)
    details = client.ask("DELETE", "a", (), headers).error()
    assert details["Condition"] == "x-ms-access-tier-if-modified-since"
    assert details["Sent"] == since
    changed = client.ask("HEAD", "a").headers["x-ms-access-tier-change-time"]
    assert details["Current"] == changed
    headers = (("x-ms-access-tier-if-unmodified-since", http_date(-3600)),)
    details = client.ask("DELETE", "a", (), headers).error()
    assert details["Condition"] == "x-ms-access-tier-if-unmodified-since"


def test_details_of_tag_conditions_need_the_permission_to_read_tags(
    client: ContainerClient,
) -> None:
    client.put("a", BODY, ("x-ms-tags", "k=v&l=w"))
    path = f"/{ACCOUNT}/{client.container}/a"
    request = Request("GET", path, (), (("x-ms-if-tags", "k = 'x'"), ("x-ms-version", VERSION)))

    def error(letters: str) -> dict[str, str]:
        if not letters:
            return client.blobs.client.ask(SIGN(request)).error()
        token = service_token(ACCOUNT, KEY, client.container, permissions=letters)
        return client.blobs.client.ask(token.put_on(request)).error()

    for letters in ("", "rt"):
        details = error(letters)
        assert details["Code"] == "ConditionNotMet"
        assert details["Condition"] == "x-ms-if-tags"
        assert details["Sent"] == "k = 'x'"
        assert details["Current"] == "k=v&l=w"
    assert "Current" not in error("r")
    # A caller may read the tags without the permission to read the blob.
    request = replace(request, method="PUT", query=(("comp", "metadata"),))
    for letters in ("", "wt"):
        assert error(letters)["Current"] == "k=v&l=w"
    request = request.lacking("x-ms-if-tags").having(("If-Match", '"0x8D"'))
    assert "Current" in error("rwt")
    assert "Current" not in error("wt")


@pytest.mark.parametrize("access", ["blob", "container", ""])
def test_details_for_anonymous_callers(blobs: BlobFixture, access: str) -> None:
    client = ContainerClient(blobs, unique("box"))
    public: Pairs = (("x-ms-blob-public-access", access),) if access else ()
    assert client.ask("PUT", "", (CONTAINER,), public).status == 201
    etag = client.put("a").headers["etag"]
    path = f"/{ACCOUNT}/{client.container}/a"
    headers = (("If-Match", '"0x8D"'), ("x-ms-version", VERSION))
    details = blobs.client.ask(Request("GET", path, (), headers)).error()
    if access:
        assert (details["Code"], details["Current"]) == ("ConditionNotMet", etag)
    else:
        assert details["Code"] == "NoAuthenticationInformation"
        assert set(details) == {"Code", "Message"}
    assert client.ask("DELETE", "", (CONTAINER,)).status == 202


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
def test_batches_that_cannot_be_parsed(
    client: ContainerClient, content_type: str, code: str, scope: str
) -> None:
    client.put("a")
    answer = _batched(client, scope, content_type, deletes(f"{client.container}/a"))
    assert answer.status == 202
    assert answered(answer) == [(400, code)]
    assert b"Content-ID" not in answer.body
    assert client.ask("HEAD", "a").status == 200


def test_a_doubled_boundary_in_a_batch(client: ContainerClient) -> None:
    client.put("a")
    body = f"--{BOUNDARY}\r\n".encode() + deletes(f"{client.container}/a")
    answer = _batched(client, "account", CONTENT_TYPE, body)
    assert (answer.status, answered(answer)) == (202, [(400, "InvalidInput")])
    assert client.ask("HEAD", "a").status == 200


def test_a_part_for_another_container(client: ContainerClient) -> None:
    client.put("a")
    body = deletes(f"{client.container}/a", "elsewhere/a")
    answer = _batched(client, "container", CONTENT_TYPE, body)
    assert (answer.status, answered(answer)) == (202, [(400, "InvalidInput")])
    assert b"HTTP/1.1 400 One of the request inputs is not valid.\r\n" in answer.body
    assert client.ask("HEAD", "a").status == 200


def test_status_lines_of_the_parts_of_a_batch(client: ContainerClient) -> None:
    client.put("a")
    body = deletes(f"{client.container}/a", f"{client.container}/none")
    answer = _batched(client, "container", CONTENT_TYPE, body)
    assert answered(answer) == [(202, ""), (404, "BlobNotFound")]
    assert b"HTTP/1.1 202 Accepted\r\n" in answer.body
    assert b"HTTP/1.1 404 The specified blob does not exist.\r\n" in answer.body


def _batched(client: ContainerClient, scope: str, content_type: str, body: bytes) -> Answer:
    headers = (("Content-Type", content_type),)
    if scope == "container":
        return client.ask("POST", "", (CONTAINER, ("comp", "batch")), headers, body)
    return client.send(Request("POST", f"/{ACCOUNT}/", (("comp", "batch"),), headers, body))

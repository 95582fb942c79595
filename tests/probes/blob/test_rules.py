"""Rules of blobs as the service was recorded to apply them: leases, conditions, sources, copies."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import pytest

from tests.probes.blob.fixture import CONTENT, BlobFixture
from tests.probes.blob.operations import PAGE, BlobTarget
from tests.probes.client import VERSION, Answer, Pairs, Request, md5, shared_key
from tests.probes.tokens import account_token, service_token
from tests.server import ACCOUNT, KEY, unique

SIGN = shared_key(ACCOUNT, KEY)
LEASE = "11111111-2222-3333-4444-555555555555"
LEASED = ("x-ms-lease-id", LEASE)
ABSENT_ONLY = ("If-None-Match", "*")
BLOCK = ("x-ms-blob-type", "BlockBlob")
LONG_AGO = "Thu, 01 Jan 2015 00:00:00 GMT"
IN_FUTURE = "Thu, 01 Jan 2099 00:00:00 GMT"
TAGS_UNMET = ("x-ms-if-tags", "kind = 'other'")
TAGS_MET = ("x-ms-if-tags", "kind = 'book'")
NOT_VERIFIED = "Could not verify the copy source within the specified time."
UNMET = "The condition specified using HTTP conditional header(s) is not met."
A, B = base64.b64encode(b"a").decode(), base64.b64encode(b"b").decode()


class Blob:
    """A blob that requests are sent to, by the owner of its account unless a token is given."""

    def __init__(self, blobs: BlobFixture, target: BlobTarget, name: str) -> None:
        self.blobs, self.target, self.name = blobs, target, name
        self.path = f"/{ACCOUNT}/{target.container}/{name}"

    def ask(
        self,
        method: str,
        comp: str = "",
        *headers: tuple[str, str],
        body: bytes = b"",
        **query: str,
    ) -> Answer:
        return self.blobs.client.ask(SIGN(self.request(method, comp, *headers, body=body, **query)))

    def request(
        self,
        method: str,
        comp: str = "",
        *headers: tuple[str, str],
        body: bytes = b"",
        **query: str,
    ) -> Request:
        parameters: Pairs = (("comp", comp),) if comp else ()
        parameters += tuple((name, quote(value, safe="")) for name, value in query.items())
        named: Pairs = (
            ()
            if any(name == "x-ms-version" for name, _ in headers)
            else (("x-ms-version", VERSION),)
        )
        return Request(method, self.path, parameters, (*named, *headers), body)

    def ask_successfully(
        self,
        method: str,
        comp: str = "",
        *headers: tuple[str, str],
        body: bytes = b"",
        **query: str,
    ) -> Answer:
        answer = self.ask(method, comp, *headers, body=body, **query)
        assert answer.status < 300, answer
        return answer

    def put(self, kind: str = "BlockBlob", *headers: tuple[str, str]) -> Blob:
        sized = (("x-ms-blob-content-length", str(PAGE)),) if kind == "PageBlob" else ()
        body = CONTENT if kind == "BlockBlob" else b""
        tagged = ("x-ms-tags", "kind=book")
        self.ask_successfully(
            "PUT", "", ("x-ms-blob-type", kind), tagged, *sized, *headers, body=body
        )
        return self

    def stage_block(self, name: str = A, *headers: tuple[str, str]) -> Answer:
        return self.ask("PUT", "block", *headers, body=b"block", blockid=name)

    def lease(self, seconds: int = -1) -> Blob:
        self.ask_successfully(
            "PUT",
            "lease",
            ("x-ms-lease-action", "acquire"),
            ("x-ms-lease-duration", str(seconds)),
            ("x-ms-proposed-lease-id", LEASE),
        )
        return self

    def break_lease(self, seconds: int = 0) -> Blob:
        period = ("x-ms-lease-break-period", str(seconds))
        self.ask_successfully("PUT", "lease", ("x-ms-lease-action", "break"), period)
        return self

    @property
    def etag(self) -> str:
        return self.ask_successfully("HEAD").headers["etag"]

    @property
    def address(self) -> str:
        """The URL of the blob, with a token to read it and its tags."""
        token = service_token(ACCOUNT, KEY, self.target.container, self.name, permissions="rt")
        return f"http://127.0.0.1{self.path}?{token}"

    @property
    def source(self) -> tuple[str, str]:
        return "x-ms-copy-source", self.address


NewBlob = Callable[[], Blob]


@pytest.fixture(scope="module")
def target(blobs: BlobFixture) -> BlobTarget:
    return blobs.create(access="container")


@pytest.fixture
def new(blobs: BlobFixture, target: BlobTarget) -> NewBlob:
    """A name that has no blob yet, in a public container."""
    return lambda: Blob(blobs, target, unique("blob"))


@pytest.fixture
def pending(blobs: BlobFixture, new: NewBlob) -> Iterator[Blob]:
    """The destination of a pending copy."""
    blob = new()
    begun = blob.ask_successfully("PUT", "", ("x-ms-copy-source", blobs.endless))
    assert begun.headers["x-ms-copy-status"] == "pending"
    yield blob
    abort = ("x-ms-copy-action", "abort")
    blob.ask_successfully("PUT", "copy", abort, copyid=begun.headers["x-ms-copy-id"])


def outcome(answer: Answer) -> tuple[int, str]:
    return answer.status, answer.code


def message(answer: Answer) -> str:
    return answer.error()["Message"].partition("\n")[0]


# Leases


def test_a_copy_needs_an_infinite_lease(new: NewBlob) -> None:
    source, destination = new().put(), new().put().lease(60)
    answer = destination.ask("PUT", "", source.source, LEASED)
    assert outcome(answer) == (412, "InfiniteLeaseDurationRequired")
    assert outcome(destination.ask("PUT", "", source.source)) == (412, "LeaseIdMissing")
    destination.lease()
    destination.ask_successfully("PUT", "", source.source, LEASED)
    destination.break_lease(60)
    answer = destination.ask("PUT", "", source.source, LEASED)
    assert outcome(answer) == (412, "InfiniteLeaseDurationRequired")


def test_a_synchronous_copy_accepts_any_lease(new: NewBlob) -> None:
    source, destination = new().put(), new().put().lease(60)
    destination.ask_successfully("PUT", "", source.source, LEASED, ("x-ms-requires-sync", "true"))


def test_if_none_match_star_is_ignored_with_the_lease_id(new: NewBlob) -> None:
    """Clients that upload with a lease and without overwriting send both."""
    source = new().put()
    block_list = f"<BlockList><Latest>{A}</Latest></BlockList>".encode()
    for comp, headers, body in (
        ("", (BLOCK,), b"new"),
        ("", (BLOCK, source.source), b""),
        ("", (source.source,), b""),
        ("", (source.source, ("x-ms-requires-sync", "true")), b""),
        ("blocklist", (), block_list),
    ):
        blob = new().put()
        if comp:
            blob.stage_block()
        request = ("PUT", comp, *headers, ABSENT_ONLY)
        assert outcome(blob.ask(*request, body=body)) == (409, "BlobAlreadyExists")
        blob.lease()
        assert outcome(blob.ask(*request, body=body)) == (412, "LeaseIdMissing")
        blob.ask_successfully(*request, LEASED, body=body)
        blob.break_lease()
        assert outcome(blob.ask(*request, LEASED, body=body)) == (412, "LeaseLost")
    for kind in ("PageBlob", "AppendBlob"):
        blob = new().put(kind).lease()
        blob.put(kind, ABSENT_ONLY, LEASED)


def test_the_id_of_a_broken_lease_is_refused_as_lost(blobs: BlobFixture, new: NewBlob) -> None:
    blob = new().put().lease().break_lease()
    for method, comp, headers, body in (
        ("PUT", "", (BLOCK,), b"new"),
        ("PUT", "metadata", (), b""),
        ("GET", "", (), b""),
        ("DELETE", "", (), b""),
    ):
        answer = blob.ask(method, comp, *headers, LEASED, body=body)
        assert outcome(answer) == (412, "LeaseLost")
        assert message(answer) == (
            "A lease ID was specified, but the lease for the blob has expired."
        )
    path = f"/{ACCOUNT}/{blobs.create(leased=True).container}"
    container: Pairs = (("restype", "container"),)
    leased = (("x-ms-lease-id", _container_lease(blobs, path)),)
    answer = blobs.client.ask(SIGN(Request("DELETE", path, container, leased)))
    assert outcome(answer) == (412, "LeaseLost")
    assert message(answer) == (
        "A lease ID was specified, but the lease for the container has expired."
    )


def _container_lease(blobs: BlobFixture, path: str) -> str:
    """Returns the id of a broken lease of the container."""
    query: Pairs = (("restype", "container"), ("comp", "lease"))
    broken = (("x-ms-lease-action", "break"), ("x-ms-lease-break-period", "0"))
    blobs.send_as_owner(Request("PUT", path, query, broken))
    acquire = (("x-ms-lease-action", "acquire"), ("x-ms-lease-duration", "-1"))
    lease_id = blobs.send_as_owner(Request("PUT", path, query, acquire)).headers["x-ms-lease-id"]
    blobs.send_as_owner(Request("PUT", path, query, broken))
    return lease_id


def test_messages_of_refused_lease_actions_name_the_resource(
    blobs: BlobFixture, new: NewBlob
) -> None:
    broken = (("x-ms-lease-action", "break"),)
    answer = new().put().ask("PUT", "lease", *broken)
    assert outcome(answer) == (409, "LeaseNotPresentWithLeaseOperation")
    assert message(answer) == "There is currently no lease on the blob."
    path = f"/{ACCOUNT}/{blobs.create().container}"
    query: Pairs = (("restype", "container"), ("comp", "lease"))
    answer = blobs.client.ask(SIGN(Request("PUT", path, query, broken)))
    assert outcome(answer) == (409, "LeaseNotPresentWithLeaseOperation")
    assert message(answer) == "There is currently no lease on the container."


def test_setting_tags_needs_the_lease_id(new: NewBlob) -> None:
    blob = new().put().lease()
    tags = b"<Tags><TagSet><Tag><Key>kind</Key><Value>map</Value></Tag></TagSet></Tags>"
    assert outcome(blob.ask("PUT", "tags", body=tags)) == (412, "LeaseIdMissing")
    blob.ask_successfully("PUT", "tags", LEASED, body=tags)
    blob.ask_successfully("GET", "tags")


def test_deleting_snapshots_needs_the_lease_id(new: NewBlob) -> None:
    blob = new().put()
    only = ("x-ms-delete-snapshots", "only")
    blob.ask_successfully("PUT", "snapshot")
    blob.lease()
    assert outcome(blob.ask("DELETE", "", only)) == (412, "LeaseIdMissing")
    blob.break_lease(60)
    assert outcome(blob.ask("DELETE", "", only)) == (412, "LeaseIdMissing")
    blob.ask_successfully("DELETE", "", only, LEASED)
    blob.ask_successfully("PUT", "snapshot")
    blob.break_lease()
    assert outcome(blob.ask("DELETE", "", only, LEASED)) == (412, "LeaseLost")
    blob.ask_successfully("DELETE", "", only)


# Blocks


def test_deleting_an_uncommitted_blob(new: NewBlob) -> None:
    blob = new()
    assert blob.stage_block().status == 201
    assert outcome(blob.ask("DELETE", "", LEASED)) == (412, "LeaseNotPresentWithBlobOperation")
    assert outcome(blob.ask("DELETE", "", ("If-Match", "*"))) == (412, "ConditionNotMet")
    assert outcome(blob.ask("DELETE", "", ("x-ms-version", "2012-02-12")))[0] == 404
    only = ("x-ms-delete-snapshots", "only")
    assert outcome(blob.ask("DELETE", "", only)) == (404, "BlobNotFound")
    blob.ask_successfully("GET", "blocklist", blocklisttype="all")
    assert blob.ask("DELETE").status == 202
    assert outcome(blob.ask("GET", "blocklist", blocklisttype="all")) == (404, "BlobNotFound")
    assert outcome(blob.ask("DELETE")) == (404, "BlobNotFound")
    # Blocks staged for a committed blob are no blob of their own.
    blob.put()
    blob.stage_block()
    assert blob.ask("DELETE").status == 202
    assert outcome(blob.ask("DELETE")) == (404, "BlobNotFound")


@pytest.mark.parametrize("kind", ["PageBlob", "AppendBlob"])
def test_only_block_blobs_have_block_lists(new: NewBlob, kind: str) -> None:
    for listed in ("all", "committed", "uncommitted"):
        answer = new().put(kind).ask("GET", "blocklist", blocklisttype=listed)
        assert outcome(answer) == (409, "InvalidBlobType")


def test_uncommitted_blocks_are_not_public(blobs: BlobFixture, new: NewBlob) -> None:
    blob, unfinished = new().put(), new()
    blob.stage_block(A)
    blob.ask_successfully(
        "PUT", "blocklist", body=f"<BlockList><Latest>{A}</Latest></BlockList>".encode()
    )
    blob.stage_block(B)
    unfinished.stage_block(B)

    def anonymous(blob: Blob, listed: str) -> Answer:
        return blobs.client.ask(blob.request("GET", "blocklist", blocklisttype=listed))

    for listed in ("all", "committed", "uncommitted"):
        answer = anonymous(blob, listed)
        assert answer.status == 200
        assert f"<Name>{B}</Name>".encode() not in answer.body
        assert (f"<Name>{A}</Name>".encode() in answer.body) == (listed != "uncommitted")
        assert outcome(anonymous(unfinished, listed)) == (404, "BlobNotFound")
    reader = service_token(ACCOUNT, KEY, blob.target.container, blob.name, permissions="r")
    as_reader = blobs.client.ask(
        reader.put_on(blob.request("GET", "blocklist", blocklisttype="all"))
    )
    assert f"<Name>{B}</Name>".encode() in as_reader.body


@pytest.mark.parametrize("spaces", ["", "\n  "])
def test_a_block_id_appears_under_one_element_name(new: NewBlob, spaces: str) -> None:
    blob = new()

    def commit(*listed: tuple[str, str]) -> Answer:
        blob.stage_block(A)
        blob.stage_block(B)
        elements = spaces.join(f"<{kind}>{name}</{kind}>" for kind, name in listed)
        body = f"<BlockList>{spaces}{elements}</BlockList>".encode()
        return blob.ask("PUT", "blocklist", body=body)

    assert commit(("Latest", A), ("Uncommitted", B), ("Latest", A)).status == 201
    for first, second in (
        ("Latest", "Uncommitted"),
        ("Committed", "Latest"),
        ("Uncommitted", "Committed"),
    ):
        answer = commit((first, A), ("Latest", B), (second, A))
        assert outcome(answer) == (400, "InvalidBlockList")
    assert commit(("Uncommitted", B), ("Committed", A)).status == 201


# Pending copies


def test_nothing_is_staged_or_copied_while_a_copy_is_pending(new: NewBlob, pending: Blob) -> None:
    assert outcome(pending.stage_block()) == (409, "PendingCopyOperation")
    answer = new().ask("PUT", "", pending.source)
    assert outcome(answer) == (409, "PendingCopyOperation")
    answer = new().ask("PUT", "", pending.source, ("x-ms-requires-sync", "true"))
    assert outcome(answer) == (409, "PendingCopyOperation")
    answer = new().ask("PUT", "", pending.source, BLOCK)
    assert outcome(answer) == (409, "CannotVerifyCopySource")
    assert outcome(new().ask("PUT", "block", pending.source, blockid=A))[0] == 409


def test_tags_can_be_read_while_a_copy_is_pending(pending: Blob) -> None:
    pending.ask_successfully("GET", "tags")
    assert outcome(pending.ask("GET", "tags", TAGS_UNMET)) == (412, "ConditionNotMet")


def test_tags_of_incremental_copies_can_be_read(new: NewBlob) -> None:
    source, copy = new().put("PageBlob"), new()
    snapshot = source.ask_successfully("PUT", "snapshot").headers["x-ms-snapshot"]
    address = f"{source.address}&snapshot={quote(snapshot)}"
    copy.ask_successfully("PUT", "incrementalcopy", ("x-ms-copy-source", address))
    copy.ask_successfully("GET", "tags")


def test_set_properties_clears_the_copy_properties(new: NewBlob) -> None:
    for change in (
        ("x-ms-blob-content-length", str(2 * PAGE)),
        ("x-ms-sequence-number-action", "increment"),
        ("x-ms-blob-content-language", "de"),
    ):
        copy = new()
        copy.ask_successfully("PUT", "", new().put("PageBlob").source)
        assert "x-ms-copy-id" in copy.ask_successfully("HEAD").headers
        copy.ask_successfully("PUT", "properties", change)
        assert "x-ms-copy-id" not in copy.ask_successfully("HEAD").headers


# Refused requests


def test_the_create_permission_does_not_allow_overwrites(blobs: BlobFixture, new: NewBlob) -> None:
    blob, source = new(), new().put()
    token = service_token(ACCOUNT, KEY, blob.target.container, blob.name, permissions="c")
    create = token.put_on(blob.request("PUT", "", BLOCK, body=b"new"))
    assert blobs.client.ask(create).status == 201
    for request in (
        blob.request("PUT", "", BLOCK, body=b"new"),
        blob.request("PUT", "", BLOCK, source.source),
        blob.request("PUT", "", source.source),
    ):
        answer = blobs.client.ask(token.put_on(request))
        assert outcome(answer) == (403, "UnauthorizedBlobOverwrite")
        assert message(answer) == "This request is not authorized to perform blob overwrites."


@pytest.mark.parametrize(("version", "allowed"), [("2026-04-06", False), ("2026-06-06", True)])
def test_the_create_permission_allows_blocks_of_new_blobs(
    blobs: BlobFixture, new: NewBlob, version: str, allowed: bool
) -> None:
    blob, source = new(), new().put()
    token = service_token(ACCOUNT, KEY, blob.target.container, blob.name, permissions="c")
    requests = [
        blob.request("PUT", "block", body=b"new", blockid=A),
        blob.request("PUT", "block", source.source, blockid=A),
        blob.request("PUT", "blocklist", body=b"<BlockList></BlockList>"),
    ]
    requests = [token.put_on(each.setting("x-ms-version", version)) for each in requests]
    mismatch = (403, "AuthorizationPermissionMismatch")
    for request in requests:
        answer = blobs.client.ask(request)
        assert outcome(answer) == ((201, "") if allowed else mismatch)
    blob.put()
    overwrite = (403, "UnauthorizedBlobOverwrite")
    for request in requests:
        assert outcome(blobs.client.ask(request)) == (overwrite if allowed else mismatch)


LENGTH = ("x-ms-blob-content-length", "512")


@pytest.mark.parametrize("kind", ["BlockBlob", "AppendBlob"])
def test_only_page_blobs_accept_a_content_length(new: NewBlob, kind: str) -> None:
    blob = new()
    body = b"x" if kind == "BlockBlob" else b""
    refused = blob.ask("PUT", "", ("x-ms-blob-type", kind), LENGTH, body=body)
    assert outcome(refused) == (400, "UnsupportedHeader")
    assert blob.ask("HEAD").status == 404
    blob.put(kind)
    assert outcome(blob.ask("PUT", "properties", LENGTH)) == (400, "UnsupportedHeader")
    if kind == "BlockBlob":
        refused = blob.ask("PUT", "", BLOCK, LENGTH, new().put().source)
        assert outcome(refused) == (400, "UnsupportedHeader")


def test_checksums_of_ranges_need_a_range(new: NewBlob) -> None:
    blob = new().put()
    for kind in ("md5", "crc64"):
        checksum = (f"x-ms-range-get-content-{kind}", "true")
        assert blob.ask("GET", "", checksum).status == 400
        assert blob.ask_successfully("GET", "", checksum, ("Range", "bytes=0-3")).status == 206
        assert blob.ask_successfully("GET", "", (checksum[0], "false")).status == 200


def test_sequence_numbers_need_an_action(new: NewBlob) -> None:
    blob = new().put("PageBlob")
    number = ("x-ms-blob-sequence-number", "7")
    assert outcome(blob.ask("PUT", "properties", number)) == (400, "MissingRequiredHeader")
    assert blob.ask_successfully("HEAD").headers["x-ms-blob-sequence-number"] == "0"
    blob.ask_successfully("PUT", "properties", number, ("x-ms-sequence-number-action", "update"))


def test_an_empty_proposed_lease_id_is_none(new: NewBlob) -> None:
    """Microsoft's first Go client sends it if the caller leaves the choice to the service."""
    blob = new().put()
    acquire: Pairs = (("x-ms-lease-action", "acquire"), ("x-ms-lease-duration", "15"))
    answer = blob.ask_successfully("PUT", "lease", *acquire, ("x-ms-proposed-lease-id", ""))
    held = ("x-ms-lease-id", answer.headers["x-ms-lease-id"])
    change = ("x-ms-lease-action", "change")
    refused = blob.ask("PUT", "lease", change, held, ("x-ms-proposed-lease-id", ""))
    assert outcome(refused) == (400, "MissingRequiredHeader")
    blob.ask_successfully("PUT", "lease", ("x-ms-lease-action", "release"), held)


def test_clearing_pages_refuses_a_checksum(new: NewBlob) -> None:
    blob = new().put("PageBlob")
    clear: Pairs = (("x-ms-page-write", "clear"), ("x-ms-range", "bytes=0-511"))
    assert blob.ask("PUT", "page", *clear, ("Content-MD5", md5(b""))).status == 400
    blob.ask_successfully("PUT", "page", *clear)


@pytest.mark.parametrize("kind", ["PageBlob", "AppendBlob"])
def test_an_md5_of_any_length_is_stored_with_an_empty_blob(new: NewBlob, kind: str) -> None:
    short = base64.b64encode(b"not sixteen").decode()
    blob = new().put(kind, ("x-ms-blob-content-md5", short))
    assert blob.ask_successfully("HEAD").headers["content-md5"] == short
    refused = new().ask("PUT", "", BLOCK, ("x-ms-blob-content-md5", short), body=b"x")
    assert outcome(refused) == (400, "InvalidMd5")


@pytest.mark.parametrize("kind", ["BlockBlob", "PageBlob", "AppendBlob"])
def test_an_empty_md5_sets_none(new: NewBlob, kind: str) -> None:
    """AzCopy sends it after an upload without checksums."""
    empty = ("x-ms-blob-content-md5", "")
    blob = new().put(kind, empty)
    blob.ask_successfully("PUT", "properties", ("x-ms-blob-content-md5", md5(b"x")))
    blob.ask_successfully("PUT", "properties", empty)
    assert "content-md5" not in blob.ask_successfully("HEAD").headers


def test_names_of_invalid_length(blobs: BlobFixture) -> None:
    for path, query in (
        (f"/{ACCOUNT}/ab", (("restype", "container"),)),
        (f"/{ACCOUNT}/{'a' * 64}", (("restype", "container"),)),
        (f"/{ACCOUNT}/container/{'a' * 1025}", ()),
    ):
        answer = blobs.client.ask(SIGN(Request("PUT", path, query, (BLOCK,))))
        assert outcome(answer) == (400, "OutOfRangeInput")
        assert message(answer) == (
            "The specified resource name length is not within the permissible limits."
        )


def test_tag_names_and_values_in_searches(blobs: BlobFixture) -> None:
    for value, status in (("a b+c-d./:=_", 200), ("a!b", 400), ("%C3%BC", 400), ("a''b", 400)):
        where = f"kind%20%3D%20%27{quote(value, safe='%')}%27"
        request = Request("GET", f"/{ACCOUNT}/", (("comp", "blobs"), ("where", where)))
        assert blobs.client.ask(SIGN(request)).status == status, value
    for name, status in (("a b", 200), ("a!b", 400), ("\x01", 400)):
        where = quote(f"\"{name}\" = 'book'", safe="")
        request = Request("GET", f"/{ACCOUNT}/", (("comp", "blobs"), ("where", where)))
        assert blobs.client.ask(SIGN(request)).status == status, name
    where = quote("@container = '$root' AND kind = 'book'", safe="")
    blobs.send_as_owner(Request("GET", f"/{ACCOUNT}/", (("comp", "blobs"), ("where", where))))


# Conditions


@pytest.mark.parametrize("etag", ["", '"', 'a"b', '"a" "b"', '"a",', ",", '"a', "\xff"])
def test_a_malformed_etag_matches_nothing(new: NewBlob, etag: str) -> None:
    blob = new().put()
    for method, comp, headers, body in (
        ("GET", "", (), b""),
        ("HEAD", "", (), b""),
        ("PUT", "", (BLOCK,), b"new"),
        ("PUT", "metadata", (), b""),
        ("DELETE", "", (), b""),
    ):
        answer = blob.ask(method, comp, *headers, ("If-Match", etag), body=body)
        assert outcome(answer) == (412, "ConditionNotMet")
    blob.ask_successfully("GET", "", ("If-None-Match", etag))


@pytest.mark.parametrize("etag", ["*,x", '*, "x"', "x,*", " * ", '"x" , *'])
def test_a_list_of_etags_with_a_star_matches_everything(new: NewBlob, etag: str) -> None:
    blob = new().put()
    blob.ask_successfully("GET", "", ("If-Match", etag))
    blob.ask_successfully("PUT", "metadata", ("If-Match", etag))
    refused = blob.ask("PUT", "", BLOCK, ("If-None-Match", etag), body=b"new")
    assert outcome(refused) == (409, "BlobAlreadyExists")
    refused = new().ask("PUT", "", BLOCK, ("If-Match", etag), body=b"new")
    assert outcome(refused) == (412, "ConditionNotMet")


def test_an_etag_of_an_impossible_time(new: NewBlob) -> None:
    """Append Block refuses it, as the service was recorded to do; other operations compare it."""
    blob, never = new().put("AppendBlob"), ("If-Match", "0x111111111111111")
    assert outcome(blob.ask("PUT", "appendblock", never, body=b"x")) == (400, "OutOfRangeInput")
    unmet = blob.ask("PUT", "appendblock", ("If-Match", '"garbage"'), body=b"x")
    assert outcome(unmet) == (412, "ConditionNotMet")
    for method, comp in (("PUT", "metadata"), ("PUT", "seal"), ("GET", ""), ("DELETE", "")):
        assert outcome(blob.ask(method, comp, never)) == (412, "ConditionNotMet")


WITH_TAGS: tuple[tuple[str, str, str, Pairs, bytes], ...] = (
    ("BlockBlob", "GET", "", (), b""),
    ("BlockBlob", "HEAD", "", (), b""),
    ("BlockBlob", "GET", "metadata", (), b""),
    ("BlockBlob", "GET", "tags", (), b""),
    ("BlockBlob", "GET", "blocklist", (), b""),
    ("PageBlob", "GET", "pagelist", (), b""),
    ("BlockBlob", "PUT", "snapshot", (), b""),
    ("BlockBlob", "PUT", "metadata", (), b""),
    ("BlockBlob", "PUT", "properties", (), b""),
    ("PageBlob", "PUT", "properties", (LENGTH,), b""),
    ("BlockBlob", "PUT", "tier", (("x-ms-access-tier", "Cool"),), b""),
    (
        "BlockBlob",
        "PUT",
        "tags",
        (),
        b"<Tags><TagSet><Tag><Key>kind</Key><Value>book</Value></Tag></TagSet></Tags>",
    ),
    ("AppendBlob", "PUT", "appendblock", (), b"x"),
    ("AppendBlob", "PUT", "seal", (), b""),
    (
        "PageBlob",
        "PUT",
        "page",
        (("x-ms-page-write", "update"), ("x-ms-range", "bytes=0-511")),
        bytes(512),
    ),
    (
        "PageBlob",
        "PUT",
        "page",
        (("x-ms-page-write", "clear"), ("x-ms-range", "bytes=0-511")),
        b"",
    ),
    (
        "BlockBlob",
        "PUT",
        "lease",
        (("x-ms-lease-action", "acquire"), ("x-ms-lease-duration", "15")),
        b"",
    ),
    ("BlockBlob", "PUT", "blocklist", (), b"<BlockList></BlockList>"),
    ("BlockBlob", "PUT", "", (BLOCK, ("x-ms-tags", "kind=book")), b"new"),
    ("BlockBlob", "DELETE", "", (), b""),
)


@pytest.mark.parametrize(
    ("kind", "method", "comp", "headers", "body"),
    WITH_TAGS,
    ids=[f"{row[1]} {row[2] or row[0]}" for row in WITH_TAGS],
)
def test_a_tag_condition_needs_the_permission_to_read_tags(
    blobs: BlobFixture, new: NewBlob, kind: str, method: str, comp: str, headers: Pairs, body: bytes
) -> None:
    blob = new().put(kind)
    assert outcome(blob.ask(method, comp, *headers, TAGS_UNMET, body=body)) == (
        412,
        "ConditionNotMet",
    )
    for letters in ("racwdxylmeiop", "rwd"):
        token = service_token(ACCOUNT, KEY, blob.target.container, blob.name, permissions=letters)
        request = blob.request(method, comp, *headers, TAGS_MET, body=body)
        answer = blobs.client.ask(token.put_on(request))
        assert outcome(answer) == (403, "AuthorizationPermissionMismatch")
    wide = account_token(ACCOUNT, KEY, permissions="rwdxylacupfi")
    request = blob.request(method, comp, *headers, TAGS_MET, body=body)
    assert outcome(blobs.client.ask(wide.put_on(request)))[0] == 403
    if method in ("GET", "HEAD") and comp != "tags":
        assert blobs.client.ask(blob.request(method, comp, *headers)).status == 200
        assert blobs.client.ask(request).status == 401
    token = service_token(ACCOUNT, KEY, blob.target.container, blob.name, permissions="racwdt")
    answer = blobs.client.ask(token.put_on(request))
    assert answer.status < 300, answer


def test_a_tag_condition_on_a_source_needs_the_permission_to_read_tags(new: NewBlob) -> None:
    source = new().put()
    met = ("x-ms-source-if-tags", "kind = 'book'")
    for headers in ((BLOCK,), (("x-ms-requires-sync", "true"),)):
        token = service_token(ACCOUNT, KEY, source.target.container, source.name, permissions="r")
        address = ("x-ms-copy-source", f"http://127.0.0.1{source.path}?{token}")
        assert outcome(new().ask("PUT", "", *headers, address, met))[0] == 403
        public = ("x-ms-copy-source", f"http://127.0.0.1{source.path}")
        new().ask_successfully("PUT", "", *headers, public)
        assert outcome(new().ask("PUT", "", *headers, public, met))[0] == 401
        new().ask_successfully("PUT", "", *headers, source.source, met)


def test_a_checksum_is_compared_before_conditions(new: NewBlob) -> None:
    blob = new().put()
    wrong = md5(b"something else")
    for body in (b"small", bytes(300 << 10)):
        for name in ("Content-MD5", "x-ms-blob-content-md5"):
            answer = blob.ask("PUT", "", BLOCK, ABSENT_ONLY, (name, wrong), body=body)
            assert outcome(answer) == (400, "Md5Mismatch")
        answer = blob.ask("PUT", "", BLOCK, ABSENT_ONLY, ("Content-MD5", md5(body)), body=body)
        assert outcome(answer) == (409, "BlobAlreadyExists")


@pytest.mark.parametrize("size", [PAGE, 1 << 20])
def test_checksums_of_appended_blocks_and_pages_are_compared_before_conditions(
    new: NewBlob, size: int
) -> None:
    other_etag = ("If-Match", '"0x8D0000000000000"')
    appended = new().put("AppendBlob")
    pages = new()
    length = ("x-ms-blob-content-length", str(1 << 20))
    pages.ask_successfully("PUT", "", ("x-ms-blob-type", "PageBlob"), length)
    update: Pairs = (("x-ms-page-write", "update"), ("x-ms-range", f"bytes=0-{size - 1}"))
    for blob, comp, headers, unmet, code in (
        (appended, "appendblock", (), other_etag, "ConditionNotMet"),
        (
            appended,
            "appendblock",
            (),
            ("x-ms-blob-condition-appendpos", "1"),
            "AppendPositionConditionNotMet",
        ),
        (
            appended,
            "appendblock",
            (),
            ("x-ms-blob-condition-maxsize", "1"),
            "MaxBlobSizeConditionNotMet",
        ),
        (pages, "page", update, other_etag, "ConditionNotMet"),
        (
            pages,
            "page",
            update,
            ("x-ms-if-sequence-number-lt", "0"),
            "SequenceNumberConditionNotMet",
        ),
    ):
        for sent_md5, expected in ((md5(b"other"), (400, "Md5Mismatch")), ("", (412, code))):
            checksum = ("Content-MD5", sent_md5 or md5(bytes(size)))
            answer = blob.ask("PUT", comp, *headers, unmet, checksum, body=bytes(size))
            assert outcome(answer) == expected
        answer = blob.ask("PUT", comp, *headers, unmet, body=bytes(size))
        assert outcome(answer) == (412, code)


# Sources

SOURCE_UNMET = [
    ("x-ms-source-if-none-match", "", 304),
    ("x-ms-source-if-modified-since", IN_FUTURE, 304),
    ("x-ms-source-if-match", '"0x8D0000000000000"', 412),
    ("x-ms-source-if-match", "garbage", 412),
    ("x-ms-source-if-unmodified-since", LONG_AGO, 412),
]
FROM_URL: dict[str, tuple[str, str, Pairs]] = {
    "put blob": ("BlockBlob", "", (BLOCK,)),
    "put block": ("BlockBlob", "block", ()),
    "append block": ("AppendBlob", "appendblock", ()),
    "put page": (
        "PageBlob",
        "page",
        (
            ("x-ms-page-write", "update"),
            ("x-ms-range", "bytes=0-511"),
            ("x-ms-source-range", "bytes=0-511"),
        ),
    ),
}


@pytest.mark.parametrize("operation", FROM_URL)
def test_conditions_on_a_source_are_evaluated_first(new: NewBlob, operation: str) -> None:
    kind, comp, headers = FROM_URL[operation]
    source, blob = new().put("PageBlob"), new().put(kind)
    query: dict[str, Any] = {"blockid": A} if comp == "block" else {}
    of_destination: Pairs = () if comp == "block" else (("If-Match", '"0x8D0000000000000"'),)
    general = operation in ("append block", "put page")
    for name, value, status in SOURCE_UNMET:
        for conditions in ((), of_destination):
            condition = name, value or source.etag
            answer = blob.ask("PUT", comp, *headers, source.source, condition, *conditions, **query)
            assert outcome(answer) == (status, "CannotVerifyCopySource"), name
            if status == 304:
                assert answer.body == b""
                assert "content-type" not in answer.headers
            else:
                assert message(answer) == (NOT_VERIFIED if general else UNMET)
            assert "x-ms-copy-source-status-code" not in answer.headers
    newest = ("x-ms-version", "2025-01-05")
    unmet = ("x-ms-source-if-match", "garbage")
    answer = blob.ask("PUT", comp, *headers, newest, source.source, unmet, **query)
    assert answer.headers["x-ms-copy-source-status-code"] == "412"
    assert answer.headers["x-ms-copy-source-error-code"] == "ConditionNotMet"
    if of_destination:
        answer = blob.ask("PUT", comp, *headers, source.source, *of_destination)
        assert outcome(answer) == (412, "ConditionNotMet")
    blob.ask_successfully(
        "PUT", comp, *headers, source.source, ("x-ms-source-if-match", source.etag), **query
    )


@pytest.mark.parametrize("operation", ["put block", "append block", "put page"])
def test_conditions_on_a_source_are_evaluated_before_its_range(
    new: NewBlob, pending: Blob, operation: str
) -> None:
    """A source that was replaced by a shorter one is recognized by its ETag."""
    kind, comp, headers = FROM_URL[operation]
    headers = tuple(header for header in headers if header[0] != "x-ms-source-range")
    headers += (("x-ms-source-range", "bytes=1024-1535"),)
    query: dict[str, Any] = {"blockid": A} if comp == "block" else {}
    source, blob = new().put("PageBlob"), new().put(kind)
    for condition, status in (
        (("x-ms-source-if-match", '"0x8D0000000000000"'), 412),
        (("x-ms-source-if-none-match", source.etag), 304),
        (("x-ms-source-if-match", source.etag), 416),
    ):
        answer = blob.ask("PUT", comp, *headers, source.source, condition, **query)
        assert outcome(answer) == (status, "CannotVerifyCopySource")
    answer = blob.ask("PUT", comp, *headers, pending.source, **query)
    assert outcome(answer) == (409, "CannotVerifyCopySource")


@pytest.mark.parametrize("operation", ["put blob", "append block", "put page"])
def test_a_source_is_read_before_conditions_are_evaluated(new: NewBlob, operation: str) -> None:
    kind, comp, headers = FROM_URL[operation]
    source, blob = new().put("PageBlob"), new().put(kind)
    unmet = ABSENT_ONLY if kind == "BlockBlob" else ("If-Match", '"0x8D0000000000000"')
    expected = (409, "BlobAlreadyExists") if kind == "BlockBlob" else (412, "ConditionNotMet")
    wrong, right = md5(b"something else"), md5(bytes(PAGE))
    md5_header = "x-ms-source-content-md5"
    answer = blob.ask("PUT", comp, *headers, source.source, unmet, (md5_header, wrong))
    assert outcome(answer) == (400, "Md5Mismatch")
    answer = blob.ask("PUT", comp, *headers, source.source, unmet, (md5_header, right))
    assert outcome(answer) == expected
    missing_source = ("x-ms-copy-source", f"http://127.0.0.1{new().path}")
    answer = blob.ask("PUT", comp, *headers, missing_source, unmet)
    assert outcome(answer) == (404, "CannotVerifyCopySource")
    blob.lease()
    for conditions in ((), (unmet,)):
        answer = blob.ask("PUT", comp, *headers, source.source, *conditions, (md5_header, right))
        assert outcome(answer) == (412, "LeaseIdMissing")


def test_a_copy_evaluates_source_conditions_first(new: NewBlob) -> None:
    source, blob = new().put(), new().put()
    for name, value, _ in SOURCE_UNMET:
        condition = name, value or source.etag
        answer = blob.ask("PUT", "", source.source, condition, ABSENT_ONLY)
        assert outcome(answer) == (412, "SourceConditionNotMet")
    unmet = ("x-ms-source-if-tags", "kind = 'other'")
    answer = blob.ask("PUT", "", source.source, unmet, ABSENT_ONLY)
    assert outcome(answer) == (412, "ConditionNotMet")

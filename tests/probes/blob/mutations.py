"""Mutations of requests to the blob service: pages, sources, tags, tiers and batches."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Final
from urllib.parse import quote

from tests.probes.blob.body_mutations import MESSAGE_KIND, NUMBERS, multipart, structured
from tests.probes.blob.fixture import BlobFixture
from tests.probes.blob.operations import LEASE, OPERATIONS, PAGE, BlobOperation, BlobTarget
from tests.probes.client import Request, shared_key, shared_key_lite
from tests.probes.mutation_run import MutationRun, resource_in
from tests.probes.mutations import (
    DIGESTS,
    ETAGS,
    HEADER_VALUES,
    MUTATIONS,
    RANGES,
    VALUES,
    Mutation,
)
from tests.probes.service import Operation
from tests.probes.tokens import account_token, service_token
from tests.server import ACCOUNT, KEY, unique

PAGE_RANGES: Final = (
    "bytes=0-511", "bytes=0-1023", "bytes=512-1023", "bytes=1-512", "bytes=0-510", "bytes=511-0",
    "bytes=0-", "bytes=512-", "bytes=0-4194303", "bytes=0-4194815", "bytes=8796093021696-",
    "bytes=9223372036854775296-9223372036854775807", "bytes=0-9223372036854775807",
    "bytes=18446744073709551104-18446744073709551615", "bytes=1024-1535",
)  # fmt: skip
TAG_HEADERS: Final = (
    "a=b", "a=b&c=d", "a", "=", "=b", "a=", "&", "a=b&", "&&", "a=b&a=c", "a=b&A=c", "a%3Db=c",
    "a=%00", "a=%FF", "a=%ED%A0%80", "a=%", "a=%2", "a=+", "a=%2B", "a%26b=c%3D", "é=é", "a=🦄",
    "&".join(f"a{n}=b" for n in range(10)), "&".join(f"a{n}=b" for n in range(11)),
    "&".join(f"a{n}=b" for n in range(3_000)), f"{'a' * 128}=b", f"{'a' * 129}=b",
    f"a={'b' * 256}", f"a={'b' * 257}", "a='b'", 'a="b"', "a=<b>", "a=b;c=d", "a==b", "a=b=c",
)  # fmt: skip
EXPRESSIONS: Final = (
    "a='b'", "\"a\"='b'", "a<>'b'", "a>'b' AND a<='c'", "a = 'b' OR c = 'd'", "a", "=", "'", "''",
    "a='b", "a=b", "a='b''c'", "a='b\\'", "\"a='b'", "@container='c' AND a='b'", "@container='c'",
    "@container>'c' AND a='b'", "@nothing='c'", "@='c'", "a='b' AND", "AND", "a='b' AND AND c='d'",
    "(a='b')", "((((a='b'", "(" * 5_000, "(" * 3_000 + "a='b'" + ")" * 3_000, "NOT a='b'",
    "a='b'" + " AND a='b'" * 9, "a='b'" + " AND a='b'" * 500, "a='b'" + " OR a='b'" * 500,
    "a='b';--", "a LIKE 'b'", "a='b\x00'", "a='é'", "a='🦄'", "a='" + "b" * 9_000 + "'",
    "a" * 9_000 + "='b'", " ", "a >='b'and a< 'c'", "a!='b'", "a=='b'", "1=1", "''=''",
    "a<'b' AND a>'c'", "a='\udcff'", "a\t=\t'b'",
)  # fmt: skip
TIERS: Final = ("Hot", "Cool", "Cold", "Archive", "P10", "P80", "hot", "P999", "Premium", "Smart")
HOSTS: Final = (
    "127.0.0.1", "localhost", "127.0.0.1:0", "127.0.0.1:99999", "127.0.0.1:", "127.0.0.1:1",
    "[::1]", "[::", "::1", "a@127.0.0.1", "127.0.0.1@a", "", ".", "a" * 300, "é", "%31",
    "127.0.0.1 ", "x.blob.127.0.0.1", ".blob.127.0.0.1", "169.254.169.254", "0.0.0.0",
    "127.0.0.1\\a",
)  # fmt: skip


def numbers(chance: random.Random, request: Request) -> Request:
    names = (
        "x-ms-blob-condition-appendpos", "x-ms-blob-condition-maxsize", "x-ms-blob-content-length",
        "x-ms-blob-sequence-number", "x-ms-if-sequence-number-le", "x-ms-if-sequence-number-lt",
        "x-ms-if-sequence-number-eq", "x-ms-structured-content-length",
    )  # fmt: skip
    for name in chance.sample(names, chance.randint(1, 3)):
        request = request.setting(name, chance.choice(NUMBERS))
    if chance.random() < 0.2:
        actions = ("max", "update", "increment", "MAX", "", "set")
        request = request.setting("x-ms-sequence-number-action", chance.choice(actions))
    return request


def pages(chance: random.Random, request: Request) -> Request:
    ranges = (*PAGE_RANGES, *PAGE_RANGES, *RANGES)
    request = request.setting(chance.choice(("Range", "x-ms-range")), chance.choice(ranges))
    if chance.random() < 0.5:
        written = chance.choice(("update", "clear", "CLEAR", "", "both"))
        request = request.setting("x-ms-page-write", written)
    if chance.random() < 0.3:
        length = chance.choice((0, 1, 511, PAGE, 2 * PAGE, 4 << 20))
        request = replace(request, body=b"p" * length).lacking("Content-Length")
    if chance.random() < 0.3:
        snapshot = chance.choice(("2026-11-15T02:50:16.0000000Z", "", "now", "%00", "9999"))
        request = request.asking(("prevsnapshot", snapshot))
    if chance.random() < 0.2:
        name = chance.choice(("marker", "maxresults"))
        request = request.asking((name, chance.choice(("0", "1", "-1", "512", "1" * 5_000, "a"))))
    return request


def previous_snapshot(chance: random.Random, request: Request) -> Request:
    address = f"http://127.0.0.1{request.path}?snapshot=2026-11-15T02:50:16.0000000Z"
    written = chance.choice((address, address[:-3], address.replace("?", "?a&"), *VALUES))
    return request.setting("x-ms-previous-snapshot-url", written)


def source(chance: random.Random, request: Request) -> Request:
    """Another source URL: of an existing blob, of a missing one, or invalid."""
    written = request.header("x-ms-copy-source") or f"http://127.0.0.1{request.path}"
    address, _, query = written.partition("?")
    path = "/" + address.partition("://")[2].partition("/")[2]
    junk = chance.choice(HEADER_VALUES)
    urls = (
        f"http://{chance.choice(HOSTS)}{path}?{query}",
        f"http://127.0.0.1{path}?{query}&snapshot={quote(junk, errors='surrogateescape')}",
        f"http://127.0.0.1{path}?{query}&versionid=2026-11-15T02:50:16.0000000Z",
        f"http://127.0.0.1{path}/{quote(junk, errors='surrogateescape')}?{query}",
        f"http://127.0.0.1{path}{junk}?{query}",
        f"http://127.0.0.1{path}?{junk}",
        f"http://127.0.0.1{path}?{query}#{junk}",
        f"http://127.0.0.1{'/a' * 8_000}",
        f"http://127.0.0.1{path}?{'a=b&' * 4_000}",
        f"{chance.choice(('https', 'HTTP', 'file', 'gopher', '', 'data'))}://127.0.0.1{path}",
        f"http://127.0.0.1{request.path}?{query}",
        "http://127.0.0.1", "http://127.0.0.1/", "http://127.0.0.1/devstoreaccount1",
        "http://127.0.0.1/devstoreaccount1/%FF/%00", "http://127.0.0.1/..%2f..%2f", junk,
    )  # fmt: skip
    return request.setting("x-ms-copy-source", chance.choice(urls))


def source_terms(chance: random.Random, request: Request) -> Request:
    """Ranges, conditions and options of a source."""
    choices = {
        "x-ms-source-range": (*PAGE_RANGES, *RANGES),
        "x-ms-source-content-md5": DIGESTS,
        "x-ms-source-content-crc64": DIGESTS,
        "x-ms-source-if-match": ETAGS,
        "x-ms-source-if-none-match": ETAGS,
        "x-ms-source-if-modified-since": VALUES,
        "x-ms-source-if-unmodified-since": VALUES,
        "x-ms-source-if-tags": EXPRESSIONS,
        "x-ms-source-lease-id": (LEASE, "", "a"),
        "x-ms-copy-source-tag-option": ("COPY", "REPLACE", "copy", "", "both"),
        "x-ms-copy-source-blob-properties": ("true", "false", "", "TRUE", "1"),
        "x-ms-copy-source-authorization": ("Bearer a", "", "a" * 9_000),
        "x-ms-requires-sync": ("true", "false", "TRUE", "", "maybe"),
        "x-ms-seal-blob": ("true", "false", "", "1"),
        "x-ms-blob-type": ("BlockBlob", "AppendBlob", "PageBlob", "blockblob", ""),
    }
    for name in chance.sample(sorted(choices), chance.randint(1, 3)):
        request = request.setting(name, chance.choice(choices[name]))
    return request


def copy_id(chance: random.Random, request: Request) -> Request:
    written = chance.choice((LEASE, LEASE.upper(), "", "a", "%00", "%FF", "1" * 5_000))
    request = request.asking_not("copyid").asking(("copyid", written))
    return request.setting("x-ms-copy-action", chance.choice(("abort", "ABORT", "", "go on")))


def tags(chance: random.Random, request: Request) -> Request:
    if chance.random() < 0.5:
        request = request.setting("x-ms-tags", chance.choice((*TAG_HEADERS, *HEADER_VALUES)))
    name = chance.choice(("x-ms-if-tags", "x-ms-source-if-tags", "x-ms-blob-if-match"))
    return request.setting(name, chance.choice((*EXPRESSIONS, *HEADER_VALUES)))


def search(chance: random.Random, request: Request) -> Request:
    where = chance.choice((*EXPRESSIONS, *HEADER_VALUES))
    if chance.random() < 0.8:
        request = request.asking_not("where")
    request = request.asking(("where", quote(where, safe="", errors="surrogateescape")))
    if chance.random() < 0.4:
        name = chance.choice(("marker", "maxresults", "include"))
        request = request.asking(
            (name, chance.choice(("0", "1", "_w==", "AAAA", "%FF", "a" * 900)))
        )
    return request


def tier(chance: random.Random, request: Request) -> Request:
    request = request.setting("x-ms-access-tier", chance.choice((*TIERS, *TIERS, *HEADER_VALUES)))
    if chance.random() < 0.5:
        priority = chance.choice(("High", "Standard", "high", "", "Low"))
        request = request.setting("x-ms-rehydrate-priority", priority)
    return request


_UPLOADS: Final = {"put_blob", "put_block", "append_block", "put_page", "put_block_list"}


def _specific_mutations(operation: BlobOperation) -> tuple[Mutation, ...]:
    """The mutations that fit the operation."""
    mutations: list[Mutation] = []
    if operation.source:
        mutations += [source, source, source_terms, source_terms]
    if operation.kind == "PageBlob":
        mutations += [pages, pages, numbers]
    if operation.kind == "AppendBlob":
        mutations += [numbers, numbers]
    if operation.row == "get_page_ranges":
        mutations += [previous_snapshot]
    if operation.aborts:
        mutations += [copy_id]
    if operation.parts:
        mutations += [multipart]
    if operation.row.startswith("find"):
        mutations += [search]
    if operation.row in _UPLOADS:
        mutations += [structured, numbers]
    if operation.row == "get_blob":
        mutations += [structured_body]
    if operation.level == "blob":
        mutations += [tags]
    if operation.row in {"set_blob_tier", "put_blob", "put_block_list"} or "copy" in operation.row:
        mutations += [tier]
    return tuple(mutations)


def structured_body(chance: random.Random, request: Request) -> Request:
    kinds = (MESSAGE_KIND, MESSAGE_KIND, "XSM/1.0", "", "\udcff")
    request = request.setting("x-ms-structured-body", chance.choice(kinds))
    return request.setting("x-ms-range", chance.choice((*RANGES, "bytes=0-3")))


# Variants of operations that need the same rights, but have other headers or blob types


def _variants() -> tuple[BlobOperation, ...]:
    named = {operation.name: operation for operation in OPERATIONS}
    put = named["put_blob_over_another"]
    page_blob = (("x-ms-blob-type", "PageBlob"), ("x-ms-blob-content-length", "1024"))
    return (
        replace(
            put,
            name="put_append_blob",
            headers=(("x-ms-blob-type", "AppendBlob"),),
            body=b"",
            kind="AppendBlob",
        ),
        replace(put, name="put_page_blob", headers=page_blob, body=b"", kind="PageBlob"),
        replace(
            named["put_page"],
            name="clear_page",
            headers=(("x-ms-range", "bytes=0-511"), ("x-ms-page-write", "clear")),
            body=b"",
        ),
        replace(
            named["set_blob_properties"],
            name="set_page_blob_properties",
            headers=page_blob[1:],
            kind="PageBlob",
        ),
        replace(named["get_blob"], name="get_page_blob", kind="PageBlob"),
        replace(named["get_blob"], name="get_append_blob", kind="AppendBlob"),
        replace(named["snapshot_blob"], name="snapshot_page_blob", kind="PageBlob"),
        replace(named["delete_blob"], name="delete_append_blob", kind="AppendBlob"),
        replace(named["blob_batch"], name="batch_of_two", parts=named["blob_batch"].parts * 2),
    )


MUTATED: Final = (*OPERATIONS, *_variants())


class BlobMutations(MutationRun[BlobTarget]):
    """Mutated requests to a container of the run's own, with a blob of each type."""

    fixture_class = BlobFixture
    operations = MUTATED

    def create_target(self) -> BlobTarget:
        target = BlobTarget(unique("mutant"), copy_id=LEASE)
        path = f"/{ACCOUNT}/{target.container}"
        self.fixture.send_as_owner(Request("PUT", path, (("restype", "container"),)))
        for kind in ("BlockBlob", "AppendBlob", "PageBlob"):
            for blob in (kind, f"source/{kind}"):
                self.fixture.put(target, blob, kind, b"s" * PAGE)
        snapshot = Request("PUT", f"{path}/source/PageBlob", (("comp", "snapshot"),))
        moment = self.fixture.send_as_owner(snapshot).headers["x-ms-snapshot"]
        return target._replace(snapshot=moment)

    def request(self, operation: Operation[BlobTarget], target: BlobTarget) -> Request:
        """Builds a request to the blob of the right type, with a source of the right type."""
        assert isinstance(operation, BlobOperation)
        target = target._replace(blob=operation.kind, source=f"source/{operation.source}")
        if operation.source != "PageBlob":
            target = target._replace(snapshot="")
        return operation.request(target)

    def choose(self, chance: random.Random, operation: Operation[BlobTarget]) -> list[Mutation]:
        assert isinstance(operation, BlobOperation)
        chosen = chance.choices(MUTATIONS, k=chance.randint(0, 3))
        specific = _specific_mutations(operation)
        if specific and (not chosen or chance.random() < 0.7):
            return [*chance.choices(specific, k=chance.randint(1, 2)), *chosen[:1]]
        return chosen

    def sign(self, chance: random.Random, target: BlobTarget, request: Request) -> Request:
        match chance.randrange(6):
            case 0:
                return shared_key_lite(ACCOUNT, KEY)(request)
            case 1:
                return account_token(ACCOUNT, KEY).put_on(request)
            case 2:
                options = {"si": "readers"} if chance.random() < 0.5 else {}
                container = resource_in(request)
                return service_token(ACCOUNT, KEY, container, **options).put_on(request)
            case _:
                return shared_key(ACCOUNT, KEY)(request)

"""Ways to spoil what only some requests have: pages, sources, tags, tiers."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Final
from urllib.parse import quote

from tests.probes.body_mutations import MESSAGE_KIND, NUMBERS, multipart, structured
from tests.probes.client import Request
from tests.probes.mutations import ANYWHERE, DIGESTS, ETAGS, IN_HEADERS, RANGES, Mutation
from tests.probes.operations import LEASE, OPERATIONS, PAGE, Operation

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
AUTHORITIES: Final = (
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
    written = chance.choice((address, address[:-3], address.replace("?", "?a&"), *ANYWHERE))
    return request.setting("x-ms-previous-snapshot-url", written)


def source(chance: random.Random, request: Request) -> Request:
    """Another address: of nothing, of a blob that is there, or of no place at all."""
    written = request.header("x-ms-copy-source") or f"http://127.0.0.1{request.path}"
    address, _, query = written.partition("?")
    path = "/" + address.partition("://")[2].partition("/")[2]
    junk = chance.choice(IN_HEADERS)
    spoiled = (
        f"http://{chance.choice(AUTHORITIES)}{path}?{query}",
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
    return request.setting("x-ms-copy-source", chance.choice(spoiled))


def source_terms(chance: random.Random, request: Request) -> Request:
    """How much of a source, if it is as expected, and what comes with it."""
    choices = {
        "x-ms-source-range": (*PAGE_RANGES, *RANGES),
        "x-ms-source-content-md5": DIGESTS,
        "x-ms-source-content-crc64": DIGESTS,
        "x-ms-source-if-match": ETAGS,
        "x-ms-source-if-none-match": ETAGS,
        "x-ms-source-if-modified-since": ANYWHERE,
        "x-ms-source-if-unmodified-since": ANYWHERE,
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


def aborted(chance: random.Random, request: Request) -> Request:
    copy_id = chance.choice((LEASE, LEASE.upper(), "", "a", "%00", "%FF", "1" * 5_000))
    request = request.asking_not("copyid").asking(("copyid", copy_id))
    return request.setting("x-ms-copy-action", chance.choice(("abort", "ABORT", "", "go on")))


def tags(chance: random.Random, request: Request) -> Request:
    if chance.random() < 0.5:
        request = request.setting("x-ms-tags", chance.choice((*TAG_HEADERS, *IN_HEADERS)))
    name = chance.choice(("x-ms-if-tags", "x-ms-source-if-tags", "x-ms-blob-if-match"))
    return request.setting(name, chance.choice((*EXPRESSIONS, *IN_HEADERS)))


def search(chance: random.Random, request: Request) -> Request:
    where = chance.choice((*EXPRESSIONS, *IN_HEADERS))
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
    request = request.setting("x-ms-access-tier", chance.choice((*TIERS, *TIERS, *IN_HEADERS)))
    if chance.random() < 0.5:
        priority = chance.choice(("High", "Standard", "high", "", "Low"))
        request = request.setting("x-ms-rehydrate-priority", priority)
    return request


_UPLOADS: Final = {"put_blob", "put_block", "append_block", "put_page", "put_block_list"}


def special(operation: Operation) -> tuple[Mutation, ...]:
    """What is worth spoiling in this operation besides what all have."""
    found: list[Mutation] = []
    if operation.source:
        found += [source, source, source_terms, source_terms]
    if operation.kind == "PageBlob":
        found += [pages, pages, numbers]
    if operation.kind == "AppendBlob":
        found += [numbers, numbers]
    if operation.row == "get_page_ranges":
        found += [previous_snapshot]
    if operation.aborts:
        found += [aborted]
    if operation.parts:
        found += [multipart]
    if operation.row.startswith("find"):
        found += [search]
    if operation.row in _UPLOADS:
        found += [structured, numbers]
    if operation.row == "get_blob":
        found += [_asked_for_message]
    if operation.level == "blob":
        found += [tags]
    if operation.row in {"set_blob_tier", "put_blob", "put_block_list"} or "copy" in operation.row:
        found += [tier]
    return tuple(found)


def _asked_for_message(chance: random.Random, request: Request) -> Request:
    kinds = (MESSAGE_KIND, MESSAGE_KIND, "XSM/1.0", "", "\udcff")
    request = request.setting("x-ms-structured-body", chance.choice(kinds))
    return request.setting("x-ms-range", chance.choice((*RANGES, "bytes=0-3")))


# Forms of operations that need no rights of their own, and have parts that others do not.


def _forms() -> dict[str, Operation]:
    named = {form.name: form for form in OPERATIONS}
    put = named["put_blob_over_another"]
    page_blob = (("x-ms-blob-type", "PageBlob"), ("x-ms-blob-content-length", "1024"))
    forms = (
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
    return {form.name: form for form in forms}


SPOILED: Final = (*OPERATIONS, *_forms().values())

"""Mutations of requests: before signing, so that they are authorized, or afterwards, as bytes."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from tests.probes.blob.operations import LEASE, OTHER_LEASE, TAGS
from tests.probes.client import Request, http_date
from tests.probes.service import POLICIES, PROPERTIES

Mutation = Callable[[random.Random, Request], Request]

# Values that are rarely valid; percent-encoded where they are for a URL.

VALUES: Final = (
    "", "-1", "0", "1", "99999999999999999999", "1" * 5_000, "1e9", "0x10", "٣", "null", "true",
    "*", ",", ";", "=", "a" * 1_100, "a" * 9_000, "é", "🦄", "'", '"', "<a>&amp;", "{}", "-", "..",
    LEASE, "2026-11-15T02:50:16.0000000Z", "include", "only", "BlockBlob", "AppendBlob", "AAAA",
    http_date(), "Thu, 31 Feb 2026 25:61:61 GMT",
)  # fmt: skip
HEADER_VALUES: Final = (
    *VALUES, "\udcff", "\udcc0\udcaf", "\udced\udca0\udc80", "\x00", "a\x00b", "\x01", "\x7f",
    "\t", "a\tb", "a\rb", "a\nb", "a\r\n b", "a\r\nx-injected: b", "a" * 70_000, "\x85", "\u2028",
)  # fmt: skip
URL_VALUES: Final = (
    "", "-1", "0", "5001", "1" * 5_000, "%D9%A3", "%00", "a%00b", "%01", "%0A", "a%0D%0Ab%3A%20c",
    "%7F", "%C2%85", "%FF", "%C0%AF", "%ED%A0%80", "%F4%90%80%80", "%EF%BF%BE", "%F0%9F%A6%84",
    "%", "%2", "%zz", "%25", "%2525", "+", ".", "..", "%2e%2e", "/", "%2F", "%5C", "a" * 1_100,
    "a" * 9_000, "<a>", "%3Ca%3E%26", "'", "*", "$root", "$logs", "$", "AAAA", "_w==", "AA==",
    "4pyT", "list", "metadata", "all", "2026-11-15T02:50:16Z", "a,b", "=", "?", "#", "\udcff",
)  # fmt: skip

PARAMETERS: Final = (
    "comp", "restype", "timeout", "prefix", "delimiter", "marker", "maxresults", "include",
    "startFrom", "endBefore", "showonly", "snapshot", "versionid", "deletetype", "blockid",
    "blocklisttype", "prevsnapshot", "copyid", "where", "popreceipt", "resource", "directory",
    "recursive", "action", "sv", "sp", "st", "se", "sr", "si", "sip", "spr", "ss", "srt", "sdd",
    "ses", "skoid", "rscc", "rsct", "Comp", "RESTYPE", "", "%00", "%FF", "a" * 300, "a:b",
)  # fmt: skip
COMPS: Final = (
    "list", "properties", "stats", "metadata", "acl", "lease", "block", "blocklist", "page",
    "pagelist", "appendblock", "seal", "snapshot", "tier", "tags", "undelete", "copy", "batch",
    "query", "blobs", "expiry", "immutabilityPolicies", "legalhold", "userdelegationkey", "rename",
    "incrementalcopy", "LIST", "li%00st", "",
)  # fmt: skip
RESTYPES: Final = ("service", "account", "container", "directory", "share", "CONTAINER", "x", "")

HEADERS: Final = (
    "x-ms-version", "x-ms-client-request-id", "x-ms-blob-type", "x-ms-blob-content-type",
    "x-ms-blob-content-encoding", "x-ms-blob-content-language", "x-ms-blob-content-disposition",
    "x-ms-blob-cache-control", "x-ms-blob-content-md5", "x-ms-blob-content-length",
    "x-ms-blob-sequence-number", "x-ms-sequence-number-action", "x-ms-blob-public-access",
    "x-ms-content-crc64", "x-ms-range", "x-ms-range-get-content-md5",
    "x-ms-range-get-content-crc64", "x-ms-lease-action", "x-ms-lease-duration", "x-ms-lease-id",
    "x-ms-proposed-lease-id", "x-ms-lease-break-period", "x-ms-delete-snapshots", "x-ms-tags",
    "x-ms-if-tags", "x-ms-copy-source", "x-ms-access-tier", "x-ms-encryption-key",
    "x-ms-encryption-key-sha256", "x-ms-encryption-algorithm", "x-ms-encryption-scope",
    "x-ms-source-if-match", "x-ms-default-encryption-scope", "x-ms-legal-hold",
    "x-ms-immutability-policy-until-date", "x-ms-date", "x-ms-return-client-request-id",
    "Content-Type", "Content-Encoding", "Content-Language", "Content-Disposition",
    "Content-MD5", "Cache-Control", "Date", "Accept", "Accept-Encoding", "User-Agent", "Origin",
    "Access-Control-Request-Method", "Access-Control-Request-Headers", "Referer", "Cookie",
    "Host", "X-Forwarded-For", "X-HTTP-Method-Override", "Prefer", "If-Match", "If-None-Match",
    "If-Modified-Since", "If-Unmodified-Since", "If-Range", "Range",
)  # fmt: skip
METADATA: Final = (
    "x-ms-meta-", "x-ms-meta-a", "x-ms-meta-A", "x-ms-meta-1a", "x-ms-meta-a-b", "x-ms-meta-a.b",
    "x-ms-meta-class", "x-ms-meta-_", "x-ms-meta-" + "a" * 500, "X-MS-META-B", "x-ms-metaphor",
    "x-ms-meta-é", "x-ms-meta-a b", "x-ms-meta-a\x00",
)  # fmt: skip
RANGES: Final = (
    "bytes=0-", "bytes=0-0", "bytes=5-1", "bytes=-5", "bytes=-", "bytes=0-1,3-4", "bytes=0-1, 3-",
    "bytes=999999-", "bytes=0-99999999999999999999999", "bytes=18446744073709551615-", "bytes 0-1",
    "bytes=0x0-0x1", "BYTES=0-1", "bytes=a-b", "items=0-1", "bytes=٣-", "bytes=+1-2", "bytes=1 - 2",
    " bytes=1-2 ", "bytes=0-0" + "0" * 40, "bytes=" + "9" * 5_000 + "-",
)  # fmt: skip
ETAGS: Final = (
    "*", '"0x1"', "0x1", 'W/"0x1"', '"0x1","0x2"', '"a', 'a"', '""', '"",""', "*,*", '"a" "b"',
    ',"a"', '"a",', '"\udcff"', '"\t"', '"' + "a" * 9_000 + '"', ",".join(['"0x1"'] * 500),
)  # fmt: skip
CONDITIONS: Final = ("If-Match", "If-None-Match", "If-Modified-Since", "If-Unmodified-Since")
LEASES: Final = (
    LEASE, OTHER_LEASE, LEASE.upper(), f"{{{LEASE}}}", f"({LEASE})", LEASE.replace("-", ""),
    LEASE[:-1], LEASE + "0", "{" + LEASE, "g" * 32, "٣" * 32, "{0x1,0x2,0x3,{0x1,2,3}}", "",
)  # fmt: skip
DOCUMENTS: Final = (
    ("SignedIdentifiers", POLICIES), ("StorageServiceProperties", PROPERTIES), ("Tags", TAGS),
)  # fmt: skip
DIGESTS: Final = (
    "", "AAAA", "A" * 22 + "==", "A" * 11 + "=", "====", "A" * 23 + "=", "é" * 12, "!" * 24,
    "A" * 9_000, "\udcff",
)  # fmt: skip


def header(chance: random.Random, request: Request) -> Request:
    return request.setting(chance.choice(HEADERS), chance.choice(HEADER_VALUES))


def doubled_header(chance: random.Random, request: Request) -> Request:
    names = [name for name, _ in request.headers] or ["x-ms-version"]
    return request.having((chance.choice((*names, "Host")), chance.choice(VALUES)))


def many_headers(chance: random.Random, request: Request) -> Request:
    count = chance.choice((20, 200, 300))
    return request.having(*((f"x-ms-meta-m{number}", "a" * 40) for number in range(count)))


def unversioned(chance: random.Random, request: Request) -> Request:
    """Gives the version by a parameter instead of the header."""
    return request.lacking("x-ms-version").asking(("sv", chance.choice(URL_VALUES)))


def metadata(chance: random.Random, request: Request) -> Request:
    return request.having((chance.choice(METADATA), chance.choice(HEADER_VALUES)))


def byte_range(chance: random.Random, request: Request) -> Request:
    written = chance.choice(RANGES)
    request = request.setting(chance.choice(("Range", "x-ms-range")), written)
    checked = chance.choice(("x-ms-range-get-content-md5", "x-ms-range-get-content-crc64"))
    return request.setting(checked, chance.choice(("true", "false", "True", "maybe")))


def condition(chance: random.Random, request: Request) -> Request:
    for name in chance.sample(CONDITIONS, chance.randint(1, 4)):
        request = request.setting(name, chance.choice((*ETAGS, *VALUES)))
    return request


def lease(chance: random.Random, request: Request) -> Request:
    request = request.setting("x-ms-lease-id", chance.choice(LEASES))
    if chance.random() < 0.5:
        name = chance.choice(("x-ms-proposed-lease-id", "x-ms-lease-duration"))
        return request.setting(name, chance.choice((*LEASES, "15", "60", "61", "-1", "1" * 5_000)))
    return request.setting("x-ms-lease-break-period", chance.choice(("0", "61", "1" * 5_000, "x")))


def parameter(chance: random.Random, request: Request) -> Request:
    name = chance.choice(PARAMETERS)
    if chance.random() < 0.5:
        request = request.asking_not(name)
    return request.asking((name, chance.choice(URL_VALUES)))


def listing(chance: random.Random, request: Request) -> Request:
    """Parameters of listings only."""
    names = ("prefix", "delimiter", "marker", "maxresults", "startFrom", "include")
    for name in chance.sample(names, chance.randint(1, 4)):
        request = request.asking((name, chance.choice(URL_VALUES)))
    return request


def route(chance: random.Random, request: Request) -> Request:
    request = request.asking_not("comp").asking_not("restype")
    if chance.random() < 0.8:
        request = request.asking(("comp", chance.choice(COMPS)))
    if chance.random() < 0.6:
        request = request.asking(("restype", chance.choice(RESTYPES)))
    return request


def method(chance: random.Random, request: Request) -> Request:
    methods = ("GET", "HEAD", "PUT", "DELETE", "POST", "PATCH", "OPTIONS", "MERGE", "TRACE")
    return replace(request, method=chance.choice(methods))


def path(chance: random.Random, request: Request) -> Request:
    parts = request.path.split("/")
    at = chance.randrange(1, len(parts))
    junk = chance.choice(URL_VALUES)
    match chance.randrange(5):
        case 0:
            parts[at] = junk
        case 1:
            parts[at] += junk
        case 2:
            parts.insert(at, junk)
        case 3:
            parts += [junk] * chance.choice((1, 300, 3_000))
        case _:
            del parts[at]
    return replace(request, path="/".join(parts) or "/")


def digest(chance: random.Random, request: Request) -> Request:
    name = chance.choice(("Content-MD5", "x-ms-content-crc64", "x-ms-blob-content-md5"))
    return request.setting(name, chance.choice(DIGESTS))


def xml(chance: random.Random, request: Request) -> Request:
    """An XML document of some operation, with something wrong."""
    root, body = chance.choice(DOCUMENTS)
    at = chance.randrange(len(body))
    bomb = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 10))
    documents = (
        body[:at],
        body[:at] + bytes([chance.randrange(256)]) + body[at + 1 :],
        body.replace(b"<", b"<x:", 2),
        b"\xef\xbb\xbf" + body,
        body.decode().encode("utf-16"),
        body.decode().encode("utf-16-be"),
        b'<?xml version="1.0" encoding="utf-7"?>' + body,
        b'<?xml version="1.0" encoding="rot13"?>' + body,
        f'<!DOCTYPE a [<!ENTITY e0 "lol">{bomb}]><{root}>&e9;</{root}>'.encode(),
        f'<!DOCTYPE a SYSTEM "file:///etc/passwd"><{root}/>'.encode(),
        f"<{root}>{'<a>' * 5_000}".encode(),
        f"<{root}>{'<a/>' * 5_000}</{root}>".encode(),
        f"<{root} a='{'b' * 9_000}'/>".encode(),
        body * 2,
        body.replace(b"true", b"9" * 5_000).replace(b"2099", b"0000"),
        body.replace(b"readers", b"&#x0;").replace(b"1.0", "é\u2028".encode()),
        body.replace(b">r<", b">rr<").replace(b"readers", b"r" * 65),
        chance.randbytes(1 << 20),
        b"a" * (1 << 20),
        b"\x00",
    )
    return replace(request, body=chance.choice(documents)).lacking("Content-Length")


def framing(chance: random.Random, request: Request) -> Request:
    length = len(request.body)
    lengths = (length + 5, max(0, length - 1), -1, f"+{length}", "", "0x1", "1" * 30, "1 2", "1,1")
    if chance.random() < 0.5:
        return request.setting("Content-Length", str(chance.choice(lengths)))
    request = request.setting("Transfer-Encoding", chance.choice(("chunked", "gzip", "x, chunked")))
    chunks = (
        b"5\r\nhello\r\n0\r\n\r\n", b"5\r\nhel", b"-1\r\n", b"ffffffffffffffffff\r\n", b"5;a=b\r\n",
        b"5\nhello\n0\n\n", b"5\r\nhello0\r\n\r\n", b"0\r\nx-ms-meta-late: a\r\n\r\n",
    )  # fmt: skip
    return replace(request.lacking("Content-Length"), body=chance.choice(chunks))


def expectation(chance: random.Random, request: Request) -> Request:
    name, *values = chance.choice(
        (
            ("Expect", "100-continue", "200-ok", ""),
            ("Connection", "close", "keep-alive", "upgrade", "x-ms-date"),
            ("Upgrade", "h2c", "websocket"),
            ("TE", "trailers"),
        )
    )
    return request.having((name, chance.choice(values)))


MUTATIONS: Final[tuple[Mutation, ...]] = (
    header, header, header, doubled_header, many_headers, unversioned, metadata, byte_range,
    condition, lease,
    parameter, parameter, listing, listing, route, method, path, path, digest, xml, framing,
    expectation,
)  # fmt: skip


# After signing

PIECES: Final = (
    b"\r\n", b"\n", b"\r", b"\x00", b" ", b"\t", b":", b"\r\n\r\n", b"0\r\n\r\n", b"\xff", b"%",
    b"Content-Length: 5\r\n", b"Transfer-Encoding: chunked\r\n", b" HTTP/1.1", b"GET / ", b"?",
    b"&", b"Host: x\r\n", b"Expect: 100-continue\r\n", b"x-ms-version: 1\r\n", b"a" * 70_000,
)  # fmt: skip


def mutate_bytes(chance: random.Random, data: bytes) -> bytes:
    """A request with bytes changed, inserted, removed, repeated or cut off."""
    mutated = bytearray(data)
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(len(mutated) + 1)
        match chance.randrange(5):
            case 0:
                mutated[at : at + 1] = bytes([chance.randrange(256)])
            case 1:
                mutated[at:at] = chance.choice(PIECES)
            case 2:
                del mutated[at : at + chance.randint(1, 20)]
            case 3:
                mutated[at:at] = mutated[max(0, at - 30) : at]
            case _:
                del mutated[at:]
    return bytes(mutated)

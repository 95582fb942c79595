"""Mutations of requests to the file service: times, attributes, permissions, owners, paths, ranges
and sources."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Final
from urllib.parse import quote

from tests.probes.client import Request, shared_key, shared_key_lite
from tests.probes.file.fixture import CONTENT, FileFixture
from tests.probes.file.operations import LEASE, OPERATIONS, SDDL, FileOperation, FileTarget
from tests.probes.mutation_run import MutationRun, resource_in
from tests.probes.mutations import HEADER_VALUES, MUTATIONS, RANGES, URL_VALUES, VALUES, Mutation
from tests.probes.service import Operation
from tests.probes.tokens import account_token, share_token
from tests.server import ACCOUNT, KEY, Server

TIMES: Final = (
    "now", "preserve", "NOW", "", "1601-01-01T00:00:00Z", "1600-12-31T23:59:59.9999999Z",
    "1970-01-01T00:00:00.0000000Z", "9999-12-31T23:59:59.9999999Z", "2020-02-30T00:00:00Z",
    "2020-01-01T00:00:00.00000000Z", "0000-00-00T00:00:00Z", "2020-01-01", "-1",
)  # fmt: skip
ATTRIBUTES: Final = (
    "none", "preserve", "ReadOnly", "readonly|hidden", "Directory", "Archive|Directory", "|", "",
    "ReadOnly | Archive", "Offline|NotContentIndexed|NoScrubData|Temporary|System", "x" * 9_000,
    "|".join(["Hidden"] * 2_000),
)  # fmt: skip
PERMISSIONS: Final = (
    "inherit", "preserve", SDDL, SDDL[:-1], "O:SYG:SY", "D:", "S:", "", "O:SYG:SYD:(A;;FA;;;SY)",
    "O:SYG:SYD:" + "(A;;FA;;;SY)" * 600, "O:SYG:SYD:" + "(A;;FA;;;SY)" * 2_000,
    "O:S-1-5-21-" + "1-" * 300 + "1G:SYD:", "O:SYG:SYD:P(A;OICI;0xffffffffff;;;SY)",
    "O:SYG:SYD:(A;;FA;" + "{" * 200 + ";;SY)", "AQAUhA==", "A" * 8_193,
)  # fmt: skip
KEYS: Final = ("0*0", "1*0", "1*1", "*", "1", "-1*0", "99999999999999999999*1", "1" * 5_000, "")
NUMBERS: Final = (
    "0", "1", "5", "512", "4194304", "4194305", "4398046511104", "4398046511105", "-1", "",
    "9223372036854775807", "18446744073709551616", "1" * 5_000, "five",
)  # fmt: skip
OWNERS: Final = ("0", "4294967295", "4294967296", "-1", "root", "", "0644", "7777", "17777", "9")
SWITCHES: Final = ("true", "false", "TRUE", "1", "", "yes")
NAMES: Final = (
    "crate", "shelf", "shelf/book", "SHELF/BOOK", "shelf/book.", "shelf./book..", "shelf/",
    "shelf//", "shelf/book/below", "missing/book", ".", "..", "shelf/..", "...", "CON", "a%00",
    "a%3Ab", "%FF",
    "%ED%A0%80", "%EF%BF%BF", "a" * 255, "a" * 256, "%F0%9F%98%80" * 127, "a/" * 249 + "a",
    "a/" * 250 + "a", ("a" * 250 + "/") * 8 + "a" * 40, "shelf%2Fbook", "shelf%5Cbook", "%2F", "+",
)  # fmt: skip
LINK_TEXTS: Final = ("a", "", "/", "..%2F..", "%00", "%FF", "%zz", "a" * 3_000, "%C3%A9")


def _set_some(
    chance: random.Random, request: Request, choices: dict[str, tuple[str, ...]]
) -> Request:
    for name in chance.sample(sorted(choices), chance.randint(1, min(3, len(choices)))):
        request = request.setting(name, chance.choice(choices[name]))
    return request


_PROPERTIES: Final[dict[str, tuple[str, ...]]] = {
    "x-ms-file-creation-time": TIMES,
    "x-ms-file-last-write-time": TIMES,
    "x-ms-file-change-time": TIMES,
    "x-ms-file-attributes": ATTRIBUTES,
    "x-ms-file-permission": PERMISSIONS,
    "x-ms-file-permission-key": KEYS,
    "x-ms-file-permission-format": ("sddl", "Binary", "", "xml"),
    "x-ms-file-property-semantics": ("New", "Restore", "", "Old"),
    "x-ms-content-length": NUMBERS,
    "x-ms-content-md5": ("", "AAAA", "not base64", "AAAAAAAAAAAAAAAAAAAAAA=="),
    "x-ms-content-type": HEADER_VALUES,
    "x-ms-mode": OWNERS,
    "x-ms-owner": OWNERS,
    "x-ms-group": OWNERS,
    "x-ms-type": ("file", "FILE", "directory", ""),
}
_MODES: Final[dict[str, tuple[str, ...]]] = {
    "x-ms-allow-trailing-dot": SWITCHES,
    "x-ms-source-allow-trailing-dot": SWITCHES,
    "x-ms-file-rename-replace-if-exists": SWITCHES,
    "x-ms-file-rename-ignore-readonly": SWITCHES,
    "x-ms-file-extended-info": SWITCHES,
    "x-ms-file-copy-ignore-readonly": SWITCHES,
    "x-ms-file-copy-set-archive": SWITCHES,
    "x-ms-file-support-rename": SWITCHES,
    "x-ms-recursive": SWITCHES,
    "x-ms-file-permission-copy-mode": ("source", "override", "", "both"),
    "x-ms-file-mode-copy-mode": ("source", "override", "", "both"),
    "x-ms-file-owner-copy-mode": ("source", "override", "", "both"),
    "x-ms-file-request-intent": ("backup", "", "restore"),
    "x-ms-handle-id": ("*", "1", "0", "-1", "18446744073709551616", ""),
    "x-ms-source-lease-id": (LEASE, "", "a", "*"),
    "x-ms-destination-lease-id": (LEASE, "", "a", "*"),
    "x-ms-enabled-protocols": ("NFS", "SMB", "nfs", "SMB;NFS", ""),
    "x-ms-root-squash": ("RootSquash", "AllSquash", "", "None"),
    "x-ms-share-quota": NUMBERS,
    "x-ms-access-tier": ("Hot", "Cool", "Premium", "", "Cold"),
    "x-ms-link-text": LINK_TEXTS,
    "x-ms-file-target-file": ("/shelf/book", "shelf/book", "/", "", "/missing", "/shelf", "%FF"),
}
_PARAMETERS: Final[dict[str, tuple[str, ...]]] = {
    "sharesnapshot": ("2026-11-15T02:50:16.0000000Z", "2026-11-15T02:50:16.5Z", "", "now", "%00"),
    "prevsharesnapshot": ("2026-11-15T02:50:16.0000000Z", "2026-11-15", "", "now"),
    "marker": ("1!4!YQ--", "1!0!", "1!9!YQ--", "2!4!YQ--", "0", "a", "%FF"),
    "include": ("timestamps,etag", "Attributes,PermissionKey", "metadata,snapshots,deleted", ","),
    "prefix": URL_VALUES,
    "maxresults": URL_VALUES,
    "copyid": (LEASE, "", "a"),
}


def properties(chance: random.Random, request: Request) -> Request:
    return _set_some(chance, request, _PROPERTIES)


def modes(chance: random.Random, request: Request) -> Request:
    return _set_some(chance, request, _MODES)


def parameters(chance: random.Random, request: Request) -> Request:
    name = chance.choice(sorted(_PARAMETERS))
    return request.asking_not(name).asking((name, chance.choice(_PARAMETERS[name])))


def path(chance: random.Random, request: Request) -> Request:
    account, share, *_ = [*request.path[1:].split("/"), ""]
    return replace(request, path=f"/{account}/{share}/{chance.choice(NAMES)}")


def ranges(chance: random.Random, request: Request) -> Request:
    written = (*RANGES, "bytes=0-3", "bytes=4-7", "bytes=19-22", "bytes=0-4194303", "bytes=20-")
    request = request.setting(chance.choice(("Range", "x-ms-range")), chance.choice(written))
    request = request.setting("x-ms-write", chance.choice(("update", "clear", "CLEAR", "")))
    if chance.random() < 0.5:
        length = chance.choice((0, 1, 4, 5, 4 << 20))
        request = replace(request, body=b"r" * length).lacking("Content-Length")
    return request


def source(chance: random.Random, request: Request) -> Request:
    """Another source of a copy or rename: one that exists, a missing one, or an invalid URL."""
    names = [each for each in ("x-ms-copy-source", "x-ms-file-rename-source")
             if request.header(each) is not None]  # fmt: skip
    name = chance.choice(names or ["x-ms-copy-source", "x-ms-file-rename-source"])
    written = request.header(name) or f"http://127.0.0.1{request.path}"
    address, _, query = written.partition("?")
    share = "/".join(address.split("/")[:5])
    junk = chance.choice(HEADER_VALUES)
    urls = (
        f"{share}/{chance.choice(NAMES)}?{query}",
        f"{share}/{quote(junk, errors='surrogateescape')}?{query}",
        f"{share}/{junk}",
        f"{share}?{query}",
        f"{address}?{junk}",
        f"{address}?{query}&sharesnapshot={chance.choice(URL_VALUES)}",
        f"http://127.0.0.1{request.path}?{query}",
        f"http://127.0.0.1/second/other/file?{query}",
        "http://127.0.0.1",
        "http://127.0.0.1/",
        chance.choice(VALUES),
    )
    return request.setting(name, chance.choice(urls))


FILE_MUTATIONS: Final[tuple[Mutation, ...]] = (
    properties, properties, modes, modes, parameters, path, ranges, source,
)  # fmt: skip
_REPEATABLE: Final = tuple(
    operation for operation in OPERATIONS if not (operation.aborts or operation.restores)
)
"""Operations that need neither a pending copy nor a deleted share."""


class FileMutations(MutationRun[FileTarget]):
    """Mutated requests to a share of the run's own."""

    fixture_class = FileFixture
    operations = _REPEATABLE

    def __init__(self, server: Server, seed: int) -> None:
        super().__init__(server, seed)
        self._targets = 0

    def create_target(self) -> FileTarget:
        """Creates a share, every fourth one for NFS clients."""
        fixture: FileFixture = self.fixture
        self._targets += 1
        target = fixture.create(is_nfs=self._targets % 4 == 0)
        fixture.write(target, target.source, CONTENT)
        return target

    def choose(self, chance: random.Random, operation: Operation[FileTarget]) -> list[Mutation]:
        own = FILE_MUTATIONS
        if isinstance(operation, FileOperation) and operation.source:
            own = (*own, source, source)
        return chance.choices((*MUTATIONS, *own * 3), k=chance.randint(1, 3))

    def sign(self, chance: random.Random, target: FileTarget, request: Request) -> Request:
        match chance.randrange(6):
            case 0:
                return shared_key_lite(ACCOUNT, KEY)(request)
            case 1:
                return account_token(ACCOUNT, KEY, services="f").put_on(request)
            case 2:
                options = {"si": "readers"} if chance.random() < 0.5 else {}
                return share_token(ACCOUNT, KEY, resource_in(request), **options).put_on(request)
            case _:
                return shared_key(ACCOUNT, KEY)(request)

"""Shared access signatures, signed by our own implementation of the protocol."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final

from tests.probes.client import VERSION, Request, encoded, hmac_sha256

ACCOUNT_LETTERS: Final = "rwdxylacupfti"
BLOB_LETTERS: Final = "racwdxyltmeiop"
CONTAINER_LETTERS: Final = BLOB_LETTERS + "f"
QUEUE_LETTERS: Final = "raup"
TABLE_LETTERS: Final = "raud"
FILE_LETTERS: Final = "rcwd"
SHARE_LETTERS: Final = FILE_LETTERS + "l"


def moment(**distance: float) -> str:
    """A time at that distance from now, in the format of token fields."""
    return (datetime.now(UTC) + timedelta(**distance)).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True)
class Token:
    """The query parameters of a token, in the order in which they are sent."""

    fields: dict[str, str]

    def __str__(self) -> str:
        return "&".join(f"{name}={value}" for name, value in encoded(self.fields.items()))

    def put_on(self, request: Request) -> Request:
        return request.framed().asking(*encoded(self.fields.items()))

    def setting(self, name: str, value: str) -> Token:
        return replace(self, fields={**self.fields, name: value})

    def lacking(self, name: str) -> Token:
        return replace(self, fields={n: value for n, value in self.fields.items() if n != name})


def account_token(
    account: str,
    key: str,
    *,
    permissions: str = ACCOUNT_LETTERS,
    services: str = "b",
    types: str = "sco",
    **options: str,
) -> Token:
    """An account SAS; `options` are optional parameters by name."""
    fields = {"sv": VERSION, "sp": permissions, "ss": services, "srt": types}
    fields |= {"st": moment(hours=-1), "se": moment(hours=1)} | options
    names = ("sp", "ss", "srt", "st", "se", "sip", "spr", "sv", "ses")
    text = "".join(f"{line}\n" for line in (account, *(fields.get(name, "") for name in names)))
    return Token({**fields, "sig": hmac_sha256(key, text)})


def service_token(
    account: str,
    key: str,
    container: str,
    blob: str = "",
    *,
    permissions: str | None = None,
    snapshot: str = "",
    **options: str,
) -> Token:
    """A service SAS for a container, a blob or a snapshot.

    The snapshot is signed, but not sent as a field. A token with a stored policy (`si`) has neither
    permissions nor times of its own.
    """
    letters = (BLOB_LETTERS if blob else CONTAINER_LETTERS) if permissions is None else permissions
    fields = {"sv": VERSION, "sr": "b" if blob else "c"}
    if "si" not in options:
        fields |= {"sp": letters, "st": moment(hours=-1), "se": moment(hours=1)}
    fields |= options
    resource = f"/blob/{account}/{container}" + (f"/{blob}" if blob else "")
    before, after = ("sp", "st", "se"), ("si", "sip", "spr", "sv", "sr")
    answers = ("ses", "rscc", "rscd", "rsce", "rscl", "rsct")
    lines = [fields.get(name, "") for name in before] + [resource]
    lines += [fields.get(name, "") for name in after] + [snapshot]
    lines += [fields.get(name, "") for name in answers]
    return Token({**fields, "sig": hmac_sha256(key, "\n".join(lines))})


def queue_token(
    account: str, key: str, queue: str, *, permissions: str = QUEUE_LETTERS, **options: str
) -> Token:
    """A service SAS for a queue."""
    fields = {"sv": VERSION}
    if "si" not in options:
        fields |= {"sp": permissions, "st": moment(hours=-1), "se": moment(hours=1)}
    fields |= options
    lines = [fields.get(name, "") for name in ("sp", "st", "se")]
    lines += [f"/queue/{account}/{queue}"]
    lines += [fields.get(name, "") for name in ("si", "sip", "spr", "sv")]
    return Token({**fields, "sig": hmac_sha256(key, "\n".join(lines))})


def table_token(
    account: str, key: str, table: str, *, permissions: str = TABLE_LETTERS, **options: str
) -> Token:
    """A service SAS for a table, or for the key range in `spk`, `srk`, `epk` and `erk`."""
    fields = {"sv": VERSION, "tn": table}
    if "si" not in options:
        fields |= {"sp": permissions, "st": moment(hours=-1), "se": moment(hours=1)}
    fields |= options
    lines = [fields.get(name, "") for name in ("sp", "st", "se")]
    lines += [f"/table/{account}/{table.lower()}"]
    lines += [fields.get(name, "") for name in ("si", "sip", "spr", "sv")]
    lines += [fields.get(name, "") for name in ("spk", "srk", "epk", "erk")]
    return Token({**fields, "sig": hmac_sha256(key, "\n".join(lines))})


def share_token(
    account: str,
    key: str,
    share: str,
    path: str = "",
    *,
    permissions: str | None = None,
    **options: str,
) -> Token:
    """A service SAS for a share, or for the file at a path."""
    letters = (FILE_LETTERS if path else SHARE_LETTERS) if permissions is None else permissions
    fields = {"sv": VERSION, "sr": "f" if path else "s"}
    if "si" not in options:
        fields |= {"sp": letters, "st": moment(hours=-1), "se": moment(hours=1)}
    fields |= options
    resource = f"/file/{account}/{share}" + (f"/{path}" if path else "")
    lines = [fields.get(name, "") for name in ("sp", "st", "se")] + [resource]
    lines += [fields.get(name, "") for name in ("si", "sip", "spr", "sv")]
    lines += [fields.get(name, "") for name in ("rscc", "rscd", "rsce", "rscl", "rsct")]
    return Token({**fields, "sig": hmac_sha256(key, "\n".join(lines))})

"""Shared access signatures, made by our own reading of the protocol."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final

from tests.probes.client import VERSION, Request, encoded, hmac_sha256

ACCOUNT_LETTERS: Final = "rwdxylacupfti"
BLOB_LETTERS: Final = "racwdxyltmeiop"
CONTAINER_LETTERS: Final = BLOB_LETTERS + "f"


def moment(**distance: float) -> str:
    """A time at that distance from now, as tokens write it."""
    return (datetime.now(UTC) + timedelta(**distance)).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True)
class Token:
    """Query parameters, as text, in the order in which they are sent."""

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
    """`options` are the optional parameters by their names."""
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
    """For a container, for one blob of it, or for a `snapshot` of that, which is signed but is no
    part of the token. With a stored policy (`si`) it says nothing else."""
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

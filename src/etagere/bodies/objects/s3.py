"""The driver for S3 and compatible object stores, on obstore.

Keys come from the environment or from a file in the format of AWS, never from the URL. Messages
contain the codes of errors and not the responses, which may quote keys and signatures.
"""

from __future__ import annotations

import asyncio
import configparser
import contextlib
import os
import random
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)
from obstore.store import S3Store

from etagere.bodies.objects.addresses import InvalidStore, split_store_url
from etagere.bodies.objects.interface import ObjectEntry, ObjectExists, ObjectMissing
from etagere.engine.interface import Fault, FaultReason

_CONNECT_SECONDS_MAX: Final = 5.0
_REQUEST_SECONDS_MAX: Final = 20.0
_CALL_SECONDS_MAX: Final = 30.0
"""For all attempts of a request together."""
_ATTEMPTS_MAX: Final = 4
_PAUSE_SECONDS: Final = 0.1
"""Before the second attempt; doubled before each further one."""
_REGION: Final = "us-east-1"
_NAMES_PER_DELETE_MAX: Final = 1_000
_ENTRIES_PER_PAGE: Final = 1_000
_BUCKET: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,61}[A-Za-z0-9]")
_OPTIONS: Final = {"endpoint", "region", "credentials", "profile", "addressing", "overwrite"}
_ADDRESSING: Final = {"path": False, "virtual": True, "": None}
_CODE: Final = re.compile(r"<Code>([A-Za-z0-9.]{1,64})</Code>")
_STATUS: Final = re.compile(r"\b([1345]\d\d) [A-Z][a-z]")
_REASONS: Final = (
    "Connection refused",
    "Connection reset",
    "timed out",
    "dns error",
    "certificate",
)

T = TypeVar("T")


@dataclass(frozen=True)
class S3Address:
    """Where an S3 store is, and how it is used."""

    bucket: str
    prefix: str = ""
    endpoint: str | None = None
    """None: that of AWS, or `AWS_ENDPOINT_URL`."""
    region: str | None = None
    credentials: Path | None = None
    """A file with keys, in the format of `~/.aws/credentials`; None: from the environment."""
    profile: str = "default"
    is_virtual_hosted: bool | None = None
    """Whether the bucket is part of the host name; None: only on AWS."""
    lacks_conditional_put: bool = False
    """Whether the store cannot refuse to overwrite objects."""


def parse_s3_url(url: str) -> S3Address:
    """Parses `s3://BUCKET[/PREFIX][?OPTION=VALUE&…]`. Raises `InvalidStore`."""
    bucket, prefix, options = split_store_url(
        url,
        "s3",
        "s3://BUCKET[/PREFIX][?OPTION=VALUE&…]",
        _OPTIONS,
        "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    )
    if not _BUCKET.fullmatch(bucket):
        raise InvalidStore("has an invalid bucket name")
    endpoint = options.get("endpoint")
    if endpoint is not None:
        _check_endpoint(endpoint)
    addressing = options.get("addressing", "")
    if addressing not in _ADDRESSING:
        raise InvalidStore("has an invalid option: addressing is path or virtual")
    if options.get("overwrite", "no") not in ("yes", "no"):
        raise InvalidStore("has an invalid option: overwrite is yes or no")
    credentials = options.get("credentials")
    return S3Address(
        bucket,
        prefix,
        endpoint,
        options.get("region"),
        None if credentials is None else Path(credentials),
        options.get("profile", "default"),
        _ADDRESSING[addressing],
        options.get("overwrite") == "yes",
    )


def _check_endpoint(endpoint: str) -> None:
    try:
        parts = urlsplit(endpoint)
        is_valid = (
            parts.scheme in ("http", "https")
            and bool(parts.hostname)
            and parts.port != 0
            and not parts.username
            and not parts.query
            and parts.path in ("", "/")
        )
    except ValueError:
        is_valid = False
    if not is_valid:
        raise InvalidStore("has an invalid option: endpoint is http://HOST:PORT or https://HOST")


@dataclass(frozen=True)
class Keys:
    """The keys of an S3 store."""

    access_key_id: str
    secret_access_key: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)


def read_keys(address: S3Address, environment: Mapping[str, str]) -> Keys | None:
    """Returns the keys from the file or the environment; None if there are none, as on machines
    with a role. Raises `InvalidStore`."""
    if address.credentials is None:
        if not environment.get("AWS_ACCESS_KEY_ID"):
            return None
        if not environment.get("AWS_SECRET_ACCESS_KEY"):
            raise InvalidStore("AWS_ACCESS_KEY_ID is set without AWS_SECRET_ACCESS_KEY")
        return Keys(
            environment["AWS_ACCESS_KEY_ID"],
            environment["AWS_SECRET_ACCESS_KEY"],
            environment.get("AWS_SESSION_TOKEN"),
        )
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read_string(address.credentials.read_text("utf-8"))
        section = parser[address.profile]
        return Keys(
            section["aws_access_key_id"],
            section["aws_secret_access_key"],
            section.get("aws_session_token"),
        )
    except OSError as error:
        raise InvalidStore(f"the file with the keys cannot be read: {error.strerror}") from None
    except (configparser.Error, KeyError, UnicodeDecodeError):
        raise InvalidStore(
            "the file with the keys has no profile of this name with aws_access_key_id and "
            "aws_secret_access_key"
        ) from None


class S3ObjectStore:
    """The objects below a prefix of a bucket."""

    def __init__(self, address: S3Address, environment: Mapping[str, str] = os.environ) -> None:
        keys = read_keys(address, environment)
        endpoint = (
            address.endpoint
            or environment.get("AWS_ENDPOINT_URL_S3")
            or environment.get("AWS_ENDPOINT_URL")
        )
        is_virtual_hosted = address.is_virtual_hosted
        if is_virtual_hosted is None:
            is_virtual_hosted = endpoint is None
        options: dict[str, Any] = {"virtual_hosted_style_request": is_virtual_hosted}
        if endpoint is not None:
            options["endpoint"] = endpoint
        options["region"] = address.region or environment.get("AWS_REGION") or _REGION
        if keys is not None:
            options["access_key_id"] = keys.access_key_id
            options["secret_access_key"] = keys.secret_access_key
            if keys.session_token:
                options["session_token"] = keys.session_token
        self._store = S3Store(
            address.bucket,
            prefix=address.prefix or None,
            client_options={
                "allow_http": endpoint is not None and endpoint.startswith("http://"),
                "connect_timeout": timedelta(seconds=_CONNECT_SECONDS_MAX),
                "timeout": timedelta(seconds=_REQUEST_SECONDS_MAX),
            },
            # Retries are made here, where a second attempt of a put is known to be one.
            retry_config={"max_retries": 0, "retry_timeout": timedelta(0)},
            **options,
        )
        self._lacks_conditional_put = address.lacks_conditional_put

    async def put(self, name: str, buffers: Sequence[bytes | bytearray | memoryview]) -> None:
        size = sum(map(len, buffers))
        parts = [buffer for buffer in buffers if len(buffer)]
        is_retry = False

        async def attempt() -> None:
            nonlocal is_retry
            was_retry, is_retry = is_retry, True
            try:
                await obstore.put_async(
                    self._store,
                    name,
                    parts[0] if len(parts) == 1 else parts,
                    mode="overwrite" if self._lacks_conditional_put else "create",
                    use_multipart=False,
                )
            except (AlreadyExistsError, PreconditionError):
                # The response to the first attempt was lost.
                if not was_retry or await self._size(name) != size:
                    raise ObjectExists(name) from None

        await self._call(f"put {name}", attempt)

    async def _size(self, name: str) -> int:
        return (await obstore.head_async(self._store, name))["size"]

    async def get(self, name: str, offset: int, length: int) -> bytes:
        if not length:
            return b""

        async def attempt() -> bytes:
            try:
                found = await obstore.get_async(
                    self._store, name, options={"range": (offset, offset + length)}
                )
                return bytes(await found.bytes_async())
            except FileNotFoundError as error:
                if "NoSuchBucket" in str(error):
                    raise Fault(FaultReason.FAILED, "the bucket does not exist") from None
                raise ObjectMissing(name) from None
            except BaseError as error:
                if _is_past_end(error):
                    return b""
                raise

        return await self._call(f"get {name}", attempt)

    async def delete(self, names: Iterable[str]) -> None:
        rest = iter(names)
        while batch := tuple(islice(rest, _NAMES_PER_DELETE_MAX)):

            async def attempt(batch: Sequence[str] = batch) -> None:
                try:
                    await obstore.delete_async(self._store, batch)
                except FileNotFoundError:
                    # A store that reports missing objects may have deleted only some of the others.
                    for name in batch:
                        await self._delete_one(name)

            await self._call("delete", attempt)

    async def _delete_one(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            await obstore.delete_async(self._store, name)

    async def list(self, prefix: str) -> AsyncIterator[ObjectEntry]:
        last: str | None = None
        while True:
            page = await self._call(f"list {prefix}", partial(self._page, prefix, last))
            for entry in page:
                yield entry
            if len(page) < _ENTRIES_PER_PAGE:
                return
            last = page[-1].name

    async def names(self, prefix: str) -> AsyncIterator[str]:
        async for entry in self.list(prefix):
            yield entry.name

    async def _page(self, prefix: str, after: str | None) -> Sequence[ObjectEntry]:
        stream = obstore.list(
            self._store, prefix or None, offset=after, chunk_size=_ENTRIES_PER_PAGE
        )
        async for chunk in stream:
            return [ObjectEntry(found["path"], found["size"]) for found in chunk]
        return []

    async def close(self) -> None:
        """Does nothing: idle connections are closed by their timeout."""

    async def _call(self, what: str, attempt: Callable[[], Awaitable[T]]) -> T:
        """Makes a few attempts at a request, within a bounded time."""
        fault = Fault(FaultReason.UNAVAILABLE, f"S3, {what}: no answer in time")
        pause = _PAUSE_SECONDS
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CALL_SECONDS_MAX):
                for number in range(_ATTEMPTS_MAX):
                    try:
                        return await attempt()
                    except (BaseError, OSError) as error:
                        fault = _fault_of(what, error)
                    if fault.reason is not FaultReason.UNAVAILABLE or number == _ATTEMPTS_MAX - 1:
                        break
                    await asyncio.sleep(pause * random.uniform(0.5, 1.5))
                    pause *= 2
        raise fault


def _is_past_end(error: BaseError) -> bool:
    text = str(error)
    return "InvalidRange" in text or "416 Range" in text or "starts at" in text


def _fault_of(what: str, error: Exception) -> Fault:
    """Returns the fault for a failed request. Its message has no part of the response but codes."""
    text = str(error)
    found = _CODE.search(text) or _STATUS.search(text)
    reasons = [reason for reason in _REASONS if reason in text]
    detail = f"S3, {what}: {found[1] if found else ', '.join(reasons) or 'request failed'}"
    if isinstance(error, PermissionDeniedError | UnauthenticatedError | FileNotFoundError):
        return Fault(FaultReason.FAILED, detail)
    if "507 " in text or "StorageFull" in text or "QuotaExceeded" in text:
        return Fault(FaultReason.DISK_FULL, detail)
    return Fault(FaultReason.UNAVAILABLE, detail)

"""Blob batches through the SDK, and raw ones that it does not send."""

from __future__ import annotations

import http.client
import re
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, cast
from urllib.parse import urlsplit

import pytest
from azure.core.exceptions import HttpResponseError
from azure.storage.blob import (
    BlobServiceClient,
    ContainerClient,
    PartialBatchErrorException,
    PremiumPageBlobTier,
    ResourceTypes,
    StandardBlobTier,
    generate_account_sas,
    generate_blob_sas,
    generate_container_sas,
)

from tests.sdk.blob.clients import blob_service
from tests.sdk.harness import ResponseRecorder, refused
from tests.server import ACCOUNT, KEY, WRONG_KEY, Server, unique

HOUR = timedelta(hours=1)


@pytest.fixture
def three(container: ContainerClient) -> list[str]:
    names = ["a", "b/c d", "ü?"]
    for name in names:
        container.upload_blob(name, b"data")
    return names


@pytest.fixture
def other(service: BlobServiceClient) -> Iterator[ContainerClient]:
    with service.create_container(unique("other")) as made:
        yield made
        made.delete_container()


def names(container: ContainerClient) -> list[str]:
    return list(container.list_blob_names())


def statuses(parts: Any) -> list[int]:
    return [part.status_code for part in parts]


def codes(parts: Any) -> list[str]:
    return [part.headers.get("x-ms-error-code", "") for part in parts]


# Requests of the SDK


def test_deletes(container: ContainerClient, three: list[str]) -> None:
    answer = ResponseRecorder()
    parts = list(container.delete_blobs(*three, raw_response_hook=answer))
    assert answer.status == 202
    assert statuses(parts) == [202, 202, 202]
    assert names(container) == []
    ids = {part.headers["x-ms-request-id"] for part in parts} | {answer.headers["x-ms-request-id"]}
    assert len(ids) == 4
    assert {part.headers["x-ms-version"] for part in parts} == {answer.headers["x-ms-version"]}
    assert {part.headers["x-ms-delete-type-permanent"] for part in parts} == {"true"}


def test_tiers(container: ContainerClient, three: list[str]) -> None:
    parts = container.set_standard_blob_tier_blobs(StandardBlobTier.ARCHIVE, *three)
    assert statuses(parts) == [200, 200, 200]
    parts = container.set_standard_blob_tier_blobs(StandardBlobTier.COOL, *three)
    assert statuses(parts) == [202, 202, 202]
    found = [blob.archive_status for blob in container.list_blobs()]
    assert found == ["rehydrate-pending-to-cool"] * 3


def test_tiers_of_page_blobs(container: ContainerClient) -> None:
    for name in ("a", "b"):
        container.get_blob_client(name).create_page_blob(512)
    parts = container.set_premium_page_blob_tier_blobs(PremiumPageBlobTier.P50, "a", "b")
    assert statuses(parts) == [200, 200]
    assert [blob.blob_tier for blob in container.list_blobs()] == ["P50", "P50"]


def test_a_part_that_fails_does_not_stop_the_others(
    container: ContainerClient, three: list[str]
) -> None:
    asked = [three[0], "none", three[1], "none" * 300, three[2]]
    parts = list(container.delete_blobs(*asked, raise_on_any_failure=False))
    assert statuses(parts) == [202, 404, 202, 400, 202]
    assert codes(parts) == ["", "BlobNotFound", "", "OutOfRangeInput", ""]
    assert b"<Code>BlobNotFound</Code>" in parts[1].body()
    assert int(parts[1].headers["Content-Length"]) == len(parts[1].body().rstrip(b"\r\n"))
    assert parts[1].headers["x-ms-request-id"] in parts[1].text()
    assert names(container) == []
    with pytest.raises(PartialBatchErrorException):
        container.delete_blobs(*three)


def test_each_part_has_its_own_conditions(container: ContainerClient, three: list[str]) -> None:
    leased, changed, kept = (container.get_blob_client(name) for name in three)
    lease = leased.acquire_lease(15)
    etag = changed.get_blob_properties().etag
    changed.set_blob_metadata({"a": "b"})
    kept.create_snapshot()
    asked: list[dict[str, Any]] = [
        {"name": three[0]},
        {"name": three[1], "etag": etag},
        {"name": three[2]},
        {"name": three[0], "lease_id": lease.id},
        {"name": three[2], "delete_snapshots": "include"},
    ]
    parts = list(container.delete_blobs(*asked[:3], raise_on_any_failure=False))
    assert statuses(parts) == [412, 412, 409]
    assert codes(parts) == ["LeaseIdMissing", "ConditionNotMet", "SnapshotsPresent"]
    assert statuses(container.delete_blobs(*asked[3:])) == [202, 202]
    assert names(container) == [three[1]]


def test_a_snapshot_is_deleted_alone(container: ContainerClient, three: list[str]) -> None:
    moment = container.get_blob_client("a").create_snapshot()["snapshot"]
    asked = {"name": "a", "snapshot": moment}
    assert statuses(container.delete_blobs(cast(Any, asked))) == [202]
    found = container.list_blobs(include=["snapshots"])
    assert [(blob.name, blob.snapshot) for blob in found] == [(name, None) for name in three]


def test_256_parts_share_their_commits(container: ContainerClient) -> None:
    many = [f"{number:03}" for number in range(256)]
    saved_seconds: list[float] = []
    for _ in range(3):
        begun = time.monotonic()
        for name in many:
            container.upload_blob(name, b"")
        one_by_one = time.monotonic() - begun
        parts = list(container.delete_blobs(*many))
        together = time.monotonic() - begun - one_by_one
        assert statuses(parts) == [202] * 256
        assert names(container) == []
        saved_seconds.append(one_by_one - together)
    # The client itself may pause for a moment.
    assert max(saved_seconds) > 0


def test_257_parts_are_refused(container: ContainerClient) -> None:
    container.upload_blob("0", b"")
    with refused(400, "ExceedsMaxBatchRequestCount"):
        container.delete_blobs(*map(str, range(257)))
    assert names(container) == ["0"]


# Authorization


def sas_of(container: ContainerClient, permission: str, **options: Any) -> str:
    name = container.container_name
    return generate_container_sas(
        ACCOUNT, name, KEY, permission=permission, expiry=datetime.now(UTC) + HOUR, **options
    )


def sas_of_account(permission: str) -> str:
    types = ResourceTypes(service=True, container=True, object=True)
    return generate_account_sas(ACCOUNT, KEY, types, permission, datetime.now(UTC) + HOUR)


def test_a_token_in_every_part(container: ContainerClient, three: list[str]) -> None:
    reader = ContainerClient.from_container_url(container.url, sas_of(container, "r"))
    parts = list(reader.delete_blobs(*three, raise_on_any_failure=False))
    assert codes(parts) == ["AuthorizationPermissionMismatch"] * 3
    deleter = ContainerClient.from_container_url(container.url, sas_of(container, "d"))
    parts = list(deleter.set_standard_blob_tier_blobs("Cool", *three, raise_on_any_failure=False))
    assert codes(parts) == ["AuthorizationPermissionMismatch"] * 3
    assert statuses(deleter.delete_blobs(*three)) == [202] * 3


def test_a_wrong_key_is_refused(server: Server, container: ContainerClient) -> None:
    container.upload_blob("a", b"")
    with blob_service(server, key=WRONG_KEY) as service:
        stranger = service.get_container_client(container.container_name)
        with refused(403, "AuthenticationFailed"):
            stranger.delete_blobs("a")
    assert names(container) == ["a"]


# Raw batches


Sent = tuple[int, str, list[tuple[int, str]]]
"""Status and code of the response, and those of its parts."""
REFUSED: Sent = (202, "", [(400, "InvalidInput")])
"""A malformed batch gets a response with one part."""


def part(target: str, *headers: str, method: str = "DELETE") -> str:
    lines = [f"{method} {target} HTTP/1.1", *headers, "Content-Length: 0", "", ""]
    return "Content-Type: application/http\r\n\r\n" + "\r\n".join(lines)


def send(
    server: Server,
    token: str,
    parts: Sequence[str],
    container: str = "",
    content_type: str = "multipart/mixed; boundary=b",
) -> Sent:
    scope = f"{container}?restype=container&" if container else "?"
    body = "".join(f"--b\r\n{part}\r\n" for part in parts) + "--b--\r\n"
    address = urlsplit(server.endpoints["blob"])
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=20)
    try:
        headers = {"x-ms-version": "2021-12-02", "Content-Type": content_type}
        target = f"/{ACCOUNT}/{scope}comp=batch&{token}"
        connection.request("POST", target, body.encode(), headers)
        answer = connection.getresponse()
        result = answer.read().decode()
    finally:
        connection.close()
    heads = [one.split("\r\n\r\n")[0] for one in result.split("HTTP/1.1 ")[1:]]
    found = [(int(head[:3]), _header(head, "x-ms-error-code")) for head in heads]
    return answer.status, answer.headers.get("x-ms-error-code", ""), found


def _header(head: str, name: str) -> str:
    values = [line.partition(": ")[2] for line in head.split("\r\n") if line.startswith(name)]
    return values[0] if values else ""


def test_the_token_of_the_batch_authorizes_its_parts(
    server: Server, container: ContainerClient, other: ContainerClient
) -> None:
    """Parts without their own token, and only within its scope."""
    for made in (container, other):
        made.upload_blob("a", b"")
        made.upload_blob("b", b"")
    here, there = (f"/{ACCOUNT}/{made.container_name}" for made in (container, other))
    sent = send(server, sas_of_account("d"), [part(f"{here}/a"), part(f"{there}/a")])
    assert sent == (202, "", [(202, ""), (202, "")])
    mismatch = (403, "AuthorizationPermissionMismatch")
    sent = send(server, sas_of_account("rwl"), [part(f"{here}/b"), part(f"{there}/b")])
    assert sent == (202, "", [mismatch, mismatch])
    name, token = container.container_name, sas_of(container, "d")
    assert send(server, token, [part(f"{here}/b")], name) == (202, "", [(202, "")])
    # A part's own token decides, even if that of the batch would be enough.
    weak = generate_blob_sas(
        ACCOUNT, other.container_name, "b", account_key=KEY, permission="r",
        expiry=datetime.now(UTC) + HOUR,
    )  # fmt: skip
    assert send(server, sas_of_account("d"), [part(f"{there}/b?{weak}")])[2] == [mismatch]
    assert (names(container), names(other)) == ([], ["b"])


def test_a_batch_to_a_container_stays_in_it(
    server: Server, container: ContainerClient, other: ContainerClient
) -> None:
    for made in (container, other):
        made.upload_blob("a", b"")
    targets = [f"/{ACCOUNT}/{made.container_name}/a" for made in (container, other)]
    parts, name = [part(target) for target in targets], container.container_name
    assert send(server, sas_of_account("d"), parts, name) == REFUSED
    # A container token allows no batch on the account or on another container.
    token = sas_of(container, "d")
    assert send(server, token, parts)[:2] == (403, "AuthenticationFailed")
    assert send(server, token, parts, other.container_name)[:2] == (403, "AuthenticationFailed")
    assert (names(container), names(other)) == (["a"], ["a"])


def test_the_signature_of_the_batch_does_not_authorize_its_parts(
    container: ContainerClient, three: list[str]
) -> None:
    """Each part is signed separately, and only its signed content counts."""

    def sent(pattern: bytes, replacement: bytes) -> list[str]:
        """Returns the codes of the parts if they are changed before the batch is signed."""

        def change(request: Any) -> None:
            body, count = re.subn(pattern, replacement, request.http_request.body)
            assert count == 1
            request.http_request.set_bytes_body(body)

        return codes(
            container.delete_blobs("none", raw_request_hook=change, raise_on_any_failure=False)
        )

    assert sent(rb"HTTP/1.1", rb"HTTP/1.1") == ["BlobNotFound"]
    assert sent(rb"/none", rb"/a") == ["AuthenticationFailed"]
    assert sent(rb"Authorization: .*\r\n", rb"") == ["NoAuthenticationInformation"]
    assert sent(rb"Content-Length", rb"x-ms-lease-id: a\r\nContent-Length") == [
        "AuthenticationFailed"
    ]
    assert names(container) == three


@pytest.mark.parametrize(
    "parts",
    [
        [],
        [""],
        ["no header at all"],
        [part("nowhere")],
        [part("/second/box/a")],
        [part(f"/{ACCOUNT}/box/a", method="GET")],
        [part(f"/{ACCOUNT}/box?restype=container")],
    ],
)
def test_malformed_batches(server: Server, parts: list[str]) -> None:
    assert send(server, sas_of_account("rwd"), parts) == REFUSED


def test_batches_beyond_the_size_limit(server: Server, container: ContainerClient) -> None:
    container.upload_blob("a", b"")
    target = f"/{ACCOUNT}/{container.container_name}/a"
    token = sas_of_account("d")
    long = part(target, *(f"x-ms-{number}: {'x' * 4000}" for number in range(12)))
    assert send(server, token, [long] * 100) == (413, "RequestBodyTooLarge", [])
    assert send(server, token, [long]) == (202, "", [(202, "")])
    wrong = "application/http"
    sent = send(server, token, [part(target)], content_type=wrong)
    assert sent == (202, "", [(400, "InvalidHeaderValue")])


def test_the_sdk_parses_a_refusal(container: ContainerClient) -> None:
    with pytest.raises(HttpResponseError) as caught:
        container.delete_blobs(*map(str, range(300)))
    assert caught.value.status_code == 400

"""Put Blob, Put Block, Append Block and Put Page from a URL, of this server or another."""

from __future__ import annotations

import base64
import hashlib
import http.client
import threading
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
from azure.core import MatchConditions
from azure.storage.blob import (
    BlobBlock,
    BlobClient,
    BlobSasPermissions,
    BlobServiceClient,
    ContainerClient,
    ContainerSasPermissions,
    ContentSettings,
    PublicAccess,
    StandardBlobTier,
    generate_blob_sas,
    generate_container_sas,
)

from tests.sdk.blob.clients import blob_service
from tests.sdk.harness import ResponseRecorder, refused, with_headers
from tests.server import ACCOUNT, KEY, SECOND_ACCOUNT, SECOND_KEYS, Server, check, served, unique

HOUR = timedelta(hours=1)
MIB = 1 << 20
SMALL = bytes(range(256)) * 4
LARGE = b"".join(number.to_bytes(4, "big") for number in range(300_000))
"""Too large for the ledger."""


def token(blob: BlobClient, permission: str = "r", key: str = KEY, **options: Any) -> str:
    return generate_blob_sas(
        str(blob.account_name),
        blob.container_name,
        blob.blob_name,
        account_key=key,
        permission=BlobSasPermissions.from_string(permission),
        expiry=datetime.now(UTC) + HOUR,
        **options,
    )


def readable(blob: BlobClient, **options: Any) -> str:
    """Returns the URL of a blob with a token to read it."""
    joint = "&" if "?" in blob.url else "?"
    return blob.url + joint + token(blob, **options)


def md5(data: bytes) -> bytearray:
    return bytearray(hashlib.md5(data, usedforsecurity=False).digest())


def content(blob: BlobClient) -> bytes:
    return blob.download_blob().readall()


@pytest.fixture
def blob(container: ContainerClient) -> BlobClient:
    """A blob that does not exist yet."""
    return container.get_blob_client("blob")


@pytest.fixture(params=[SMALL, LARGE], ids=["small", "large"])
def source(request: pytest.FixtureRequest, container: ContainerClient) -> BlobClient:
    made = container.get_blob_client("source ä/%+&")
    made.upload_blob(
        request.param,
        metadata={"is": "source"},
        content_settings=ContentSettings("text/plain", content_language="fr"),
        standard_blob_tier=StandardBlobTier.COOL,
    )
    return made


# Blocks


def test_blocks_of_ranges_make_the_same_blob(source: BlobClient, blob: BlobClient) -> None:
    data, address = content(source), readable(source)
    ranges = [(0, 100), (100, 513), (613, len(data) - 613)]
    for number, (offset, length) in enumerate(ranges):
        blob.stage_block_from_url(str(number), address, offset, length)
    blob.commit_block_list([BlobBlock(str(number)) for number in range(len(ranges))])
    assert content(blob) == data


def test_a_block_of_a_whole_source_returns_its_checksums(
    source: BlobClient, blob: BlobClient
) -> None:
    data = content(source)
    plain, response = ResponseRecorder(), ResponseRecorder()
    blob.stage_block("plain1", data, raw_response_hook=plain)
    blob.stage_block_from_url("whole0", readable(source), raw_response_hook=response)
    assert response.headers["x-ms-content-crc64"] == plain.headers["x-ms-content-crc64"]
    blob.stage_block_from_url(
        "whole1", readable(source), source_content_md5=md5(data), raw_response_hook=response
    )
    assert response.status == 201
    assert response.headers["content-md5"] == base64.b64encode(md5(data)).decode()
    blob.commit_block_list([BlobBlock("whole1")])
    assert content(blob) == data


def test_blocks_outlive_their_source(source: BlobClient, blob: BlobClient) -> None:
    data = content(source)
    blob.stage_block_from_url("one", readable(source))
    source.upload_blob(b"other", overwrite=True)
    source.delete_blob()
    blob.commit_block_list([BlobBlock("one")])
    assert content(blob) == data


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"x_ms_source_content_md5": base64.b64encode(b"x" * 16).decode()}, "Md5Mismatch"),
        ({"x_ms_source_content_crc64": base64.b64encode(b"x" * 8).decode()}, "Crc64Mismatch"),
        ({"x_ms_source_content_md5": "eA=="}, "InvalidMd5"),
        ({"x_ms_source_content_crc64": "eA=="}, "InvalidHeaderValue"),
        ({"x_ms_source_range": "bytes=5-1"}, "InvalidHeaderValue"),
        ({"x_ms_source_range": "lines=1-5"}, "InvalidHeaderValue"),
        ({"x_ms_source_range": "bytes=0-" + "9" * 30}, "InvalidHeaderValue"),
        ({"x_ms_copy_source": "source"}, "InvalidHeaderValue"),
        ({"x_ms_copy_source": "file:///etc/passwd"}, "InvalidHeaderValue"),
        ({"x_ms_copy_source": "http://"}, "InvalidHeaderValue"),
        ({"x_ms_copy_source": "http://x/" + "y" * 33_000}, "InvalidHeaderValue"),
        ({"x_ms_copy_source_authorization": "Basic x"}, "InvalidHeaderValue"),
    ],
)
def test_refused_blocks_are_not_staged(
    source: BlobClient, blob: BlobClient, headers: dict[str, str], code: str
) -> None:
    with refused(400, code):
        blob.stage_block_from_url("one", readable(source), raw_request_hook=with_headers(**headers))
    assert not blob.exists()
    with refused(404, "BlobNotFound"):
        blob.get_block_list("all")


def test_a_right_crc64_is_accepted(source: BlobClient, blob: BlobClient) -> None:
    plain = ResponseRecorder()
    blob.stage_block("one", content(source), raw_response_hook=plain)
    crc = plain.headers["x-ms-content-crc64"]
    hook = with_headers(x_ms_source_content_crc64=crc)
    blob.stage_block_from_url("two", readable(source), raw_request_hook=hook)
    blob.commit_block_list([BlobBlock("two")])
    assert blob.download_blob().readall() == content(source)
    wrong = with_headers(x_ms_source_content_crc64=base64.b64encode(bytes(8)).decode())
    with refused(400, "Crc64Mismatch"):
        blob.stage_block_from_url("two", readable(source), raw_request_hook=wrong)
    both = with_headers(
        x_ms_source_content_crc64=crc,
        x_ms_source_content_md5=base64.b64encode(md5(content(source))).decode(),
    )
    with refused(400, "BothCrc64AndMd5HeaderPresent"):
        blob.stage_block_from_url("two", readable(source), raw_request_hook=both)


def test_a_range_beyond_the_end_is_refused(source: BlobClient, blob: BlobClient) -> None:
    length = len(content(source))
    with refused(416, "CannotVerifyCopySource") as error:
        blob.stage_block_from_url("one", readable(source), length, 10)
    assert error.details["copysourceerrorcode"] == "InvalidRange"


def test_a_request_with_a_body_is_refused(server: Server, source: BlobClient) -> None:
    """The SDK never sends one, so this uses a raw connection, with a token for source and
    destination."""
    both = generate_container_sas(
        ACCOUNT,
        source.container_name,
        KEY,
        permission=ContainerSasPermissions(read=True, write=True),
        expiry=datetime.now(UTC) + HOUR,
    )
    path = f"/{ACCOUNT}/{source.container_name}/made?comp=block&blockid=b25l&{both}"
    headers = {"x-ms-copy-source": readable(source), "x-ms-version": "2021-12-02"}
    for body, expected in ((b"body", 400), (b"", 201)):
        connection = http.client.HTTPConnection(
            urlsplit(server.endpoints["blob"]).netloc, timeout=10
        )
        connection.request("PUT", path, body, {**headers, "Content-Length": str(len(body))})
        assert connection.getresponse().status == expected
        connection.close()


# Appended blocks and pages


def test_blocks_are_appended(source: BlobClient, blob: BlobClient) -> None:
    data = content(source)
    blob.create_append_blob()
    blob.append_block(b"first")
    done = blob.append_block_from_url(
        readable(source), 0, len(data), source_content_md5=md5(data), appendpos_condition=5
    )
    assert (done["blob_append_offset"], done["blob_committed_block_count"]) == ("5", 2)
    blob.append_block_from_url(readable(source), 10, 20)
    assert content(blob) == b"first" + data + data[10:30]
    with refused(412, "AppendPositionConditionNotMet"):
        blob.append_block_from_url(readable(source), appendpos_condition=5)
    with refused(400, "Md5Mismatch"):
        blob.append_block_from_url(readable(source), source_content_md5=md5(b"x"))
    assert len(content(blob)) == 5 + len(data) + 20


def test_appending_to_a_missing_blob(source: BlobClient, blob: BlobClient) -> None:
    with refused(404, "BlobNotFound"):
        blob.append_block_from_url(readable(source))
    blob.upload_blob(b"block")
    with refused(409, "InvalidBlobType"):
        blob.append_block_from_url(readable(source))


def test_pages_are_written(source: BlobClient, blob: BlobClient) -> None:
    data = content(source)
    blob.create_page_blob(2048)
    blob.upload_pages_from_url(readable(source), 512, 512, 100)
    blob.upload_pages_from_url(
        readable(source), 1536, 512, 0, source_content_md5=bytes(md5(data[:512]))
    )
    hole = bytes(512)
    assert content(blob) == hole + data[100:612] + hole + data[:512]
    with refused(400, "Md5Mismatch"):
        blob.upload_pages_from_url(readable(source), 0, 512, 0, source_content_md5=bytes(md5(b"x")))
    # A range of another length, and one beyond the source.
    with refused(400, "InvalidHeaderValue"):
        hook = with_headers(x_ms_source_range="bytes=0-1023")
        blob.upload_pages_from_url(readable(source), 0, 512, 0, raw_request_hook=hook)
    with refused(416, "InvalidRange"):
        blob.upload_pages_from_url(readable(source), 0, 512, len(data) - 1)
    assert content(blob)[:512] == hole


def test_large_pages_and_appended_blocks_are_shared(container: ContainerClient) -> None:
    """Where they are page-aligned; the rest is copied."""
    data = LARGE[: len(LARGE) // 512 * 512] * 2
    source, other = container.get_blob_client("source"), container.get_blob_client("other")
    source.create_page_blob(len(data))
    source.upload_page(data, 0, len(data))
    other.upload_blob(data)
    pages, appended = container.get_blob_client("pages"), container.get_blob_client("appended")
    pages.create_page_blob(4 * MIB)
    appended.create_append_blob()
    expected, length = bytearray(4 * MIB), 2 * MIB - 1024
    for origin, start in ((source, 512), (other, 512), (other, 100), (source, 1)):
        for target in (0, 1024):
            pages.upload_pages_from_url(readable(origin), target, length, start)
            expected[target : target + length] = data[start : start + length]
            assert content(pages) == expected
        appended.append_block_from_url(readable(origin), start, length)
    # From itself, overlapping the source range.
    pages.upload_pages_from_url(readable(pages), 512, 2 * MIB, 0)
    expected[512 : 512 + 2 * MIB] = expected[: 2 * MIB]
    assert content(pages) == expected
    source.delete_blob()
    other.delete_blob()
    assert content(pages) == expected
    assert content(appended) == b"".join(
        data[start : start + length] for start in (512, 512, 100, 1)
    )


def test_pages_and_appended_blocks_are_sources(container: ContainerClient) -> None:
    pages, appended = container.get_blob_client("pages"), container.get_blob_client("appended")
    pages.create_page_blob(1024)
    pages.upload_page(b"p" * 512, 512, 512)
    appended.create_append_blob()
    appended.append_block(b"one")
    appended.append_block(b"two")
    made = container.get_blob_client("made")
    made.upload_blob_from_url(readable(pages))
    assert content(made) == bytes(512) + b"p" * 512
    made.upload_blob_from_url(readable(appended), overwrite=True)
    assert content(made) == b"onetwo"
    made.stage_block_from_url("one", readable(pages), 500, 20)
    made.commit_block_list([BlobBlock("one")])
    assert content(made) == bytes(12) + b"p" * 8


# Whole blobs


def test_put_blob_from_url(source: BlobClient, blob: BlobClient) -> None:
    data = content(source)
    done = blob.upload_blob_from_url(readable(source), metadata={"is": "new"})
    made = blob.get_blob_properties()
    assert content(blob) == data
    assert made.etag == done["etag"]
    assert made.metadata == {"is": "new"}
    assert made.content_settings.content_type == "text/plain"
    assert made.content_settings.content_language == "fr"
    assert made.content_settings.content_md5 == md5(data)
    assert made.blob_tier == "Hot"
    assert blob.get_block_list("all") == ([], [])


def test_the_request_overrides_properties_of_the_source(
    source: BlobClient, blob: BlobClient
) -> None:
    settings = ContentSettings("text/css")
    blob.upload_blob_from_url(
        readable(source), content_settings=settings, standard_blob_tier=StandardBlobTier.COLD
    )
    made = blob.get_blob_properties()
    assert made.content_settings.content_type == "text/css"
    assert made.content_settings.content_language == "fr"
    assert made.blob_tier == "Cold"
    blob.upload_blob_from_url(
        readable(source), include_source_blob_properties=False, overwrite=True
    )
    made = blob.get_blob_properties()
    assert made.content_settings.content_type == "application/octet-stream"
    assert made.content_settings.content_language is None


def test_checksums_of_whole_blobs(source: BlobClient, blob: BlobClient) -> None:
    data, response = content(source), ResponseRecorder()
    with refused(400, "Md5Mismatch"):
        blob.upload_blob_from_url(readable(source), source_content_md5=md5(b"x"))
    assert not blob.exists()
    blob.upload_blob_from_url(
        readable(source), source_content_md5=md5(data), raw_response_hook=response
    )
    assert response.headers["content-md5"] == base64.b64encode(md5(data)).decode()
    assert "x-ms-content-crc64" in response.headers


def test_checksums_of_large_blobs_are_checked_on_request(container: ContainerClient) -> None:
    source, made = container.get_blob_client("source"), container.get_blob_client("made")
    data = LARGE * 4
    source.upload_blob(data)
    for wrong in (
        {"x_ms_source_content_crc64": base64.b64encode(bytes(8)).decode()},
        {"x_ms_source_content_md5": base64.b64encode(bytes(16)).decode()},
    ):
        with refused(400, "Crc64Mismatch" if "crc64" in str(wrong) else "Md5Mismatch"):
            made.upload_blob_from_url(readable(source), raw_request_hook=with_headers(**wrong))
    assert not made.exists()
    made.upload_blob_from_url(readable(source), source_content_md5=md5(data))
    made.upload_blob_from_url(readable(source), overwrite=True)
    assert content(made) == data


def test_a_blob_can_be_its_own_source(source: BlobClient) -> None:
    data = content(source)
    for _ in range(3):
        source.upload_blob_from_url(readable(source), overwrite=True)
    assert content(source) == data


def test_preconditions_of_the_destination(source: BlobClient, blob: BlobClient) -> None:
    blob.upload_blob(b"there")
    with refused(409, "BlobAlreadyExists"):
        blob.upload_blob_from_url(readable(source))
    with refused(412, "ConditionNotMet"):
        blob.upload_blob_from_url(
            readable(source),
            overwrite=True,
            etag='"0x1"',
            match_condition=MatchConditions.IfNotModified,
        )
    lease = blob.acquire_lease()
    with refused(412, "LeaseIdMissing"):
        blob.upload_blob_from_url(readable(source), overwrite=True)
    assert content(blob) == b"there"
    blob.upload_blob_from_url(readable(source), overwrite=True, destination_lease=lease)
    assert content(blob) == content(source)


def test_snapshots_are_sources(source: BlobClient, blob: BlobClient) -> None:
    data = content(source)
    taken = source.create_snapshot()
    source.upload_blob(b"newer", overwrite=True)
    snapshot = BlobClient(
        source.url.partition(f"/{source.container_name}")[0],
        source.container_name,
        source.blob_name,
        snapshot=taken,
        credential=source.credential,
    )
    plain = source.url + f"?snapshot={quote(str(taken['snapshot']))}&" + token(source)
    blob.upload_blob_from_url(plain)
    assert content(blob) == data
    own = snapshot.url + "&" + token(source, snapshot=taken["snapshot"])
    blob.upload_blob_from_url(own, overwrite=True)
    assert content(blob) == data
    source.delete_blob(delete_snapshots="include")
    assert content(blob) == data


# Authorization of the source


def test_sources_must_be_readable(source: BlobClient, blob: BlobClient) -> None:
    """The account key of the request does not count: the source is read anonymously or by its own
    token."""
    response = ResponseRecorder()
    with refused(401, "CannotVerifyCopySource"):
        blob.upload_blob_from_url(source.url, raw_response_hook=response)
    assert response.headers["x-ms-copy-source-status-code"] == "401"
    assert response.headers["x-ms-copy-source-error-code"] == "NoAuthenticationInformation"
    with refused(403, "CannotVerifyCopySource") as details:
        blob.upload_blob_from_url(readable(source, permission="w"))
    assert details.details["copysourceerrorcode"] == "AuthorizationPermissionMismatch"
    with refused(403, "CannotVerifyCopySource") as details:
        blob.upload_blob_from_url(source.url + "?" + token(blob))
    assert details.details["copysourceerrorcode"] == "AuthenticationFailed"
    assert not blob.exists()


def test_forged_and_expired_source_tokens(source: BlobClient, blob: BlobClient) -> None:
    with refused(403, "CannotVerifyCopySource"):
        blob.upload_blob_from_url(readable(source, key=SECOND_KEYS[0]))
    past = datetime.now(UTC) - HOUR
    late = generate_blob_sas(
        ACCOUNT,
        source.container_name,
        source.blob_name,
        account_key=KEY,
        permission="r",
        start=past - HOUR,
        expiry=past,
    )
    with refused(403, "CannotVerifyCopySource"):
        blob.upload_blob_from_url(f"{source.url}?{late}")


def test_the_token_of_the_destination_does_not_authorize_the_source(
    server: Server, source: BlobClient, blob: BlobClient
) -> None:
    limited = BlobClient.from_blob_url(f"{blob.url}?{token(blob, 'rcw')}", retry_total=0)
    with refused(401, "CannotVerifyCopySource"):
        limited.upload_blob_from_url(source.url)
    limited.upload_blob_from_url(readable(source))
    assert content(blob) == content(source)


def test_public_blobs_are_sources(service: BlobServiceClient, blob: BlobClient) -> None:
    public = service.create_container(unique(), public_access=PublicAccess.BLOB)
    shown = public.upload_blob("shown", SMALL)
    blob.upload_blob_from_url(shown.url)
    assert content(blob) == SMALL
    with refused(404, "CannotVerifyCopySource") as error:
        blob.upload_blob_from_url(public.get_blob_client("absent").url, overwrite=True)
    assert error.details["copysourceerrorcode"] == "BlobNotFound"
    public.delete_container()


def test_sources_of_another_account(server: Server, blob: BlobClient) -> None:
    with blob_service(server, SECOND_ACCOUNT, SECOND_KEYS[0]) as other:
        theirs = other.create_container(unique()).upload_blob("theirs", LARGE)
        with refused(401, "CannotVerifyCopySource"):
            blob.upload_blob_from_url(theirs.url)
        blob.upload_blob_from_url(readable(theirs, key=SECOND_KEYS[1]))
        assert content(blob) == LARGE
        with refused(401, "CannotVerifyCopySource"):  # as if it were private
            nowhere = theirs.url.replace(SECOND_ACCOUNT, "nobody")
            blob.upload_blob_from_url(nowhere, overwrite=True)


def test_missing_sources(source: BlobClient, blob: BlobClient) -> None:
    absent = BlobClient(
        source.url.partition(f"/{source.container_name}")[0],
        source.container_name,
        "absent",
        credential=source.credential,
    )
    with refused(404, "CannotVerifyCopySource") as error:
        blob.stage_block_from_url("one", readable(absent))
    assert error.details["copysourceerrorcode"] == "BlobNotFound"
    address = f"{source.url}?snapshot={quote('2020-01-01T00:00:00.0000000Z')}&{token(source)}"
    with refused(404, "CannotVerifyCopySource"):
        blob.stage_block_from_url("one", address)
    with refused(400, "CannotVerifyCopySource"):
        blob.stage_block_from_url("one", f"{source.url}?snapshot=yesterday&{token(source)}")


def test_sources_by_other_names_of_this_server(
    server: Server, source: BlobClient, blob: BlobClient
) -> None:
    port = urlsplit(server.endpoints["blob"]).port
    path = f"{source.container_name}/{quote(source.blob_name)}?{token(source)}"
    for address in (
        f"http://localhost:{port}/{ACCOUNT}/{path}",
        f"HTTP://LocalHost:{port}/{ACCOUNT}/{path}",
        f"http://[::1]:{port}/{ACCOUNT}/{path}",
        f"http://{ACCOUNT}.blob.localhost:{port}/{path}",
        f"https://127.0.0.1:{port}/{ACCOUNT}/{path}",
    ):
        blob.upload_blob_from_url(address, overwrite=True)
        assert content(blob) == content(source)


def test_sources_with_names_at_the_limits(container: ContainerClient, blob: BlobClient) -> None:
    long = container.upload_blob("ä" * 1024, SMALL)
    blob.upload_blob_from_url(readable(long))
    assert content(blob) == SMALL


# Source conditions


def test_source_conditions(source: BlobClient, blob: BlobClient) -> None:
    properties = source.get_blob_properties()
    changed = properties.last_modified
    same = properties.etag
    unmet: list[tuple[int, dict[str, Any]]] = [
        (304, {"source_if_modified_since": changed}),
        (412, {"source_if_unmodified_since": changed - HOUR}),
        (412, {"source_etag": '"0x1"', "source_match_condition": MatchConditions.IfNotModified}),
        (304, {"source_etag": same, "source_match_condition": MatchConditions.IfModified}),
    ]
    met: list[dict[str, Any]] = [
        {"source_if_modified_since": changed - HOUR},
        {"source_if_unmodified_since": changed},
        {"source_etag": properties.etag, "source_match_condition": MatchConditions.IfNotModified},
        {"source_etag": '"0x1"', "source_match_condition": MatchConditions.IfModified},
    ]
    for status, conditions in unmet:
        with refused(status, "CannotVerifyCopySource") as output:
            blob.upload_blob_from_url(readable(source), overwrite=True, **conditions)
        if status == 412:
            assert output.details["copysourceerrorcode"] == "ConditionNotMet"
    assert not blob.exists()
    for conditions in met:
        blob.upload_blob_from_url(readable(source), overwrite=True, **conditions)
    assert content(blob) == content(source)


# Concurrency


def test_a_changing_source_is_read_atomically(container: ContainerClient) -> None:
    """While a blob is replaced repeatedly, every copy is one of its versions."""
    source = container.get_blob_client("source")
    versions = [bytes([number]) * (5 * MIB if number % 2 else 100) for number in range(4)]
    source.upload_blob(versions[0])
    address, stopped = readable(source), threading.Event()

    def replace() -> None:
        number = 0
        while not stopped.is_set():
            number += 1
            source.upload_blob(versions[number % len(versions)], overwrite=True)

    replacing = threading.Thread(target=replace)
    replacing.start()
    try:
        for number in range(20):
            made = container.get_blob_client(f"made-{number}")
            made.upload_blob_from_url(address)
            assert content(made) in versions
            made.stage_block_from_url("one", address)
            made.commit_block_list([BlobBlock("one")])
            assert content(made) in versions
            appended = container.get_blob_client(f"appended-{number}")
            appended.create_append_blob()
            appended.append_block_from_url(address)
            assert content(appended) in versions
    finally:
        stopped.set()
        replacing.join()


def test_reference_counts_are_right(tmp_path_factory: pytest.TempPathFactory) -> None:
    """`etagere check` finds no wrong reference count."""
    directory = tmp_path_factory.mktemp("from_url") / "data"
    with served(directory) as server, blob_service(server) as service:
        container = service.create_container("container")
        source = container.upload_blob("source", LARGE)
        for name in ("one", "two"):
            made = container.get_blob_client(name)
            made.upload_blob_from_url(readable(source))
            made.stage_block_from_url("a", readable(source), 0, 1000)
            made.stage_block_from_url("b", readable(source), 1000, 1000)
        container.get_blob_client("one").commit_block_list([BlobBlock("a"), BlobBlock("b")])
        appended = container.get_blob_client("appended")
        appended.create_append_blob()
        for _ in range(2):
            appended.append_block_from_url(readable(source), 7, len(LARGE) - 20)
        written = sum(path.stat().st_size for path in (directory / "segments").iterdir())
        assert written < 2 * len(LARGE), "bytes were copied that could be shared"
        assert content(container.get_blob_client("one")) == LARGE[:2000]
        source.delete_blob()
        assert content(container.get_blob_client("two")) == LARGE
        assert server.stop() == 0
    result = check(directory)
    assert result.returncode == 0, result.stdout

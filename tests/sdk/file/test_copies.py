"""Copy File, Abort Copy File, and copies between files and blobs."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from azure.core import MatchConditions
from azure.core.exceptions import AzureError
from azure.storage.blob import (
    BlobClient,
    BlobSasPermissions,
    BlobType,
    ContainerClient,
    ContentSettings,
    PublicAccess,
    generate_blob_sas,
)
from azure.storage.fileshare import ContentSettings as FileContentSettings
from azure.storage.fileshare import (
    FileProperties,
    ShareClient,
    ShareFileClient,
    ShareServiceClient,
    generate_file_sas,
)

from tests.sdk.blob.clients import blob_service
from tests.sdk.file.clients import file_service, file_token, sas_client, share_token
from tests.sdk.harness import HOUR, ResponseRecorder, now, refused, with_headers
from tests.sdk.origin import BODY, Origin
from tests.server import (
    ACCOUNT,
    KEY,
    SECOND_ACCOUNT,
    SECOND_KEYS,
    Server,
    check,
    eventually,
    unique,
)

LARGE = bytes(range(256)) * 8_000
CREATED = "2020-02-29T01:02:03.1234567Z"
WRITTEN = "2019-12-31T23:59:59.9999999Z"
CHANGED = "2021-01-01T00:00:00.0000001Z"
TIMES = ("x-ms-file-creation-time", "x-ms-file-last-write-time", "x-ms-file-change-time")
SETTINGS = FileContentSettings(
    content_type="text/plain",
    content_language="fr",
    content_disposition="inline",
    cache_control="no-store",
    content_md5=bytearray(b"0123456789abcdef"),
)


def put(
    share: ShareClient, path: str = "source", data: bytes = LARGE, **options: Any
) -> ShareFileClient:
    file = share.get_file_client(path)
    file.upload_file(data, **options)
    return file


def signed(file: ShareFileClient) -> str:
    """Returns the URL of a file with a token to read it."""
    token = generate_file_sas(
        ACCOUNT, file.share_name, file.file_path, KEY, permission="r", expiry=now() + HOUR
    )
    return f"{file.url}?{token}"


def signed_blob(blob: BlobClient, account: str = ACCOUNT, key: str = KEY) -> str:
    token = generate_blob_sas(
        account,
        blob.container_name,
        blob.blob_name,
        account_key=key,
        permission=BlobSasPermissions(read=True),
        expiry=now() + HOUR,
    )
    return f"{blob.url}?{token}"


def shown_headers(file: ShareFileClient) -> dict[str, str]:
    answer = ResponseRecorder()
    file.get_file_properties(raw_response_hook=answer)
    return dict(answer.headers)


def ranges(file: ShareFileClient) -> list[tuple[int, int]]:
    return [(one.start, one.end) for one in file.list_ranges()]


@pytest.fixture
def source(share: ShareClient) -> ShareFileClient:
    return put(share, content_settings=SETTINGS, metadata={"Its": "own"})


@pytest.fixture
def copy(share: ShareClient) -> ShareFileClient:
    return share.get_file_client("copy")


@pytest.fixture(scope="module")
def container(server: Server) -> Iterator[ContainerClient]:
    with blob_service(server) as blobs:
        yield blobs.create_container(unique())


# Files to files


def test_a_copy_is_complete_at_once(source: ShareFileClient, copy: ShareFileClient) -> None:
    answer = ResponseRecorder()
    result = copy.start_copy_from_url(source.url, raw_response_hook=answer)
    assert (answer.status, result["copy_status"]) == (202, "success")
    assert answer.headers["content-length"] == "0"
    shown = copy.get_file_properties()
    assert shown.copy.id == result["copy_id"] == answer.headers["x-ms-copy-id"]
    assert (shown.etag, shown.last_modified) == (result["etag"], result["last_modified"])
    assert (shown.copy.status, shown.copy.progress) == ("success", f"{len(LARGE)}/{len(LARGE)}")
    assert shown.copy.source == source.url
    assert "x-ms-copy-completion-time" in shown_headers(copy)
    assert dict(shown.content_settings) == dict(SETTINGS)
    assert shown.metadata == {"Its": "own"}
    downloaded = copy.download_file()
    assert (downloaded.readall(), downloaded.properties.copy.id) == (LARGE, shown.copy.id)
    with refused(409, "NoPendingCopyOperation") as error:
        copy.abort_copy(result["copy_id"])
    assert error.message.startswith("There is currently no pending copy operation.")
    source.upload_range(b"changed", 0, 7)
    assert copy.download_file(0, 7).readall() == LARGE[:7]
    copy.set_http_headers(FileContentSettings())
    assert copy.get_file_properties().copy.id is None


def test_metadata_of_a_copy(source: ShareFileClient, copy: ShareFileClient) -> None:
    copy.start_copy_from_url(source.url, metadata={"New": "one"})
    assert copy.get_file_properties().metadata == {"New": "one"}


@pytest.mark.parametrize("version", ["2019-02-02", "2019-07-07", ""])
def test_times_of_a_copy(share: ShareClient, copy: ShareFileClient, version: str) -> None:
    source = share.get_file_client("source")
    source.create_file(
        10, file_creation_time=CREATED, file_last_write_time=WRITTEN, file_change_time=CHANGED
    )
    hook = with_headers(**({"x-ms-version": version} if version else {}))
    copy.start_copy_from_url(source.url, raw_request_hook=hook)
    times = [shown_headers(copy)[name] for name in TIMES]
    if version == "2019-02-02":
        assert times[1:] == [WRITTEN, CHANGED]
        return
    assert len(set(times)) == 1
    assert times[0] > CHANGED


def test_times_and_attributes_of_a_copy_are_set(share: ShareClient, copy: ShareFileClient) -> None:
    source = share.get_file_client("source")
    source.create_file(
        10,
        file_attributes="Hidden",
        file_creation_time=CREATED,
        file_last_write_time=WRITTEN,
        file_change_time=CHANGED,
    )
    copy.start_copy_from_url(
        source.url,
        file_attributes="source",
        file_creation_time="source",
        file_last_write_time="source",
        file_change_time="source",
    )
    shown = shown_headers(copy)
    assert [shown[name] for name in TIMES] == [CREATED, WRITTEN, CHANGED]
    assert shown["x-ms-file-attributes"] == "Hidden | Archive"
    copy.start_copy_from_url(
        source.url,
        file_attributes="Temporary|NoScrubData",
        file_creation_time=WRITTEN,
        file_last_write_time=CREATED,
    )
    shown = shown_headers(copy)
    assert [shown[name] for name in TIMES[:2]] == [WRITTEN, CREATED]
    assert shown["x-ms-file-attributes"] == "Archive | Temporary | NoScrubData"


def test_permissions_of_a_copy(
    files: ShareServiceClient, share: ShareClient, copy: ShareFileClient
) -> None:
    sddl = "O:S-1-5-21-1-2-3-500G:S-1-5-21-1-2-3-513D:(A;;FA;;;SY)"
    source = share.get_file_client("source")
    source.create_file(1, file_permission=sddl)
    key = source.get_file_properties().permission_key
    copy.start_copy_from_url(source.url, file_permission="source")
    assert copy.get_file_properties().permission_key == key
    copy.start_copy_from_url(source.url)
    inherited = copy.get_file_properties().permission_key
    assert inherited != key
    copy.start_copy_from_url(source.url, permission_key=key)
    assert copy.get_file_properties().permission_key == key
    copy.start_copy_from_url(source.url, file_permission=sddl)
    assert copy.get_file_properties().permission_key == key
    other = files.create_share(unique("share"))
    elsewhere = other.get_file_client("copy")
    elsewhere.start_copy_from_url(source.url, file_permission="source")
    copied = elsewhere.get_file_properties().permission_key
    assert other.get_permission_for_share(str(copied)).startswith(sddl)
    other.delete_share()


def test_read_only_destinations(source: ShareFileClient, copy: ShareFileClient) -> None:
    copy.create_file(1, file_attributes="ReadOnly")
    with refused(409, "ReadOnlyAttribute") as error:
        copy.start_copy_from_url(source.url)
    assert "read-only and cannot be modified" in error.message
    copy.start_copy_from_url(source.url, ignore_read_only=True)
    assert copy.download_file().readall() == LARGE


def test_leased_destinations(source: ShareFileClient, copy: ShareFileClient) -> None:
    copy.create_file(1)
    lease = copy.acquire_lease()
    with refused(412, "LeaseIdMissing"):
        copy.start_copy_from_url(source.url)
    with refused(412, "LeaseIdMismatchWithFileOperation"):
        copy.start_copy_from_url(source.url, lease="00000000-0000-0000-0000-000000000001")
    copy.start_copy_from_url(source.url, lease=lease)
    assert copy.get_file_properties().lease.state == "leased"
    with refused(412, "LeaseNotPresentWithFileOperation"):
        source.start_copy_from_url(copy.url, lease=lease)


def test_files_in_snapshots_are_copied(share: ShareClient, copy: ShareFileClient) -> None:
    source = put(share)
    taken = str(share.create_snapshot()["snapshot"])
    source.upload_file(b"other")
    url = f"{source.url}?sharesnapshot={taken}"
    copy.start_copy_from_url(url)
    assert copy.download_file().readall() == LARGE
    assert copy.get_file_properties().copy.source == url
    with refused(404, "CannotVerifyCopySource"):
        copy.start_copy_from_url(f"{source.url}?sharesnapshot=2020-01-01T00:00:00.0000000Z")
    old = ShareClient.from_share_url(share.url, snapshot=taken, credential=share.credential)
    with refused(400, "InvalidQueryParameterValue"):
        old.get_file_client("copy").start_copy_from_url(source.url)


def test_sparse_files_are_copied_without_cost(share: ShareClient, copy: ShareFileClient) -> None:
    source = share.get_file_client("source")
    source.create_file(1 << 40)
    source.upload_range(b"end", (1 << 40) - 3, 3)
    copy.start_copy_from_url(source.url)
    assert copy.get_file_properties().size == 1 << 40
    assert ranges(copy) == [((1 << 40) - 3, (1 << 40) - 1)]


def test_trailing_dots(files: ShareServiceClient, share: ShareClient) -> None:
    dots: dict[str, Any] = {"allow_trailing_dot": True, "allow_source_trailing_dot": True}
    credential = share.credential
    client = ShareClient.from_share_url(share.url, credential=credential, **dots)
    source = client.get_file_client("source.")
    source.upload_file(b"dot")
    put(share, "source", b"no dot")
    client.get_file_client("copy.").start_copy_from_url(source.url)
    assert client.get_file_client("copy.").download_file().readall() == b"dot"
    share.get_file_client("copy.").start_copy_from_url(source.url)
    assert share.get_file_client("copy").download_file().readall() == b"no dot"


# Access


def test_sources_need_a_token_or_the_key_of_their_account(
    server: Server, share: ShareClient, source: ShareFileClient, copy: ShareFileClient
) -> None:
    token = share_token(share, permission="rwcdl")
    holder = sas_client(share, token).get_file_client("copy")
    with refused(401, "CannotVerifyCopySource"):
        holder.start_copy_from_url(source.url)
    assert holder.start_copy_from_url(signed(source))["copy_status"] == "success"
    assert holder.get_file_properties().copy.source == source.url
    second = file_service(server, SECOND_ACCOUNT, SECOND_KEYS[0]).create_share(unique("share"))
    elsewhere = second.get_file_client("copy")
    with refused(401, "CannotVerifyCopySource"):
        elsewhere.start_copy_from_url(source.url)
    older = with_headers(**{"x-ms-version": "2021-06-08"})
    with refused(404, "CannotVerifyCopySource") as error:
        elsewhere.start_copy_from_url(source.url, raw_request_hook=older)
    assert error.message.startswith("The specified resource does not exist.")
    assert elsewhere.start_copy_from_url(signed(source))["copy_status"] == "success"
    assert elsewhere.download_file().readall() == LARGE
    wrong = signed(source).replace("sig=", "sig=A")
    with refused(403, "CannotVerifyCopySource") as error:
        elsewhere.start_copy_from_url(wrong)
    assert "Make sure the value of Authorization header" in error.message
    written = file_token(share, "source", permission="w")
    with refused(403, "CannotVerifyCopySource"):
        elsewhere.start_copy_from_url(f"{source.url}?{written}")
    other = file_token(share, "other")
    with refused(403, "CannotVerifyCopySource"):
        elsewhere.start_copy_from_url(f"{source.url}?{other}")
    second.delete_share()


def test_missing_sources(share: ShareClient, copy: ShareFileClient) -> None:
    for path, code in (("missing", "ResourceNotFound"), ("no/file", "ParentNotFound")):
        with refused(404, code):
            copy.start_copy_from_url(f"{share.url}/{path}")
    with refused(404, "ShareNotFound"):
        copy.start_copy_from_url(f"{share.url}missing/file")
    share.create_directory("directory")
    with refused(404, "ResourceNotFound"):
        copy.start_copy_from_url(f"{share.url}/directory")
    with refused(404, "ResourceNotFound"):
        copy.get_file_properties()


def test_a_caller_that_may_only_create(
    share: ShareClient, source: ShareFileClient, copy: ShareFileClient
) -> None:
    holder = sas_client(share, share_token(share, permission="c")).get_file_client("copy")
    holder.start_copy_from_url(signed(source))
    with refused(403, "AuthorizationPermissionMismatch"):
        holder.start_copy_from_url(signed(source))
    assert copy.download_file().readall() == LARGE


# Blobs to files


@pytest.mark.parametrize(
    ("kind", "size"),
    [
        (BlobType.BLOCKBLOB, 0),
        (BlobType.BLOCKBLOB, 10),
        (BlobType.BLOCKBLOB, len(LARGE)),
        (BlobType.APPENDBLOB, 10),
        (BlobType.APPENDBLOB, len(LARGE)),
    ],
)
def test_blobs_are_copied_to_files(
    container: ContainerClient, copy: ShareFileClient, size: int, kind: BlobType
) -> None:
    settings = ContentSettings("text/plain", None, "fr", "inline", "no-store")
    data = LARGE[:size]
    blob = container.get_blob_client(unique())
    blob.upload_blob(data, kind, metadata={"Its": "own"}, content_settings=settings)
    result = copy.start_copy_from_url(signed_blob(blob))
    assert result["copy_status"] == "success"
    blob.delete_blob()
    shown = copy.get_file_properties()
    assert (shown.metadata, shown.size) == ({"Its": "own"}, size)
    assert shown.content_settings.content_language == "fr"
    assert copy.download_file().readall() == data
    if size:
        copy.upload_range(b"X", 0, 1)
        assert copy.download_file().readall() == b"X" + data[1:]


def test_page_blobs_keep_their_holes(container: ContainerClient, copy: ShareFileClient) -> None:
    blob = container.get_blob_client(unique())
    blob.create_page_blob(1 << 30)
    blob.upload_page(b"x" * 512, 512, 512)
    copy.start_copy_from_url(signed_blob(blob))
    assert ranges(copy) == [(512, 1_023)]


def test_blobs_with_many_blocks_are_copied(
    container: ContainerClient, copy: ShareFileClient
) -> None:
    blob = container.get_blob_client(unique())
    blocks = [f"{number:04}" for number in range(600)]
    for block in blocks:
        blob.stage_block(block, block.encode() * 100)
    blob.commit_block_list(blocks)  # type: ignore[arg-type]
    assert copy.start_copy_from_url(signed_blob(blob))["copy_status"] == "success"
    assert copy.download_file().readall() == blob.download_blob().readall()


def test_private_blobs_need_a_token(
    server: Server, container: ContainerClient, copy: ShareFileClient
) -> None:
    blob = container.upload_blob(unique(), b"private")
    with refused(401, "CannotVerifyCopySource"):
        copy.start_copy_from_url(blob.url)
    public = blob_service(server).create_container(unique(), public_access=PublicAccess.BLOB)
    copy.start_copy_from_url(public.upload_blob("blob", b"public").url)
    assert copy.download_file().readall() == b"public"
    options: dict[str, Any]
    for option in ("file_attributes", "file_creation_time", "file_permission"):
        options = {option: "source"}
        with refused(400, "InvalidHeaderValue"):
            copy.start_copy_from_url(signed_blob(blob), **options)
    with refused(404, "CannotVerifyCopySource"):
        copy.start_copy_from_url(signed_blob(container.get_blob_client("missing")))


# Files to blobs


@pytest.mark.parametrize("size", [0, 10, 2_000_000])
def test_files_are_copied_to_blobs(
    container: ContainerClient, share: ShareClient, size: int
) -> None:
    data = LARGE[:size]
    file = put(share, "source", data, content_settings=SETTINGS, metadata={"Its": "own"})
    blob = container.get_blob_client(unique())
    assert blob.start_copy_from_url(signed(file))["copy_status"] == "success"
    shown = blob.get_blob_properties()
    assert (shown.metadata, shown.size) == ({"Its": "own"}, size)
    assert shown.content_settings.content_language == "fr"
    assert (shown.copy.source, blob.download_blob().readall()) == (file.url, data)
    blob.start_copy_from_url(signed(file), requires_sync=True)
    assert blob.download_blob().readall() == data
    blob.upload_blob_from_url(signed(file), overwrite=True)
    assert blob.download_blob().readall() == data


def test_long_files_are_copied_to_blobs_after_the_response(
    container: ContainerClient, share: ShareClient
) -> None:
    file = share.get_file_client("source")
    file.create_file(20 << 20)
    file.upload_range(b"end", (20 << 20) - 3, 3)
    blob = container.get_blob_client(unique())
    assert blob.start_copy_from_url(signed(file))["copy_status"] == "pending"
    eventually(lambda: blob.get_blob_properties().copy.status == "success", "the end of a copy")
    assert blob.get_blob_properties().size == 20 << 20
    assert blob.download_blob((20 << 20) - 5).readall() == b"\0\0end"


def test_ranges_of_files_are_added_to_blobs(container: ContainerClient, share: ShareClient) -> None:
    file = put(share)
    blob = container.get_blob_client(unique())
    blob.stage_block_from_url("block", signed(file), 5, 1_500_000)
    blob.commit_block_list(["block"])  # type: ignore[list-item]
    assert blob.download_blob().readall() == LARGE[5:1_500_005]
    log = container.get_blob_client(unique())
    log.create_append_blob()
    log.append_block_from_url(signed(file), 7, 1_200_000)
    assert log.download_blob().readall() == LARGE[7:1_200_007]
    pages = container.get_blob_client(unique())
    pages.create_page_blob(2 << 20)
    pages.upload_pages_from_url(signed(file), 512, 1 << 20, 1_024)
    assert pages.download_blob(512, 1 << 20).readall() == LARGE[1_024 : 1_024 + (1 << 20)]


def test_files_need_a_token_to_be_copied_to_blobs(
    container: ContainerClient, share: ShareClient
) -> None:
    file = put(share, "source", b"private")
    blob = container.get_blob_client(unique())
    with refused(401, "CannotVerifyCopySource"):
        blob.start_copy_from_url(file.url)
    with refused(401, "CannotVerifyCopySource"):
        blob.stage_block_from_url("block", file.url)
    with refused(409, "InvalidSourceBlobUrl"):
        blob.start_copy_from_url(signed(file), incremental_copy=True)
    missing = signed(share.get_file_client("missing"))
    with refused(404, "CannotVerifyCopySource"):
        blob.start_copy_from_url(missing)
    with refused(412, "SourceConditionNotMet"):
        blob.start_copy_from_url(
            signed(file),
            source_etag='"0x8D0000000000001"',
            source_match_condition=MatchConditions.IfNotModified,
        )


# Copies from other servers


@pytest.fixture
def pending(own: Server, origin: Origin) -> ShareFileClient:
    """The destination of a copy that is pending until the other server goes on."""
    file = file_service(own).create_share(unique("share")).get_file_client("copy")
    file.create_file(10)
    result = file.start_copy_from_url(origin.url("slow"))
    assert result["copy_status"] == "pending"
    return file


def ended(file: ShareFileClient) -> FileProperties:
    eventually(lambda: file.get_file_properties().copy.status != "pending", "the end of a copy")
    return file.get_file_properties()


def same(server: Server, file: ShareFileClient) -> ShareFileClient:
    """Returns the file at the server's current URL."""
    path = "/".join(file.file_path)
    return file_service(server).get_share_client(file.share_name).get_file_client(path)


def test_copies_from_another_server_are_asynchronous(
    pending: ShareFileClient, origin: Origin, own: Server
) -> None:
    copy = pending
    held = copy.get_file_properties()
    assert (held.copy.status, held.size) == ("pending", 0)
    assert held.copy.source == origin.url("slow")
    share = file_service(own).get_share_client(copy.share_name)
    other = put(share, "other", b"other")
    calls: list[Callable[[], Any]] = [
        lambda: copy.create_file(1),
        lambda: copy.set_file_metadata({"a": "b"}),
        lambda: copy.set_http_headers(FileContentSettings()),
        lambda: copy.resize_file(5),
        copy.delete_file,
        copy.acquire_lease,
        lambda: copy.rename_file("moved"),
        lambda: other.rename_file("copy", overwrite=True),
        lambda: copy.start_copy_from_url(other.url),
        lambda: copy.start_copy_from_url(origin.url("fast")),
        lambda: share.get_file_client("another").start_copy_from_url(copy.url),
    ]
    for call in calls:
        with refused(409, "PendingCopyOperation"):
            call()
    with refused(409, "CopyIdMismatch"):
        copy.abort_copy("00000000-0000-0000-0000-000000000001")
    origin.go_on.set()
    shown = ended(copy)
    assert (shown.copy.status, shown.size) == ("success", len(BODY))
    assert (shown.metadata, shown.content_settings.content_type) == (
        {"from": "elsewhere"},
        "text/origin",
    )
    assert shown.etag != held.etag
    assert copy.download_file().readall() == BODY


def test_a_pending_copy_is_aborted(pending: ShareFileClient, own: Server) -> None:
    copy = pending
    held = copy.get_file_properties()
    answer = ResponseRecorder()
    copy.abort_copy(str(held.copy.id), raw_response_hook=answer)
    assert answer.status == 204
    shown = copy.get_file_properties()
    assert (shown.copy.status, shown.size) == ("aborted", 0)
    assert shown.metadata == {"from": "elsewhere"}
    with refused(409, "NoPendingCopyOperation"):
        copy.abort_copy(str(held.copy.id))
    copy.create_file(3)
    assert copy.get_file_properties().copy.id is None
    assert own.stop() == 0
    assert check(own.directory).returncode == 0


@pytest.mark.parametrize("name", ["missing", "short", "wrong"])
def test_copies_from_another_server_fail(own: Server, origin: Origin, name: str) -> None:
    copy = file_service(own).create_share(unique("share")).get_file_client("copy")
    if name == "missing":
        with refused(404, "CannotVerifyCopySource"):
            copy.start_copy_from_url(origin.url(name))
        return
    copy.start_copy_from_url(origin.url(name))
    shown = ended(copy)
    assert (shown.copy.status, shown.size) == ("failed", 0)
    assert str(shown.copy.status_description).startswith("500 ")


def kill_file_front_end(server: Server) -> None:
    process = server.file_front_end()
    os.kill(process, signal.SIGKILL)
    eventually(lambda: process not in server.children(), "the end of the front end")


def restart_killed(server: Server) -> None:
    server.kill()
    server.start()


def restart_stopped(server: Server) -> None:
    assert server.stop() == 0
    server.start()


@pytest.mark.parametrize("end", [kill_file_front_end, restart_killed, restart_stopped])
def test_an_interrupted_copy_fails(
    own: Server, pending: ShareFileClient, origin: Origin, end: Callable[[Server], None]
) -> None:
    end(own)
    copy = same(own, pending)

    def has_failed() -> bool:
        try:
            return copy.get_file_properties().copy.status == "failed"
        except AzureError:  # before the front end has restarted
            return False

    eventually(has_failed, "the end of a copy")
    left = copy.get_file_properties()
    assert left.size == 0
    assert "OperationCancelled" in str(left.copy.status_description)
    copy.upload_file(b"new")
    origin.go_on.set()
    assert own.stop() == 0
    assert check(own.directory).returncode == 0


def test_servers_that_are_not_listed_are_not_read(copy: ShareFileClient) -> None:
    with refused(403, "CannotVerifyCopySource"):
        copy.start_copy_from_url("http://storage.example/file")

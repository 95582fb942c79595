"""Sources that are read with a bearer token, `x-ms-copy-source-authorization`."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from azure.core.exceptions import HttpResponseError
from azure.storage.blob import BlobBlock, BlobClient

from tests.sdk.delegation.clients import BERT, CONTENT, Clients, user
from tests.sdk.delegation.conftest import OtherServer
from tests.sdk.harness import error_code, refused

PAGE = len(CONTENT)


def put_blob(blob: BlobClient, source: str, authorization: str | None) -> None:
    blob.upload_blob_from_url(source, overwrite=True, source_authorization=authorization)


def put_block(blob: BlobClient, source: str, authorization: str | None) -> None:
    blob.stage_block_from_url("1", source, source_authorization=authorization)
    blob.commit_block_list([BlobBlock("1")])


def append_block(blob: BlobClient, source: str, authorization: str | None) -> None:
    blob.create_append_blob()
    blob.append_block_from_url(source, source_authorization=authorization)


def put_page(blob: BlobClient, source: str, authorization: str | None) -> None:
    blob.create_page_blob(PAGE)
    blob.upload_pages_from_url(source, 0, PAGE, 0, source_authorization=authorization)


def copy(blob: BlobClient, source: str, authorization: str | None) -> None:
    blob.start_copy_from_url(source, requires_sync=True, source_authorization=authorization)


USES: dict[str, Callable[[BlobClient, str, str | None], None]] = {
    "put_blob": put_blob,
    "put_block": put_block,
    "append_block": append_block,
    "put_page": put_page,
    "copy": copy,
}


@pytest.fixture(scope="module")
def source(clients: Clients) -> BlobClient:
    return clients.container().upload_blob("source", CONTENT)


@pytest.mark.parametrize("use", USES)
def test_blobs(clients: Clients, source: BlobClient, use: str) -> None:
    container = clients.container()
    blob = container.get_blob_client("blob")
    for token, status in (
        (user(BERT, "strangers").token, 403),
        ("made-up", 401),
        (None, 401),
        (user(BERT, exp=5).token, 401),
    ):
        authorization = None if token is None else f"Bearer {token}"
        with pytest.raises(HttpResponseError) as caught:
            USES[use](blob, source.url, authorization)
        assert (caught.value.status_code, error_code(caught.value)) == (
            status,
            "CannotVerifyCopySource",
        )
        assert token is None or token not in str(caught.value)
    USES[use](blob, source.url, f"Bearer {user(BERT, 'readers').token}")
    assert blob.download_blob().readall() == CONTENT


def test_files(clients: Clients, source: BlobClient) -> None:
    file = clients.file(bytes(PAGE))
    bearer = f"Bearer {user(BERT, 'readers').token}"
    file.upload_range_from_url(source.url, 0, PAGE, 0, source_authorization=bearer)
    assert file.download_file().readall() == CONTENT
    stranger = f"Bearer {user(BERT, 'strangers').token}"
    with refused(403, "CannotVerifyCopySource"):
        file.upload_range_from_url(source.url, 0, PAGE, 0, source_authorization=stranger)


def test_a_file_as_source_needs_the_intent(clients: Clients) -> None:
    file = clients.file(CONTENT)
    blob = clients.container().get_blob_client("blob")
    bearer = f"Bearer {user(BERT, 'readers').token}"
    with refused(400, "CannotVerifyCopySource"):
        put_blob(blob, file.url, bearer)
    blob.upload_blob_from_url(file.url, source_authorization=bearer, source_token_intent="backup")
    assert blob.download_blob().readall() == CONTENT


def test_copies_in_the_background_have_no_token(clients: Clients, source: BlobClient) -> None:
    """A user may read sources of the same account without one."""
    container = clients.container()
    blob = clients.blobs(user(BERT, "writers")).get_blob_client(container.container_name, "blob")
    blob.start_copy_from_url(source.url)
    assert blob.download_blob().readall() == CONTENT
    with refused(400, "UnsupportedHeader"):
        blob.start_copy_from_url(
            source.url, headers={"x-ms-copy-source-authorization": "Bearer token"}
        )


def test_no_token_is_logged(clients: Clients, source: BlobClient) -> None:
    token = user(BERT, "strangers").token
    with refused(403, "CannotVerifyCopySource") as details:
        put_blob(clients.container().get_blob_client("blob"), source.url, f"Bearer {token}")
    assert token.partition(".")[2][:40] not in clients.server.log_with(details.request_id)


# Other servers


def test_a_token_is_sent_to_the_host_of_the_source_over_https(
    clients: Clients, others: dict[str, OtherServer]
) -> None:
    other = others["https"]
    blob = clients.container().get_blob_client("blob")
    put_blob(blob, f"{other.url}/content", "Bearer for-the-source")
    assert blob.download_blob().readall() == CONTENT
    path, headers = other.asked.pop()
    assert (path, headers["authorization"]) == ("/content", "Bearer for-the-source")
    assert headers["x-ms-version"]
    # Redirects are not followed.
    with refused(400, "CannotVerifyCopySource") as details:
        put_blob(blob, f"{other.url}/redirected", "Bearer for-the-source")
    assert [path for path, _ in other.asked] == ["/redirected"]
    other.asked.clear()
    put_blob(blob, f"{other.url}/content", None)
    assert "authorization" not in other.asked.pop()[1]
    assert "for-the-source" not in clients.server.log_with(details.request_id)


def test_a_token_is_not_sent_in_the_clear(clients: Clients, others: dict[str, OtherServer]) -> None:
    other = others["http"]
    container = clients.container()
    for name, use in USES.items():
        with refused(400, "InvalidHeaderValue"):
            use(container.get_blob_client(name), f"{other.url}/content", "Bearer for-the-source")
    assert other.asked == []
    blob = container.get_blob_client("blob")
    put_blob(blob, f"{other.url}/content", None)
    assert blob.download_blob().readall() == CONTENT

"""Blob tags: set, get, conditions, searches and permissions."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from typing import Any

import pytest
from azure.core import MatchConditions
from azure.core.exceptions import HttpResponseError
from azure.storage.blob import (
    BlobBlock,
    BlobClient,
    BlobServiceClient,
    ContainerClient,
)

from tests.sdk.blob.clients import (
    account_token,
    blob_service,
    blob_token,
    container_token,
    sas_client,
    sas_service,
)
from tests.sdk.harness import ResponseRecorder, refused
from tests.sdk.harness import with_headers as sending
from tests.server import SECOND_ACCOUNT, SECOND_KEYS, Server, unique

ODD = {"+-./:=_ ": "first tag", "tag2": "+-./:=_", " a b": " "}
UNMET = (412, "ConditionNotMet")
MISMATCH = (403, "AuthorizationPermissionMismatch")


@pytest.fixture
def blob(container: ContainerClient) -> BlobClient:
    return container.upload_blob("blob", b"data")


def names(found: Any) -> list[str]:
    return [item.name for item in found]


# Set and get


def test_tags_round_trip(blob: BlobClient) -> None:
    before = blob.get_blob_properties()
    assert blob.get_blob_tags() == {}
    answer = ResponseRecorder()
    blob.set_blob_tags(ODD, raw_response_hook=answer)
    assert answer.status == 204
    assert blob.get_blob_tags() == ODD
    after = blob.get_blob_properties()
    assert (after.etag, after.last_modified) == (before.etag, before.last_modified)
    blob.set_blob_tags({"only": ""})
    assert blob.get_blob_tags() == {"only": ""}
    blob.set_blob_tags({})
    assert blob.get_blob_tags() == {}


def test_a_blob_is_put_with_tags(container: ContainerClient) -> None:
    whole = container.upload_blob("whole", b"data", tags=ODD)
    assert whole.get_blob_tags() == ODD
    container.upload_blob("whole", b"data", overwrite=True)
    assert whole.get_blob_tags() == {}
    listed = container.get_blob_client("listed")
    listed.stage_block("1", b"data")
    listed.commit_block_list([BlobBlock("1")], tags=ODD)
    assert listed.get_blob_tags() == ODD
    tags = {f"{number}" + "n" * 127: "v" * 256 for number in range(10)}
    container.upload_blob("large", b"", tags=tags)
    assert container.get_blob_client("large").get_blob_tags() == tags


def test_a_snapshot_keeps_its_tags(container: ContainerClient) -> None:
    blob = container.upload_blob("blob", b"data", tags={"a": "1"})
    taken = container.get_blob_client("blob", snapshot=str(blob.create_snapshot()["snapshot"]))
    blob.set_blob_tags({"a": "2"})
    assert taken.get_blob_tags() == {"a": "1"}
    assert names(container.find_blobs_by_tags("a = '1'")) == []


@pytest.mark.parametrize(
    ("tags", "code"),
    [
        ({"a": "b*c"}, "InvalidXmlNodeValue"),
        ({"": "value"}, "EmptyTagName"),
        ({f"t{number}": "" for number in range(11)}, "TagsTooLarge"),
        ({"n" * 129: ""}, "TagsTooLarge"),
    ],
)
def test_invalid_tags(blob: BlobClient, tags: dict[str, str], code: str) -> None:
    blob.set_blob_tags({"kept": "1"})
    with refused(400, code):
        blob.set_blob_tags(tags)
    with refused(400, "InvalidHeaderValue" if code == "InvalidXmlNodeValue" else code):
        blob.upload_blob(b"new", overwrite=True, tags=tags)
    assert blob.get_blob_tags() == {"kept": "1"}
    assert blob.download_blob().readall() == b"data"


def test_checksums_of_requests(blob: BlobClient) -> None:
    md5 = base64.b64encode(hashlib.md5(b"other", usedforsecurity=False).digest()).decode()
    with refused(400, "Md5Mismatch"):
        blob.set_blob_tags({"a": "1"}, raw_request_hook=sending(Content_MD5=md5))
    crc = base64.b64encode(bytes(8)).decode()
    with refused(400, "Crc64Mismatch"):
        blob.set_blob_tags({"a": "1"}, raw_request_hook=sending(x_ms_content_crc64=crc))
    assert blob.get_blob_tags() == {}


def test_a_missing_blob_has_no_tags(container: ContainerClient) -> None:
    missing = container.get_blob_client("missing")
    with refused(404, "BlobNotFound"):
        missing.get_blob_tags()
    with refused(404, "BlobNotFound"):
        missing.set_blob_tags({})


# Conditions


def test_leases(blob: BlobClient) -> None:
    lease = blob.acquire_lease()
    with refused(412, "LeaseIdMissing"):
        blob.set_blob_tags({"a": "1"})
    blob.set_blob_tags({"a": "1"}, lease=lease)
    assert blob.get_blob_tags() == {"a": "1"}
    assert blob.get_blob_tags(lease=lease) == {"a": "1"}
    lease.break_lease(0)


def test_conditions_on_the_blob(blob: BlobClient) -> None:
    etag = blob.get_blob_properties().etag
    same: dict[str, Any] = {"etag": etag, "match_condition": MatchConditions.IfNotModified}
    other: dict[str, Any] = {"etag": etag, "match_condition": MatchConditions.IfModified}
    blob.set_blob_tags({"a": "1"}, **same)
    with refused(*UNMET):
        blob.set_blob_tags({"a": "2"}, **other)
    with refused(*UNMET):
        blob.get_blob_tags(**other)
    assert blob.get_blob_tags(**same) == {"a": "1"}
    with refused(400, "ConditionHeadersNotSupported"):
        blob.set_blob_tags({"a": "2"}, raw_request_hook=sending(If_Match=etag))


def test_conditions_on_tags(container: ContainerClient) -> None:
    blob = container.upload_blob("blob", b"data", tags={"a b": "1", "c": "2"})
    met, unmet = "\"a b\" = '1' AND c > '1'", "\"a b\" = '1' AND c > '2'"
    actions: list[Callable[[str], Any]] = [
        lambda asked: blob.download_blob(if_tags_match_condition=asked).readall(),
        lambda asked: blob.get_blob_properties(if_tags_match_condition=asked),
        lambda asked: blob.get_blob_tags(if_tags_match_condition=asked),
        lambda asked: blob.set_blob_metadata({"m": "1"}, if_tags_match_condition=asked),
        lambda asked: blob.create_snapshot(if_tags_match_condition=asked),
        lambda asked: blob.set_blob_tags({"a b": "1", "c": "2"}, if_tags_match_condition=asked),
        lambda asked: blob.delete_blob("include", if_tags_match_condition=asked),
    ]
    for action in actions:
        with refused(*UNMET):
            action(unmet)
        action(met)
    assert not blob.exists()


@pytest.mark.parametrize("asked", ["a", "a = 1", "a = '1' OR", "NOT a = '1'", "(" * 900])
def test_an_empty_condition(blob: BlobClient, asked: str) -> None:
    with refused(400, "InvalidHeaderValue"):
        blob.get_blob_properties(if_tags_match_condition=asked)
    with refused(400, "InvalidHeaderValue"):
        blob.set_blob_tags({}, if_tags_match_condition=asked)


def test_invalid_utf8_in_a_condition(
    server: Server, container: ContainerClient, blob: BlobClient
) -> None:
    """No SDK sends this."""
    token = container_token(container, permission="rwtf")
    path = f"/{container.account_name}/{container.container_name}"
    requests: list[tuple[str, str, dict[str, bytes]]] = [
        ("GET", f"{path}/blob?", {"x-ms-if-tags": b"a = '\xff'"}),
        ("PUT", f"{path}/blob?comp=tags&", {"x-ms-if-tags": b"a <> '\xff'"}),
        ("PUT", f"{path}/blob?", {"x-ms-tags": b"a=\xff", "x-ms-blob-type": b"BlockBlob"}),
        ("GET", f"{path}?restype=container&comp=blobs&where=a%3D'%FF'&", {}),
        ("GET", f"{path}?restype=container&comp=blobs&", {}),
    ]
    connection = HTTPConnection(server.endpoints["blob"].removeprefix("http://"), timeout=10)
    for method, address, headers in requests:
        body = b"<Tags><TagSet/></Tags>" if method == "PUT" else None
        connection.request(method, address + token, body, headers)
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 400, address
    connection.close()
    assert blob.download_blob().readall() == b"data"


def test_one_of_many_conditional_changes_wins(server: Server, container: ContainerClient) -> None:
    container.upload_blob("job", b"", tags={"state": "free"})

    def take(number: int) -> bool:
        with blob_service(server) as service:
            job = service.get_blob_client(container.container_name, "job")
            try:
                job.set_blob_tags({"state": str(number)}, if_tags_match_condition="state = 'free'")
            except HttpResponseError as error:
                assert error.status_code == 412
                return False
            return True

    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(take, range(8)))
    assert sum(won) == 1
    winner = str(won.index(True))
    assert container.get_blob_client("job").get_blob_tags() == {"state": winner}
    assert names(container.find_blobs_by_tags(f"state = '{winner}'")) == ["job"]


# Searches


def test_blobs_are_found_in_their_account(service: BlobServiceClient, server: Server) -> None:
    mark = unique("mark")
    boxes = [service.create_container(unique("tagged")) for _ in range(3)]
    for number, box in enumerate(boxes):
        for name in ("a", "ü <&> \x7f"):
            box.upload_blob(name, b"", tags={"mark": mark, "n": str(number), "x": "y"})
    with blob_service(server, SECOND_ACCOUNT, SECOND_KEYS[0]) as second:
        apart = second.create_container(boxes[0].container_name)
        apart.upload_blob("a", b"", tags={"mark": mark})
        assert len(list(second.find_blobs_by_tags(f"mark = '{mark}'"))) == 1
        apart.delete_container()
    where = f"mark = '{mark}' and n >= '1'"
    pages = [list(page) for page in service.find_blobs_by_tags(where, results_per_page=3).by_page()]
    assert [len(page) for page in pages] == [3, 1]
    result = [(item.container_name, item.name, item.tags) for page in pages for item in page]
    assert result == [
        (box.container_name, name, {"mark": mark, "n": str(number)})
        for number, box in enumerate(boxes)
        if number
        for name in ("a", "ü <&> \x7f")
    ]
    scoped = f"{where} and @container = '{boxes[1].container_name}'"
    assert names(service.find_blobs_by_tags(scoped)) == ["a", "ü <&> \x7f"]
    assert names(boxes[2].find_blobs_by_tags(f"mark='{mark}'", results_per_page=1)) == [
        "a",
        "ü <&> \x7f",
    ]
    boxes[2].get_blob_client("a").delete_blob()
    boxes[1].delete_container()
    assert [item.container_name for item in service.find_blobs_by_tags(where)] == [
        boxes[2].container_name
    ]
    for box in (boxes[0], boxes[2]):
        box.delete_container()
    assert names(service.find_blobs_by_tags(where)) == []


@pytest.mark.parametrize(
    "where", ["a", "a <> '1'", "a = '1' or b = '1'", "@container = 'x'", "(" * 5_000]
)
def test_invalid_search_expressions(container: ContainerClient, where: str) -> None:
    with refused(400, "InvalidQueryParameterValue"):
        list(container.find_blobs_by_tags(where))


def test_markers_and_limits_of_searches(service: BlobServiceClient) -> None:
    found = service.find_blobs_by_tags("a = '1'")
    with refused(400, "OutOfRangeInput"):
        next(found.by_page("no marker"))
    with refused(400, "OutOfRangeQueryParameterValue"):
        list(service.find_blobs_by_tags("a = '1'", results_per_page=-1))
    missing = service.get_container_client(unique("missing"))
    with refused(404, "ContainerNotFound"):
        list(missing.find_blobs_by_tags("a = '1'"))


# Permissions


def test_tag_operations_need_their_own_permission(container: ContainerClient) -> None:
    container.upload_blob("blob", b"data", tags={"a": "1"})
    with_letter = sas_client(container, container_token(container, permission="t"))
    without = sas_client(container, container_token(container, permission="racwdl"))
    assert with_letter.get_blob_client("blob").get_blob_tags() == {"a": "1"}
    with_letter.get_blob_client("blob").set_blob_tags({"a": "2"})
    with refused(*MISMATCH):
        with_letter.upload_blob("new", b"", tags={"a": "1"})
    with refused(*MISMATCH):
        without.get_blob_client("blob").get_blob_tags()
    with refused(*MISMATCH):
        without.get_blob_client("blob").set_blob_tags({})
    for_blob = sas_client(container, blob_token(container, "blob", permission="t"))
    assert for_blob.get_blob_client("blob").get_blob_tags() == {"a": "2"}


def test_writing_with_tags_needs_both_permissions(container: ContainerClient) -> None:
    without = sas_client(container, container_token(container, permission="cw"))
    both = sas_client(container, container_token(container, permission="cwt"))
    with refused(*MISMATCH):
        without.upload_blob("blob", b"data", tags={"a": "1"})
    block = without.get_blob_client("listed")
    block.stage_block("1", b"data")
    with refused(*MISMATCH):
        block.commit_block_list([BlobBlock("1")], tags={"a": "1"})
    assert not container.get_blob_client("blob").exists()
    without.upload_blob("blob", b"data")
    both.upload_blob("blob", b"data", tags={"a": "1"}, overwrite=True)
    both.get_blob_client("listed").commit_block_list([BlobBlock("1")], tags={"a": "1"})
    assert names(container.find_blobs_by_tags("a = '1'")) == ["blob", "listed"]


def test_searches_need_their_own_permission(server: Server, container: ContainerClient) -> None:
    container.upload_blob("blob", b"data", tags={"a": "1"})
    where = f"@container = '{container.container_name}' AND a = '1'"
    finder = sas_client(container, container_token(container, permission="f"))
    assert names(finder.find_blobs_by_tags("a = '1'")) == ["blob"]
    other = sas_client(container, container_token(container, permission="racwdlt"))
    with refused(*MISMATCH):
        list(other.find_blobs_by_tags("a = '1'"))
    found = sas_service(server, account_token("f", "s"))
    assert names(found.find_blobs_by_tags(where)) == ["blob"]
    lacking = sas_service(server, account_token("rwdlt", "sco"))
    with refused(*MISMATCH):
        list(lacking.find_blobs_by_tags(where))

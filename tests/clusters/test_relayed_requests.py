"""Clients of an account that send their requests to a node of another cell."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import http.client
import os
import socket
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import pytest
from azure.core import MatchConditions
from azure.core.credentials import AzureNamedKeyCredential
from azure.core.exceptions import AzureError, HttpResponseError
from azure.storage.blob import (
    AccountSasPermissions,
    BlobBlock,
    BlobServiceClient,
    ContainerClient,
    CorsRule,
    PublicAccess,
    ResourceTypes,
    generate_account_sas,
)
from azure.storage.fileshare import generate_file_sas
from smbprotocol.connection import Connection
from smbprotocol.exceptions import LogonFailure
from smbprotocol.session import Session

from tests.certificates import Certificate, make_certificate
from tests.clusters.cells import Cell, stopped_cells
from tests.clusters.postgresql import PostgresServer
from tests.sdk.harness import HOUR, ORIGIN, ResponseRecorder, now, refused
from tests.sdk.oauth.clients import clients, use
from tests.server import SERVICES, Server, eventually
from tests.smb.client import smb_port
from tests.tokens import unsigned

NAME: Final = "elsewhere"
KEY: Final = base64.b64encode(bytes(range(64))).decode()
CREDENTIAL: Final = AzureNamedKeyCredential(NAME, KEY)
MIB: Final = 1 << 20
_START_SECONDS_MAX: Final = 60.0


class Nodes(NamedTuple):
    """Nodes of three cells. The account is in the second."""

    one: Cell
    two: Cell
    plain: Server
    """A node of the first cell."""
    secure: Server
    """A node of the third cell, with TLS."""
    certificate: Certificate

    def blobs(self, node: Server | None = None, **more: Any) -> BlobServiceClient:
        endpoint = (node or self.plain).endpoints["blob"]
        options = {"credential": CREDENTIAL, "retry_total": 0, **more}
        return BlobServiceClient(f"{endpoint}/{NAME}", **options)


@pytest.fixture(scope="module")
def nodes(
    postgresql_server: PostgresServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Nodes]:
    certificate = make_certificate(tmp_path_factory.mktemp("tls"))
    directory = tmp_path_factory.mktemp("cells")
    flags = ("--oauth", "development")
    with stopped_cells(postgresql_server, directory, "one", "two", "three") as (one, two, three):
        plain, secure = one.node(*flags), three.node(*flags, *certificate.flags)
        for node in (plain, two.node(*flags, "--workers", "2"), secure):
            node.start_seconds_max = _START_SECONDS_MAX
            node.start()
        add_account(two, NAME, KEY)
        yield Nodes(one, two, plain, secure, certificate)


def add_account(cell: Cell, name: str, key: str) -> None:
    added = cell.command("account", "add", name, "--key", key)
    assert added.returncode == 0, added.stderr


def serving_two(nodes: Nodes) -> Server:
    return nodes.two.nodes[0]


def test_all_services(nodes: Nodes) -> None:
    use(clients(nodes.plain, CREDENTIAL, account=NAME), "services")


def test_users_over_tls(nodes: Nodes) -> None:
    use(clients(nodes.secure, unsigned(), nodes.certificate.path, NAME), "users")


def test_an_account_of_no_cell(nodes: Nodes) -> None:
    for service in SERVICES:
        answer = ask(nodes.plain, "GET", "/nobody/?comp=list", service=service)
        assert answer == ask(serving_two(nodes), "GET", "/nobody/?comp=list", service=service)


class Answer(NamedTuple):
    """A response, without what differs between two identical requests."""

    status: int
    reason: str
    headers: dict[str, str]
    length: int


def ask(
    node: Server,
    method: str,
    target: str,
    headers: dict[str, str] | None = None,
    service: str = "blob",
) -> Answer:
    split = urlsplit(node.endpoints[service])
    with contextlib.closing(http.client.HTTPConnection(split.netloc, timeout=20)) as connection:
        connection.request(method, target, headers={"Host": "localhost", **(headers or {})})
        response = connection.getresponse()
        body = response.read()
        shown = {
            name: "-" if name.lower() in ("date", "x-ms-request-id") else value
            for name, value in response.getheaders()
        }
        return Answer(response.status, response.reason, shown, len(body))


def test_large_bodies(nodes: Nodes) -> None:
    data = os.urandom(MIB) * 64
    container = nodes.blobs(max_single_put_size=128 * MIB).create_container("large")
    before = memory_kib(nodes.plain)
    uploaded = container.get_blob_client("one").upload_blob(data, max_concurrency=1)
    direct = nodes.blobs(serving_two(nodes)).get_blob_client("large", "one")
    assert direct.get_blob_properties().etag == uploaded["etag"]
    downloaded = container.download_blob("one", max_concurrency=1).readall()
    assert hashlib.sha256(downloaded).digest() == hashlib.sha256(data).digest()
    assert memory_kib(nodes.plain) - before < 48 << 10


def memory_kib(node: Server) -> int:
    status = Path(f"/proc/{node.front_end()}/status").read_text("ascii")
    return int(status.partition("VmHWM:")[2].split()[0])


def test_responses_are_those_of_the_other_cell(nodes: Nodes) -> None:
    name = "public"
    container = nodes.blobs().create_container(name, public_access=PublicAccess.BLOB)
    container.upload_blob("b", b"0123456789", metadata={"Name": "value"})
    nodes.blobs().set_service_properties(
        cors=[CorsRule([ORIGIN], ["GET"], max_age_in_seconds=5, exposed_headers=["*"])]
    )
    asked: tuple[tuple[str, str, dict[str, str]], ...] = (
        ("GET", f"/{NAME}/{name}/b", {}),
        ("GET", f"/{NAME}/{name}/b", {"Range": "bytes=2-4", "Origin": ORIGIN}),
        ("GET", f"/{NAME}/{name}/b", {"If-None-Match": "*", "x-ms-version": "2021-12-02"}),
        ("HEAD", f"/{NAME}/{name}/b", {"x-ms-client-request-id": "mine"}),
        ("HEAD", f"/{NAME}/{name}/missing", {}),
        ("GET", f"/{NAME}/{name}/missing", {"x-ms-version": "not a version"}),
        ("GET", f"/{NAME}/{name}?restype=container&comp=list", {}),
        ("PUT", f"/{NAME}/{name}/b", {}),
        ("POST", f"/{NAME}/{name}/b?comp=nothing", {}),
        (
            "OPTIONS",
            f"/{NAME}/{name}/b",
            {"Origin": ORIGIN, "Access-Control-Request-Method": "GET"},
        ),
        ("OPTIONS", f"/{NAME}/{name}/b", {"Origin": "https://no.example"}),
        ("GET", f"/{NAME}/{name}/b", {"Host": f"{NAME}.blob.localhost"}),
        ("GET", f"/{name}/b", {"Host": f"{NAME}.blob.localhost"}),
    )
    for method, target, headers in asked:
        expected = ask(serving_two(nodes), method, target, headers)
        assert ask(nodes.plain, method, target, headers) == expected, (method, target, headers)


def test_both_nodes_log_the_id_that_the_client_gets(nodes: Nodes) -> None:
    split = urlsplit(nodes.plain.endpoints["blob"])
    with contextlib.closing(http.client.HTTPConnection(split.netloc, timeout=20)) as connection:
        connection.request("GET", f"/{NAME}/public/missing")
        request_id = connection.getresponse().getheader("x-ms-request-id") or "none"
    for node, operation in ((nodes.plain, "relayed_request"), (serving_two(nodes), "get_blob")):
        (line,) = [each for each in node.log_with(request_id).splitlines() if request_id in each]
        assert f" operation={operation} " in line
        assert " 127.0.0.1 GET " in line


def sas(**limits: Any) -> str:
    return generate_account_sas(
        NAME,
        KEY,
        ResourceTypes(service=True, container=True, object=True),
        AccountSasPermissions(read=True, list=True),
        now() + HOUR,
        **limits,
    )


def test_limits_of_tokens(nodes: Nodes) -> None:
    """The node knows the address of the client, and whether it uses TLS."""

    def names(node: Server, token: str, **options: Any) -> list[str]:
        client = nodes.blobs(node, credential=token, **options)
        return [container.name for container in client.list_containers("large")]

    verified = {"connection_verify": str(nodes.certificate.path)}
    assert names(nodes.plain, sas(ip="127.0.0.1")) == names(nodes.plain, sas())
    with refused(403, "AuthorizationSourceIPMismatch"):
        names(nodes.plain, sas(ip="10.0.0.1"))
    with refused(403, "AuthorizationProtocolMismatch"):
        names(nodes.plain, sas(protocol="https"))
    assert names(nodes.secure, sas(protocol="https"), **verified) == names(nodes.plain, sas())
    # Headers say nothing about either.
    spoofed = {
        "X-Forwarded-For": "10.0.0.1",
        "Forwarded": "for=10.0.0.1;proto=https",
        "X-Forwarded-Proto": "https",
    }
    query = f"comp=list&{sas(ip='10.0.0.1', protocol='https')}"
    assert ask(nodes.plain, "GET", f"/{NAME}/?{query}", spoofed).status == 403


def test_batches_and_leases(nodes: Nodes) -> None:
    container = nodes.blobs().create_container("batches")
    for name in ("a", "b", "c"):
        container.upload_blob(name, name.encode())
    lease = container.get_blob_client("a").acquire_lease()
    answers = list(container.delete_blobs("a", "b", "missing", raise_on_any_failure=False))
    assert [answer.status_code for answer in answers] == [412, 202, 404]
    recorder = ResponseRecorder()
    container.get_blob_client("a").delete_blob(lease=lease, raw_response_hook=recorder)
    assert recorder.status == 202


def test_clients_that_wait_before_they_send(nodes: Nodes) -> None:
    """With Expect: 100-continue, the body is sent when the other node reads it; one that is refused
    is not sent at all."""
    container = nodes.blobs().create_container("expecting")
    path = urlsplit(container.url).path
    expect = "Expect: 100-continue"
    with begin_upload(nodes.plain, f"{path}/b", "Content-Length: 5", expect) as connection:
        assert connection.recv(1_000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(b"abcde")
        assert connection.recv(1_000).startswith(b"HTTP/1.1 201 ")
    assert container.download_blob("b").readall() == b"abcde"
    refused_early = (f"Content-Length: {MIB}", "If-None-Match: *", expect)
    with begin_upload(nodes.plain, f"{path}/b", *refused_early) as connection:
        assert connection.recv(1_000).startswith(b"HTTP/1.1 409 ")


def test_many_clients(nodes: Nodes) -> None:
    container = nodes.blobs().create_container("many")

    def use_blob(number: int) -> None:
        with nodes.blobs() as service:
            blob = service.get_blob_client("many", str(number))
            blob.upload_blob(b"%d" % number * 100)
            assert blob.download_blob().readall() == b"%d" % number * 100

    with ThreadPoolExecutor(50) as pool:
        list(pool.map(use_blob, range(200)))
    assert len(list(container.list_blob_names())) == 200


def test_copies_from_another_cell(nodes: Nodes) -> None:
    """A source in another cell is read as a client would read it."""
    other_key = base64.b64encode(bytes(64)).decode()
    add_account(nodes.one, "nearby", other_key)
    endpoint = nodes.plain.endpoints["blob"]
    near = BlobServiceClient(
        f"{endpoint}/nearby", credential=AzureNamedKeyCredential("nearby", other_key), retry_total=0
    )
    source = nodes.blobs().create_container("sources")
    data = os.urandom(3 * MIB)
    source.upload_blob("s", data, metadata={"a": "b"})
    url = f"{endpoint}/{NAME}/sources/s"
    target = near.create_container("targets")
    for_copy = f"{url}?{sas()}"
    copied = target.get_blob_client("copied")
    copied.start_copy_from_url(for_copy)
    eventually(lambda: copied.get_blob_properties().copy.status == "success", "the copy to be made")
    assert copied.download_blob().readall() == data
    assert copied.get_blob_properties().metadata == {"a": "b"}
    put = target.get_blob_client("put")
    put.upload_blob_from_url(for_copy)
    assert put.download_blob().readall() == data
    staged = target.get_blob_client("staged")
    staged.stage_block_from_url("YQ==", for_copy, source_offset=MIB, source_length=MIB)
    staged.commit_block_list([BlobBlock("YQ==")])
    assert staged.download_blob().readall() == data[MIB : 2 * MIB]
    with refused(401, "CannotVerifyCopySource"):
        target.get_blob_client("none").upload_blob_from_url(url)
    with refused(404, "CannotVerifyCopySource"):
        missing = f"{endpoint}/{NAME}/sources/missing?{sas()}"
        target.get_blob_client("none").upload_blob_from_url(missing)
    unmet: Any = {"source_etag": '"1"', "source_match_condition": MatchConditions.IfNotModified}
    with refused(412, "CannotVerifyCopySource"):
        target.get_blob_client("none").upload_blob_from_url(for_copy, **unmet)
    # The other way round, and through a node of the wrong cell.
    back = ContainerClient.from_container_url(target.url, credential=near.credential)
    back.set_container_access_policy({}, public_access=PublicAccess.BLOB)
    returned = source.get_blob_client("returned")
    returned.upload_blob_from_url(f"{endpoint}/nearby/targets/put")
    assert returned.download_blob().readall() == data


def test_smb_clients_have_to_use_a_node_of_the_cell(nodes: Nodes) -> None:
    connection = Connection(uuid.uuid4(), "127.0.0.1", smb_port(nodes.plain))
    connection.connect()
    with pytest.raises(LogonFailure):
        Session(connection, NAME, KEY).connect()
    connection.disconnect()
    nodes.plain.log_with(f"SMB clients of account {NAME} have to use a node of cell two")


def test_copies_of_files_from_another_cell(nodes: Nodes) -> None:
    far = clients(nodes.plain, CREDENTIAL, account=NAME).file.create_share("far")
    far.get_file_client("f").upload_file(b"bytes")
    key = base64.b64encode(bytes(range(1, 65))).decode()
    add_account(nodes.one, "closeby", key)
    credential = AzureNamedKeyCredential("closeby", key)
    near = clients(nodes.plain, credential, account="closeby").file.create_share("near")
    token = generate_file_sas(NAME, "far", ["f"], KEY, "r", now() + HOUR)
    source = f"{nodes.plain.endpoints['file']}/{NAME}/far/f?{token}"
    copied = near.get_file_client("copied")
    copied.start_copy_from_url(source)
    eventually(lambda: copied.get_file_properties().copy.status == "success", "the copy to be made")
    assert copied.download_file().readall() == b"bytes"
    ranged = near.get_file_client("ranged")
    ranged.create_file(5)
    ranged.upload_range_from_url(source, offset=1, length=3, source_offset=2)
    assert ranged.download_file().readall() == b"\0tes\0"


def test_a_cell_whose_node_is_killed(nodes: Nodes) -> None:
    """Requests under way fail, and are served again when the node is back."""
    node = serving_two(nodes)
    blobs = nodes.blobs()
    container = blobs.create_container("gone")
    container.upload_blob("b", b"x")
    container.upload_blob("large", bytes(64 * MIB))
    stream = nodes.blobs(max_single_get_size=MIB).get_blob_client("gone", "large").download_blob()
    path = f"{urlsplit(container.url).path}/c"
    upload = begin_upload(nodes.plain, path, f"Content-Length: {100 * MIB}")
    upload.sendall(bytes(20 * MIB))
    node.kill()
    with pytest.raises(AzureError):
        stream.readall()
    # Not all of it was sent, so it is certain that nothing was changed.
    assert upload.recv(100).startswith(b"HTTP/1.1 503 ")
    upload.close()
    with refused(503, "ServerBusy"):
        container.upload_blob("c", b"y")
    with refused(503, "ServerBusy"):
        container.download_blob("b")
    node.start()

    def is_served() -> bool:
        with contextlib.suppress(HttpResponseError):
            return container.download_blob("b").readall() == b"x"
        return False

    eventually(is_served, "the other cell to be reached")
    with refused(404, "BlobNotFound"):
        container.download_blob("c")
    assert "Traceback" not in nodes.plain.log()


def begin_upload(node: Server, path: str, *headers: str) -> socket.socket:
    """Sends the head of a Put Blob; returns the connection."""
    split = urlsplit(node.endpoints["blob"])
    token = generate_account_sas(
        NAME,
        KEY,
        ResourceTypes(object=True),
        AccountSasPermissions(write=True, create=True),
        now() + HOUR,
    )
    head = (
        f"PUT {path}?{token} HTTP/1.1",
        f"Host: {split.netloc}",
        "x-ms-version: 2021-12-02",
        "x-ms-blob-type: BlockBlob",
        *headers,
    )
    connection = socket.create_connection((split.hostname or "", split.port or 0), 20)
    connection.sendall("\r\n".join([*head, "", ""]).encode())
    return connection

"""Keys and certificates of a cluster: a change on one node applies on the other at once."""

from __future__ import annotations

import os
import signal
import ssl
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from azure.core.exceptions import ClientAuthenticationError
from azure.storage.blob import BlobClient
from azure.storage.fileshare import ShareFileClient, ShareServiceClient
from smbprotocol.exceptions import LogonFailure

from tests.certificates import Certificate, make_certificate
from tests.clusters.postgresql import PostgresServer
from tests.clusters.running import Cluster, cluster
from tests.sdk.delegation.clients import CONTENT, Clients, blob_sas, file_sas, user
from tests.server import Server, eventually, unique
from tests.smb.client import SmbClient, smb_client


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return make_certificate(tmp_path_factory.mktemp("certificate"))


@pytest.fixture(scope="module")
def nodes(
    postgresql_server: PostgresServer,
    tmp_path_factory: pytest.TempPathFactory,
    certificate: Certificate,
) -> Iterator[Cluster]:
    flags = ("--oauth", "development", "--oauth-role", "roles:owners=owner", *certificate.flags)
    directory = tmp_path_factory.mktemp("cluster")
    with cluster(postgresql_server, directory, 2, *flags) as running:
        yield running


def test_user_delegation_keys(nodes: Cluster, certificate: Certificate) -> None:
    one, other = (Clients(node, str(certificate.path)) for node in nodes.nodes)
    blob = one.container().upload_blob("b", CONTENT)
    file = one.file(CONTENT)
    tokens = {
        "blob": blob_sas(blob, one.key("blob", user()), "r"),
        "file": file_sas(file, one.key("file", user()), "r"),
    }

    def read(clients: Clients) -> list[bytes]:
        server, options = clients.server, clients.options
        same_blob = BlobClient(
            server.url("blob"), blob.container_name, "b", credential=tokens["blob"], **options
        )
        same_file = ShareFileClient(
            server.url("file"), file.share_name, "file", credential=tokens["file"], **options
        )
        return [same_blob.download_blob().readall(), same_file.download_file().readall()]

    assert read(other) == read(one) == [CONTENT, CONTENT]
    revoked = nodes.command("account", "revoke-delegation-keys", blob.account_name or "")
    assert revoked.returncode == 0, revoked.stderr
    for clients in (one, other):
        with pytest.raises(ClientAuthenticationError):
            read(clients)


def test_account_keys_of_smb_clients(nodes: Cluster, certificate: Certificate) -> None:
    name = f"smb{os.getpid()}"
    assert nodes.command("account", "add", name).returncode == 0
    first, _ = nodes.account_keys(name)
    share = unique("share")
    credential = {"account_name": name, "account_key": first}
    ShareServiceClient(
        nodes.nodes[0].url("file", name), credential, connection_verify=str(certificate.path)
    ).create_share(share)
    for node in nodes.nodes:
        with smb_client(node, share, account=name, key=first) as client:
            client.write_file("f", node.directory.name.encode())
    rotated = nodes.command("account", "rotate", name, "1")
    assert rotated.returncode == 0, rotated.stderr
    second, _ = nodes.account_keys(name)
    for node in nodes.nodes:
        with pytest.raises(LogonFailure):
            SmbClient(node, share, account=name, key=first)
        with smb_client(node, share, account=name, key=second) as client:
            assert client.read_file("f") == nodes.nodes[1].directory.name.encode()


def presented(node: Server, service: str) -> str:
    """Returns the certificate that a service presents."""
    address = urlsplit(node.endpoints[service])
    assert address.hostname is not None
    assert address.port is not None
    return ssl.get_server_certificate((address.hostname, address.port), timeout=10)


def test_certificates_are_reloaded(nodes: Cluster, certificate: Certificate) -> None:
    """By each node for itself, even if it forwards the connections of clients that use files."""
    old = certificate.path.read_text("ascii")
    make_certificate(certificate.path.parent)
    new = certificate.path.read_text("ascii")
    services = ("blob", "queue", "table", "file")
    one, other = nodes.nodes
    assert {presented(node, service) for node in nodes.nodes for service in services} == {old}
    os.kill(one.pid, signal.SIGHUP)
    eventually(lambda: presented(one, "blob") == new, "the new certificate")
    assert presented(other, "blob") == old
    os.kill(other.pid, signal.SIGHUP)
    eventually(
        lambda: {presented(node, service) for node in nodes.nodes for service in services} == {new},
        "the new certificate on both nodes",
    )
    assert_forwards(one, other, certificate.path)


def assert_forwards(one: Server, other: Server, certificate: Path) -> None:
    """Asserts that files are still served on both nodes."""
    file = Clients(one, str(certificate)).file(CONTENT)
    same = Clients(other, str(certificate)).shares().get_share_client(file.share_name)
    assert same.get_file_client("file").download_file().readall() == CONTENT

"""Service properties of the file service: metrics, CORS, protocols, retention of shares."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from azure.storage.fileshare import (
    CorsRule,
    Metrics,
    RetentionPolicy,
    ShareProtocolSettings,
    ShareServiceClient,
    ShareSmbSettings,
    SmbMultichannel,
)

from tests.sdk.file.clients import file_service
from tests.sdk.file.service_settings import (
    get_service_properties,
    keep_deleted_shares,
    set_service_property,
)
from tests.sdk.harness import ResponseRecorder, refused, with_headers
from tests.server import SECOND_ACCOUNT, SECOND_KEYS, Server

OFF = "<RetentionPolicy><Enabled>false</Enabled></RetentionPolicy>"
DEFAULTS = (
    "<StorageServiceProperties>"
    f"<HourMetrics><Version>1.0</Version><Enabled>false</Enabled>{OFF}</HourMetrics>"
    f"<MinuteMetrics><Version>1.0</Version><Enabled>false</Enabled>{OFF}</MinuteMetrics>"
    "<Cors />"
    "<ProtocolSettings><SMB><Multichannel><Enabled>false</Enabled></Multichannel></SMB>"
    "</ProtocolSettings></StorageServiceProperties>"
)


@pytest.fixture
def service(server: Server) -> Iterator[ShareServiceClient]:
    """The second account, whose properties no other test depends on."""
    with file_service(server, SECOND_ACCOUNT, SECOND_KEYS[0]) as client:
        yield client
        client.set_service_properties(
            Metrics(),
            Metrics(),
            [],
            ShareProtocolSettings(
                smb=ShareSmbSettings(multichannel=SmbMultichannel(enabled=False))
            ),
        )


def test_properties_are_merged(service: ShareServiceClient) -> None:
    before = service.get_service_properties()
    assert before["hour_metrics"].enabled is False
    assert before["cors"] == []
    assert before["protocol"].smb.multichannel.enabled is False
    answer = ResponseRecorder()
    retention = RetentionPolicy(enabled=True, days=5)
    service.set_service_properties(
        hour_metrics=Metrics(enabled=True, include_apis=True, retention_policy=retention),
        raw_response_hook=answer,
    )
    assert answer.status == 202
    rule = CorsRule(["https://a.example"], ["GET"], max_age_in_seconds=7)
    service.set_service_properties(cors=[rule])
    smb = ShareSmbSettings(multichannel=SmbMultichannel(enabled=True))
    service.set_service_properties(protocol=ShareProtocolSettings(smb=smb))
    shown = service.get_service_properties()
    assert shown["hour_metrics"].retention_policy.days == 5
    assert shown["minute_metrics"].enabled is False
    assert [each.allowed_origins for each in shown["cors"]] == ["https://a.example"]
    assert shown["protocol"].smb.multichannel.enabled is True


def test_more_than_five_cors_rules(service: ShareServiceClient) -> None:
    rules = [CorsRule(["*"], ["GET"])] * 6
    with refused(400, "InvalidXmlDocument"):
        service.set_service_properties(cors=rules)
    assert service.get_service_properties()["cors"] == []


def test_the_document_of_older_versions(server: Server) -> None:
    assert get_service_properties(server, "2020-02-10", SECOND_ACCOUNT) == DEFAULTS
    older = get_service_properties(server, "2019-12-12", SECOND_ACCOUNT)
    assert older == DEFAULTS.replace(
        DEFAULTS[DEFAULTS.index("<Prot") : DEFAULTS.index("</Stor")], ""
    )
    newest = get_service_properties(server, "2026-10-06", SECOND_ACCOUNT)
    assert newest.count("<EncryptionInTransit><Required>false</Required>") == 2


def test_settings_of_protocols_are_elements_of_their_own(server: Server) -> None:
    for element in (
        "<SMB><Versions>SMB3.0;SMB3.1.1</Versions></SMB>",
        "<SMB><ChannelEncryption>AES-256-GCM</ChannelEncryption>"
        "<AuthenticationMethods>NTLMv2;Kerberos</AuthenticationMethods>"
        "<KerberosTicketEncryption>AES-256</KerberosTicketEncryption></SMB>",
        "<NFS><EncryptionInTransit><Required>true</Required></EncryptionInTransit></NFS>",
        "<SMB><EncryptionInTransit><Required>true</Required></EncryptionInTransit></SMB>",
    ):
        status = set_service_property(server, f"<ProtocolSettings>{element}</ProtocolSettings>")
        assert status == 202
    shown = get_service_properties(server, "2026-10-06")
    assert "<Versions>SMB3.0;SMB3.1.1</Versions>" in shown
    assert "<ChannelEncryption>AES-256-GCM</ChannelEncryption>" in shown
    assert shown.count("<Required>true</Required>") == 2
    for element in (
        "<SMB><Versions>SMB1.0</Versions></SMB>",
        "<SMB><Multichannel><Enabled>perhaps</Enabled></Multichannel></SMB>",
        "<SMB><Multichannel /></SMB>",
        "<SMB><Compression /></SMB>",
        "<NFS><Multichannel /></NFS>",
        "<FTP />",
    ):
        status = set_service_property(server, f"<ProtocolSettings>{element}</ProtocolSettings>")
        assert status == 400
    assert get_service_properties(server, "2026-10-06") == shown


def test_retention_of_deleted_shares(server: Server) -> None:
    keep_deleted_shares(server, 30)
    shown = get_service_properties(server, "2026-10-06")
    policy = "<Enabled>true</Enabled><Days>30</Days>"
    assert f"<ShareDeleteRetentionPolicy>{policy}</ShareDeleteRetentionPolicy>" in shown
    for content in (
        "<Enabled>true</Enabled>",
        "<Enabled>true</Enabled><Days>0</Days>",
        "<Enabled>true</Enabled><Days>366</Days>",
        "<Enabled>true</Enabled><Days>1</Days><AllowPermanentDelete>true</AllowPermanentDelete>",
    ):
        element = f"<ShareDeleteRetentionPolicy>{content}</ShareDeleteRetentionPolicy>"
        assert set_service_property(server, element) == 400
    assert get_service_properties(server, "2026-10-06") == shown
    keep_deleted_shares(server, 0)
    assert "ShareDeleteRetentionPolicy" not in get_service_properties(server, "2026-10-06")


def test_elements_of_other_services(server: Server, service: ShareServiceClient) -> None:
    for element in (
        "<DefaultServiceVersion>2020-02-10</DefaultServiceVersion>",
        "<DeleteRetentionPolicy><Enabled>false</Enabled></DeleteRetentionPolicy>",
        "<StaticWebsite><Enabled>false</Enabled></StaticWebsite>",
    ):
        assert set_service_property(server, element) == 400
    with refused(400, "UnsupportedXmlNode"):
        smb = ShareSmbSettings(multichannel=SmbMultichannel(enabled=True))
        service.set_service_properties(
            protocol=ShareProtocolSettings(smb=smb),
            raw_request_hook=with_headers(x_ms_version="2019-02-02"),
        )

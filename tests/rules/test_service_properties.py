"""Service properties: each limit at and beyond it, and merging."""

from __future__ import annotations

import msgspec
import pytest

from etagere.model.service import (
    CorsRule,
    Logging,
    Metrics,
    NfsSettings,
    ProtocolSettings,
    RetentionPolicy,
    ServiceProperties,
    ServicePropertiesChange,
    SmbSettings,
    StaticWebsite,
)
from etagere.rules.service_properties import check, elements, merge

NEWEST = "2026-02-06"
Change = ServicePropertiesChange
INVALID, MISSING = "InvalidXmlNodeValue", "MissingRequiredXmlNode"
NO_DOCUMENT = "InvalidXmlDocument"
OFF = RetentionPolicy()


def verdict(change: Change, service: str = "blob", version: str = NEWEST) -> object:
    """Returns None, or the error code and the node that it names, if any."""
    refusal = check(change, service, version)
    return None if refusal is None else (refusal.code, refusal.facts.get("XmlNodeName"))


# Supported properties

EVERYTHING = {
    "Logging": Change(logging=Logging()),
    "HourMetrics": Change(hour_metrics=Metrics()),
    "MinuteMetrics": Change(minute_metrics=Metrics()),
    "Cors": Change(cors=()),
    "DeleteRetentionPolicy": Change(delete_retention=OFF),
    "StaticWebsite": Change(static_website=StaticWebsite()),
    "DefaultServiceVersion": Change(default_service_version="2021-12-02"),
    "ProtocolSettings": Change(protocol_settings=ProtocolSettings()),
    "ShareDeleteRetentionPolicy": Change(share_delete_retention=OFF),
}
_SINCE_2013 = list(EVERYTHING)[:4]
_OF_BLOBS = list(EVERYTHING)[:7]


@pytest.mark.parametrize(
    ("service", "version", "expected"),
    [
        ("blob", NEWEST, _OF_BLOBS),
        ("blob", "2018-03-28", _OF_BLOBS),
        (
            "blob",
            "2017-07-29",
            [*_SINCE_2013, "DeleteRetentionPolicy", "DefaultServiceVersion"],
        ),
        ("blob", "2017-04-17", [*_SINCE_2013, "DefaultServiceVersion"]),
        ("blob", "2012-02-12", ["Logging", "DefaultServiceVersion"]),
        ("queue", NEWEST, _SINCE_2013),
        ("table", NEWEST, _SINCE_2013),
        (
            "file",
            NEWEST,
            [*_SINCE_2013[1:], "ProtocolSettings", "ShareDeleteRetentionPolicy"],
        ),
        ("file", "2019-12-12", [*_SINCE_2013[1:], "ShareDeleteRetentionPolicy"]),
    ],
)
def test_properties_of_each_service(service: str, version: str, expected: list[str]) -> None:
    assert list(elements(service, version)) == expected
    for name, change in EVERYTHING.items():
        refused = None if name in expected else ("UnsupportedXmlNode", name)
        assert verdict(change, service, version) == refused
    assert verdict(Change(), service, version) is None


# Analytics and retention


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (RetentionPolicy(False), None),
        (RetentionPolicy(False, 0), None),
        (RetentionPolicy(True, 1), None),
        (RetentionPolicy(True, 365), None),
        (RetentionPolicy(True), (MISSING, "Days")),
        (RetentionPolicy(True, 0), (NO_DOCUMENT, None)),
        (RetentionPolicy(True, -1), (NO_DOCUMENT, None)),
        (RetentionPolicy(True, 366), (NO_DOCUMENT, None)),
    ],
)
def test_retention(policy: RetentionPolicy, expected: object) -> None:
    for change in (
        Change(logging=Logging(retention=policy)),
        Change(hour_metrics=Metrics(retention=policy)),
        Change(minute_metrics=Metrics(retention=policy)),
        Change(delete_retention=policy),
    ):
        assert verdict(change) == expected


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (Change(logging=Logging("2.0")), None),
        (Change(logging=Logging("3.0")), (INVALID, "Version")),
        (Change(logging=Logging("")), (INVALID, "Version")),
        (Change(hour_metrics=Metrics("2.0")), (INVALID, "Version")),
        (Change(hour_metrics=Metrics("1.0", True)), (MISSING, "IncludeAPIs")),
        (Change(minute_metrics=Metrics("1.0", True)), (MISSING, "IncludeAPIs")),
        (Change(minute_metrics=Metrics("1.0", True, False)), None),
        (Change(minute_metrics=Metrics("1.0", False, True)), None),
    ],
)
def test_analytics(change: Change, expected: object) -> None:
    assert verdict(change) == expected


@pytest.mark.parametrize(
    ("version", "good"),
    [
        ("2008-10-27", True),
        ("2021-12-02", True),
        ("2026-10-06", True),
        ("2021-12-03", False),
        ("2099-12-31", False),
        ("2008-10-26", False),
        ("2021-13-02", False),
        ("2021-12-2", False),
        ("20211202", False),
        ("", False),
        ("latest", False),
    ],
)
def test_default_versions(version: str, good: bool) -> None:
    expected = None if good else (INVALID, "DefaultServiceVersion")
    assert verdict(Change(default_service_version=version)) == expected


@pytest.mark.parametrize(
    ("website", "node"),
    [
        (StaticWebsite(True), None),
        (StaticWebsite(True, "index.html", "a/index.html", "errors/404.html"), None),
        (StaticWebsite(True, "a/index.html"), "IndexDocument"),
        (StaticWebsite(True, "a" * 1025), "IndexDocument"),
        (StaticWebsite(True, None, "a" * 1025), "DefaultIndexDocumentPath"),
        (StaticWebsite(True, None, None, "a" * 1024), None),
        (StaticWebsite(True, None, None, "a" * 1025), "ErrorDocument404Path"),
        (StaticWebsite(False, "a/index.html"), None),
    ],
)
def test_websites(website: StaticWebsite, node: str | None) -> None:
    assert verdict(Change(static_website=website)) == (None if node is None else (INVALID, node))


# CORS

RULE = CorsRule(("*",), ("GET",))


def rule(**fields: object) -> CorsRule:
    return msgspec.structs.replace(RULE, **fields)


def many(count: int, end: str = "") -> tuple[str, ...]:
    return tuple(f"h{number}{end}" for number in range(count))


@pytest.mark.parametrize(
    ("changed", "node"),
    [
        (rule(), None),
        (rule(max_age_seconds=2**31 - 1), None),
        (rule(max_age_seconds=-1), "MaxAgeInSeconds"),
        (rule(max_age_seconds=2**31), "MaxAgeInSeconds"),
        (rule(allowed_origins=()), "AllowedOrigins"),
        (rule(allowed_origins=("https://a.example:8080", "null")), None),
        (rule(allowed_origins=("https://*.a.example",)), None),
        (rule(allowed_origins=("a.example", "https://a.example/path", "*.a.example")), None),
        (rule(allowed_origins=("*a.example",)), "AllowedOrigins"),
        (rule(allowed_origins=("https://a.*.example",)), "AllowedOrigins"),
        (rule(allowed_origins=("https://*.*.example",)), "AllowedOrigins"),
        (rule(allowed_origins=("https://*",)), "AllowedOrigins"),
        (rule(allowed_origins=("https://a b",)), "AllowedOrigins"),
        (rule(allowed_origins=("https://ä",)), "AllowedOrigins"),
        (rule(allowed_origins=("https://a\r\nb",)), "AllowedOrigins"),
        (rule(allowed_origins=("a" * 256,)), None),
        (rule(allowed_origins=("a" * 257,)), "AllowedOrigins"),
        (rule(allowed_origins=many(64)), None),
        (rule(allowed_origins=many(65)), "AllowedOrigins"),
        (rule(allowed_methods=()), "AllowedMethods"),
        (
            rule(allowed_methods=("DELETE", "GET", "HEAD", "MERGE", "POST", "OPTIONS", "PUT")),
            None,
        ),
        (rule(allowed_methods=("PATCH",)), None),
        (rule(allowed_methods=("get",)), None),
        (rule(allowed_methods=("*",)), "AllowedMethods"),
        (rule(allowed_methods=("GET", "TRACE")), "AllowedMethods"),
        (rule(allowed_headers=("*",)), None),
        (rule(allowed_headers=("x-ms-meta-*", "x-ms-blob-*", "etag")), None),
        (rule(allowed_headers=("a*", "b*", "c*")), "AllowedHeaders"),
        (rule(allowed_headers=("a*b",)), "AllowedHeaders"),
        (rule(allowed_headers=("a**",)), "AllowedHeaders"),
        (rule(allowed_headers=("a b",)), "AllowedHeaders"),
        (rule(allowed_headers=("a:",)), "AllowedHeaders"),
        (rule(allowed_headers=("a" * 256,)), None),
        (rule(allowed_headers=("a" * 257,)), "AllowedHeaders"),
        (rule(allowed_headers=(*many(64), "a*", "b*")), None),
        (rule(allowed_headers=many(65)), "AllowedHeaders"),
        (rule(exposed_headers=(*many(64), "a*", "b*")), None),
        (rule(exposed_headers=many(65)), "ExposedHeaders"),
        (rule(exposed_headers=("a*", "b*", "c*")), "ExposedHeaders"),
    ],
)
def test_cors_rules(changed: CorsRule, node: str | None) -> None:
    expected = None if node is None else (INVALID, node)
    assert verdict(Change(cors=(RULE, changed))) == expected


def test_five_rules_at_most() -> None:
    assert verdict(Change(cors=(RULE,) * 5)) is None
    assert verdict(Change(cors=(RULE,) * 6)) == (NO_DOCUMENT, None)


def test_two_kibibytes_at_most() -> None:
    """The size of the values, including commas: 7 times 256, 7 commas, then the rest."""
    long = tuple(f"{number}".ljust(256, "a") for number in range(7))
    rest = 2048 - 7 * 256 - 7 - len("GET") - len("0")
    fits = CorsRule((*long, "a" * rest), ("GET",))
    assert verdict(Change(cors=(fits,))) is None
    beyond = CorsRule((*long, "a" * (rest + 1)), ("GET",))
    assert verdict(Change(cors=(beyond,))) == (INVALID, "Cors")


# Merging

CURRENT = ServiceProperties(
    logging=Logging("1.0", True, True, True, RetentionPolicy(True, 3)),
    hour_metrics=Metrics("1.0", True, True, RetentionPolicy(True, 4)),
    minute_metrics=Metrics("1.0", True, False, RetentionPolicy(True, 5)),
    cors=(RULE,),
    default_service_version="2021-12-02",
    delete_retention=RetentionPolicy(True, 6, True),
    static_website=StaticWebsite(True, "index.html"),
)


def test_an_empty_change() -> None:
    assert merge(CURRENT, Change()) == CURRENT


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("logging", Logging()),
        ("hour_metrics", Metrics()),
        ("minute_metrics", Metrics()),
        ("cors", ()),
        ("default_service_version", "2023-01-03"),
        ("delete_retention", RetentionPolicy(True, 7)),
        ("static_website", StaticWebsite()),
    ],
)
def test_an_element_is_replaced_whole(field: str, value: object) -> None:
    merged = merge(CURRENT, msgspec.structs.replace(Change(), **{field: value}))
    assert merged == msgspec.structs.replace(CURRENT, **{field: value})


def test_disabling_clears_the_other_settings() -> None:
    off = RetentionPolicy(False, 9, True)
    merged = merge(
        CURRENT,
        Change(
            logging=Logging(read=True, retention=off),
            hour_metrics=Metrics("1.0", False, True, off),
            delete_retention=off,
            static_website=StaticWebsite(False, "index.html"),
        ),
    )
    assert merged == msgspec.structs.replace(
        CURRENT,
        logging=Logging(read=True),
        hour_metrics=Metrics(),
        delete_retention=OFF,
        static_website=StaticWebsite(),
    )


def test_properties_round_trip() -> None:
    stored = msgspec.msgpack.encode(CURRENT)
    assert msgspec.msgpack.decode(stored, type=ServiceProperties) == CURRENT


# Protocols of the file service


def test_each_setting_of_a_protocol_is_merged() -> None:
    first = SmbSettings(multichannel=True, versions=("SMB3.0", "SMB3.1.1"))
    second = SmbSettings(encryption_required=False, channel_encryption=("AES-256-GCM",))
    properties = merge(ServiceProperties(), Change(protocol_settings=ProtocolSettings(first)))
    change = ProtocolSettings(second, NfsSettings(encryption_required=True))
    properties = merge(properties, Change(protocol_settings=change))
    expected = SmbSettings(True, False, ("SMB3.0", "SMB3.1.1"), None, None, ("AES-256-GCM",))
    assert properties.protocol_settings == ProtocolSettings(expected, NfsSettings(True))
    change = ProtocolSettings(SmbSettings(versions=()))
    properties = merge(properties, Change(protocol_settings=change))
    assert properties.protocol_settings.smb.versions is None


@pytest.mark.parametrize(
    ("smb", "node"),
    [
        (SmbSettings(versions=("SMB3.0", "SMB1.0")), "Versions"),
        (SmbSettings(authentication_methods=("NTLMv1",)), "AuthenticationMethods"),
        (SmbSettings(kerberos_ticket_encryption=("DES",)), "KerberosTicketEncryption"),
        (SmbSettings(channel_encryption=("AES-128-CBC",)), "ChannelEncryption"),
    ],
)
def test_values_of_settings_of_smb(smb: SmbSettings, node: str) -> None:
    change = Change(protocol_settings=ProtocolSettings(smb))
    assert verdict(change, "file") == (INVALID, node)

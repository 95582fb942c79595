"""Service properties: literal documents and round trips."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etagere.errors import ERRORS, Refusal
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
from etagere.protocol.codecs.service_properties import decode, encode
from etagere.rules.service_properties import check, merge

NEWEST = "2026-02-06"
WEEK = RetentionPolicy(True, 7)

PROPERTIES = ServiceProperties(
    logging=Logging("1.0", delete=True, read=True, write=True, retention=WEEK),
    hour_metrics=Metrics("1.0", True, True, WEEK),
    cors=(
        CorsRule(("*",), ("GET", "PUT"), ("a", "x-ms-meta-*"), ("*",), 60),
        CorsRule(("https://a.example", "https://*.b.example"), ("HEAD",)),
    ),
    default_service_version="2021-12-02",
    delete_retention=WEEK,
    static_website=StaticWebsite(True, "index.html", "home.html", "errors/<404>.html"),
)
OF_FILES = ServiceProperties(
    hour_metrics=PROPERTIES.hour_metrics,
    cors=PROPERTIES.cors,
    protocol_settings=ProtocolSettings(
        SmbSettings(True, False, ("SMB3.0", "SMB3.1.1")), NfsSettings(True)
    ),
    share_delete_retention=WEEK,
)
HEAD = b'<?xml version="1.0" encoding="utf-8"?><StorageServiceProperties>'
LOGGING = (
    b"<Logging>"
    b"<Version>1.0</Version><Read>true</Read><Write>true</Write><Delete>true</Delete>"
    b"<RetentionPolicy><Enabled>true</Enabled><Days>7</Days></RetentionPolicy>"
    b"</Logging>"
)
METRICS = (
    b"<HourMetrics>"
    b"<Version>1.0</Version><Enabled>true</Enabled><IncludeAPIs>true</IncludeAPIs>"
    b"<RetentionPolicy><Enabled>true</Enabled><Days>7</Days></RetentionPolicy>"
    b"</HourMetrics>"
    b"<MinuteMetrics>"
    b"<Version>1.0</Version><Enabled>false</Enabled>"
    b"<RetentionPolicy><Enabled>false</Enabled></RetentionPolicy>"
    b"</MinuteMetrics>"
)
CORS = (
    b"<Cors>"
    b"<CorsRule>"
    b"<AllowedMethods>GET,PUT</AllowedMethods>"
    b"<AllowedOrigins>*</AllowedOrigins>"
    b"<AllowedHeaders>a,x-ms-meta-*</AllowedHeaders>"
    b"<ExposedHeaders>*</ExposedHeaders>"
    b"<MaxAgeInSeconds>60</MaxAgeInSeconds>"
    b"</CorsRule>"
    b"<CorsRule>"
    b"<AllowedMethods>HEAD</AllowedMethods>"
    b"<AllowedOrigins>https://a.example,https://*.b.example</AllowedOrigins>"
    b"<AllowedHeaders />"
    b"<ExposedHeaders />"
    b"<MaxAgeInSeconds>0</MaxAgeInSeconds>"
    b"</CorsRule>"
    b"</Cors>"
)
KEPT = b"<DeleteRetentionPolicy><Enabled>true</Enabled><Days>7</Days>"
PERMANENT = b"<AllowPermanentDelete>false</AllowPermanentDelete>"
WEBSITE = (
    b"</DeleteRetentionPolicy>"
    b"<StaticWebsite>"
    b"<Enabled>true</Enabled>"
    b"<IndexDocument>index.html</IndexDocument>"
    b"<ErrorDocument404Path>errors/&lt;404&gt;.html</ErrorDocument404Path>"
    b"<DefaultIndexDocumentPath>home.html</DefaultIndexDocumentPath>"
    b"</StaticWebsite>"
)
DEFAULT_VERSION = b"<DefaultServiceVersion>2021-12-02</DefaultServiceVersion>"
_MULTICHANNEL = b"<Multichannel><Enabled>true</Enabled></Multichannel>"
_VERSIONS = b"<Versions>SMB3.0;SMB3.1.1</Versions>"
PROTOCOLS = (
    b"<ProtocolSettings><SMB>"
    + _MULTICHANNEL
    + b"<EncryptionInTransit><Required>false</Required></EncryptionInTransit>"
    + _VERSIONS
    + b"</SMB><NFS><EncryptionInTransit><Required>true</Required></EncryptionInTransit></NFS>"
    + b"</ProtocolSettings>"
)
OLD_PROTOCOLS = (
    b"<ProtocolSettings><SMB>" + _MULTICHANNEL + _VERSIONS + b"</SMB></ProtocolSettings>"
)
KEPT_SHARES = (
    b"<ShareDeleteRetentionPolicy><Enabled>true</Enabled><Days>7</Days>"
    b"</ShareDeleteRetentionPolicy>"
)
END = b"</StorageServiceProperties>"


@pytest.mark.parametrize(
    ("service", "version", "expected"),
    [
        ("blob", NEWEST, LOGGING + METRICS + CORS + KEPT + PERMANENT + WEBSITE + DEFAULT_VERSION),
        (
            "blob",
            "2020-02-10",
            LOGGING + METRICS + CORS + KEPT + PERMANENT + WEBSITE + DEFAULT_VERSION,
        ),
        ("blob", "2019-12-12", LOGGING + METRICS + CORS + KEPT + WEBSITE + DEFAULT_VERSION),
        ("queue", NEWEST, LOGGING + METRICS + CORS),
        ("table", NEWEST, LOGGING + METRICS + CORS),
        ("file", NEWEST, METRICS + CORS + PROTOCOLS + KEPT_SHARES),
        ("file", "2020-02-10", METRICS + CORS + OLD_PROTOCOLS + KEPT_SHARES),
        ("file", "2019-12-12", METRICS + CORS + KEPT_SHARES),
        ("blob", "2013-08-15", LOGGING + METRICS + CORS + DEFAULT_VERSION),
        ("queue", "2012-02-12", LOGGING),
    ],
)
def test_golden(service: str, version: str, expected: bytes) -> None:
    properties = OF_FILES if service == "file" else PROPERTIES
    assert encode(properties, service, version) == HEAD + expected + END


def test_defaults() -> None:
    off = b"<RetentionPolicy><Enabled>false</Enabled></RetentionPolicy>"
    metrics = b"<Version>1.0</Version><Enabled>false</Enabled>" + off
    assert encode(ServiceProperties(), "blob", NEWEST) == (
        HEAD
        + b"<Logging><Version>1.0</Version><Read>false</Read><Write>false</Write>"
        + (b"<Delete>false</Delete>" + off + b"</Logging>")
        + (b"<HourMetrics>" + metrics + b"</HourMetrics>")
        + (b"<MinuteMetrics>" + metrics + b"</MinuteMetrics>")
        + b"<Cors />"
        + (b"<DeleteRetentionPolicy><Enabled>false</Enabled>" + PERMANENT)
        + b"</DeleteRetentionPolicy>"
        + b"<StaticWebsite><Enabled>false</Enabled></StaticWebsite>"
        + END
    )


def test_reading_the_golden_document() -> None:
    change = decode(encode(PROPERTIES, "blob", NEWEST))
    assert isinstance(change, ServicePropertiesChange)
    assert check(change, "blob", NEWEST) is None
    assert merge(ServiceProperties(), change) == PROPERTIES
    change = decode(encode(OF_FILES, "file", NEWEST))
    assert isinstance(change, ServicePropertiesChange)
    assert check(change, "file", NEWEST) is None
    assert merge(ServiceProperties(), change) == OF_FILES


def test_absent_elements_are_unchanged() -> None:
    change = decode(b"<StorageServiceProperties><Cors/></StorageServiceProperties>")
    assert change == ServicePropertiesChange(cors=())


def test_header_names_precede_prefixes() -> None:
    names = ("x-ms-meta-b*", "x-ms-meta-a", "x-ms-meta-*", "a")
    rule = CorsRule(("*",), ("GET",), names, names)
    encoded = encode(ServiceProperties(cors=(rule,)), "table", NEWEST)
    for node in (b"AllowedHeaders", b"ExposedHeaders"):
        assert b"<%b>x-ms-meta-a,a,x-ms-meta-b*,x-ms-meta-*</%b>" % (node, node) in encoded


_MINUTES = (
    "<MinuteMetrics><Version>1.0</Version><Enabled>true</Enabled><IncludeAPIs>true</IncludeAPIs>"
    "<RetentionPolicy><Enabled>true</Enabled><Days>366</Days></RetentionPolicy></MinuteMetrics>"
)
_DISABLED = (
    "<Logging><Version>1.0</Version><Delete>false</Delete><Read>false</Read><Write>false</Write>"
    "<RetentionPolicy><Enabled>false</Enabled><Days>7</Days></RetentionPolicy></Logging>"
)
_KEPT = "<DeleteRetentionPolicy><Enabled>true</Enabled><Days>{}</Days></DeleteRetentionPolicy>"
_DAYS = "Retention days must be greater than 0 and less than or equal to 365 days."


@pytest.mark.parametrize(
    ("content", "position", "reason"),
    [
        (_MINUTES, 176, _DAYS),
        (_KEPT.format(366), 91, _DAYS),
        (_KEPT.format(0), 89, _DAYS),
        (_DISABLED, 175, "Element Days is only expected when RetentionPolicy is enabled."),
        ("", 29, "The document sets nothing."),
    ],
)
def test_refusals_name_the_node(content: str, position: int, reason: str) -> None:
    root = "StorageServiceProperties"
    document = f"<{root}>{content}</{root}>" if content else f"<{root} />"
    refusal = decode(f"<?xml version='1.0' encoding='utf-8'?>\n{document}".encode())
    assert isinstance(refusal, Refusal)
    assert refusal.code == NO_DOCUMENT
    assert refusal.facts == {"LineNumber": 2, "LinePosition": position, "Reason": reason}


def test_another_form_of_the_document() -> None:
    change = decode(
        b"\xef\xbb\xbf<StorageServiceProperties xmlns='urn:x'>\r\n"
        b"  <DeleteRetentionPolicy>\n    <Days> 7 </Days>\n    <Enabled>True</Enabled>\n"
        b"    <AllowPermanentDelete>true</AllowPermanentDelete>\n  </DeleteRetentionPolicy>\n"
        b"  <Cors><CorsRule><MaxAgeInSeconds>5</MaxAgeInSeconds><AllowedHeaders/><ExposedHeaders/>"
        b"<AllowedMethods> GET, PUT ,</AllowedMethods><AllowedOrigins>\n a, b\n</AllowedOrigins>"
        b"</CorsRule></Cors><StaticWebsite><Enabled>true</Enabled><IndexDocument /></StaticWebsite>"
        b"</StorageServiceProperties>"
    )
    assert change == ServicePropertiesChange(
        cors=(CorsRule(("a", "b"), ("GET", "PUT"), max_age_seconds=5),),
        delete_retention=RetentionPolicy(True, 7, True),
        static_website=StaticWebsite(True),
    )


ON = "<Enabled>true</Enabled>"
RETENTION = "<RetentionPolicy><Enabled>false</Enabled></RetentionPolicy>"
RULE = (
    "<AllowedOrigins>*</AllowedOrigins><AllowedMethods>GET</AllowedMethods><AllowedHeaders/>"
    "<ExposedHeaders/><MaxAgeInSeconds>0</MaxAgeInSeconds>"
)
INVALID, MISSING = "InvalidXmlNodeValue", "MissingRequiredXmlNode"
NO_DOCUMENT = "InvalidXmlDocument"


@pytest.mark.parametrize(
    ("content", "code", "node"),
    [
        ("<Other/>", "UnsupportedXmlNode", "Other"),
        ("<Metrics/>", "UnsupportedXmlNode", "Metrics"),
        ("<Cors/><Cors/>", "InvalidXmlDocument", None),
        ("<Logging/>", MISSING, "Version"),
        ("<Logging><Version>1.0</Version></Logging>", MISSING, "Delete"),
        ("<HourMetrics/>", MISSING, "Version"),
        ("<HourMetrics><Version>1.0</Version></HourMetrics>", MISSING, "Enabled"),
        (f"<MinuteMetrics><Version/>{ON}</MinuteMetrics>", MISSING, "RetentionPolicy"),
        ("<DeleteRetentionPolicy/>", MISSING, "Enabled"),
        (f"<DeleteRetentionPolicy>{ON}<Days>x</Days></DeleteRetentionPolicy>", INVALID, "Days"),
        (f"<DeleteRetentionPolicy>{ON}<Days/></DeleteRetentionPolicy>", INVALID, "Days"),
        ("<StaticWebsite/>", MISSING, "Enabled"),
        ("<StaticWebsite><Enabled>on</Enabled></StaticWebsite>", INVALID, "Enabled"),
        ("<Cors><Other/></Cors>", "UnsupportedXmlNode", "Other"),
        ("<Cors><CorsRule/></Cors>", MISSING, "AllowedOrigins"),
        (f"<Cors><CorsRule>{RULE}{ON}</CorsRule></Cors>", "UnsupportedXmlNode", "Enabled"),
        ("<DefaultServiceVersion><a/></DefaultServiceVersion>", "InvalidXmlDocument", None),
    ]
    + [
        (f"<Cors><CorsRule>{RULE.replace(part, '')}</CorsRule></Cors>", MISSING, name)
        for name, part in (
            ("AllowedMethods", "<AllowedMethods>GET</AllowedMethods>"),
            ("AllowedHeaders", "<AllowedHeaders/>"),
            ("ExposedHeaders", "<ExposedHeaders/>"),
            ("MaxAgeInSeconds", "<MaxAgeInSeconds>0</MaxAgeInSeconds>"),
        )
    ],
)
def test_refusals(content: str, code: str, node: str | None) -> None:
    refusal = decode(f"<StorageServiceProperties>{content}</StorageServiceProperties>".encode())
    assert isinstance(refusal, Refusal)
    assert (refusal.code, refusal.facts.get("XmlNodeName")) == (code, node)


def test_too_many_rules_are_parsed_and_refused() -> None:
    body = "<Cors>" + f"<CorsRule>{RULE}</CorsRule>" * 50 + "</Cors>"
    change = decode(f"<StorageServiceProperties>{body}</StorageServiceProperties>".encode())
    assert isinstance(change, ServicePropertiesChange)
    refusal = check(change, "blob", NEWEST)
    assert refusal is not None
    assert refusal.code == NO_DOCUMENT
    assert refusal.facts == {"LineNumber": 0, "LinePosition": 0, "Reason": ""}


# Round trips

RETENTIONS = st.builds(RetentionPolicy, st.booleans(), st.none() | st.integers(-1, 400))
METRICS_VALUES = st.builds(
    Metrics, st.just("1.0"), st.booleans(), st.none() | st.booleans(), RETENTIONS
)
ITEMS = st.lists(st.sampled_from(["a", "b-c", "x-ms-*"]), max_size=3).map(
    lambda items: tuple(sorted(items))
)
"""In the order in which they are returned."""
RULES = st.builds(
    CorsRule,
    st.lists(st.sampled_from(["*", "https://a.example", "https://*.b"]), max_size=2).map(tuple),
    st.lists(st.sampled_from(["GET", "PUT", "MERGE"]), max_size=3).map(tuple),
    ITEMS,
    ITEMS,
    st.integers(-1, 100),
)
PATHS = st.none() | st.sampled_from(["index.html", "a/<b>&.html", "é.html"])
CHANGES = st.builds(
    ServicePropertiesChange,
    logging=st.none()
    | st.builds(Logging, st.just("1.0"), st.booleans(), st.booleans(), st.booleans(), RETENTIONS),
    hour_metrics=st.none() | METRICS_VALUES,
    minute_metrics=st.none() | METRICS_VALUES,
    cors=st.none() | st.lists(RULES, max_size=6).map(tuple),
    default_service_version=st.none() | st.sampled_from(["2021-12-02", "2021-13-02", "x"]),
    delete_retention=st.none() | RETENTIONS,
    static_website=st.none() | st.builds(StaticWebsite, st.booleans(), PATHS, PATHS, PATHS),
)


@given(CHANGES)
def test_valid_properties_round_trip(change: ServicePropertiesChange) -> None:
    refusal = check(change, "blob", NEWEST)
    if refusal is not None:
        assert refusal.code in {INVALID, MISSING, NO_DOCUMENT}
        return
    if change == ServicePropertiesChange():
        return
    properties = merge(ServiceProperties(), change)
    read = decode(encode(properties, "blob", NEWEST))
    assert isinstance(read, ServicePropertiesChange)
    assert check(read, "blob", NEWEST) is None
    assert merge(ServiceProperties(), read) == properties


NAMES = [
    *("Logging", "HourMetrics", "Version", "Enabled", "RetentionPolicy", "Days"),
    *("Cors", "CorsRule", "AllowedOrigins", "AllowedMethods", "MaxAgeInSeconds"),
    *("StaticWebsite", "DeleteRetentionPolicy"),
    *("ProtocolSettings", "SMB", "NFS", "Multichannel", "EncryptionInTransit", "Required"),
    *("Versions", "ShareDeleteRetentionPolicy"),
]
TREES = st.recursive(
    st.sampled_from(["", "true", "false", "1", "1.0", "*", "&amp;", "&x;", "<!-- -->"]),
    lambda inner: st.tuples(st.sampled_from(NAMES), st.lists(inner, max_size=4)).map(
        lambda pair: f"<{pair[0]}>{''.join(pair[1])}</{pair[0]}>"
    ),
    max_leaves=12,
)


@given(TREES, st.sampled_from(["blob", "queue", "table", "file"]))
def test_arbitrary_trees(content: str, service: str) -> None:
    body = f"<StorageServiceProperties>{content}</StorageServiceProperties>".encode()
    change = decode(body)
    refusal = change if isinstance(change, Refusal) else check(change, service, NEWEST)
    if refusal is not None:
        assert ERRORS[refusal.code].status == 400


@given(st.binary(max_size=100))
def test_arbitrary_bytes(body: bytes) -> None:
    result = decode(body)
    assert isinstance(result, ServicePropertiesChange) or result.code == "InvalidXmlDocument"

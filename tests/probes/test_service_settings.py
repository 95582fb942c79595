"""Service properties, stored access policies and CORS of all services, as recorded."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

import pytest

from tests.probes.client import Answer, Client, Pairs, Request, shared_key, table_shared_key
from tests.server import ACCOUNT, KEY, SERVICES, Server, served

_SERVICE: Final = (("restype", "service"), ("comp", "properties"))
_RESTYPES: Final[dict[str, Pairs]] = {
    "blob": (("restype", "container"),),
    "file": (("restype", "share"),),
}
_WITH_DETAILS: Final = ("blob", "queue", "file")
"""Services whose errors have details."""
_LINE: Final = "<?xml version='1.0' encoding='utf-8'?>\n"
_DAYS: Final = "Retention days must be greater than 0 and less than or equal to 365 days."
_RULE: Final = (
    "<CorsRule><AllowedOrigins>{}</AllowedOrigins><AllowedMethods>GET,HEAD,PUT</AllowedMethods>"
    "<AllowedHeaders>x-ms-*,content-type</AllowedHeaders><ExposedHeaders>{}</ExposedHeaders>"
    "<MaxAgeInSeconds>5</MaxAgeInSeconds></CorsRule>"
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with two front ends: a change through one is visible through the other at once."""
    directory: Path = tmp_path_factory.mktemp("settings") / "data"
    with served(directory, "--workers", "2") as started:
        for service in SERVICES:
            created = _create(started, service)
            assert created.status == 201, created
        yield started
        assert started.stop() == 0
        assert "Traceback" not in started.log()


def _create(server: Server, service: str) -> Answer:
    if service == "table":
        json = (("Content-Type", "application/json"),)
        return _ask(server, service, "POST", "/Tables", (), json, '{"TableName":"settings"}')
    kind = _RESTYPES.get(service, ())
    return _ask(server, service, "PUT", "/settings", kind)


def _ask(
    server: Server,
    service: str,
    method: str,
    path: str,
    query: tuple[tuple[str, str], ...] = (),
    headers: tuple[tuple[str, str], ...] = (),
    body: str = "",
) -> Answer:
    """Sends a request on a new connection, which any front end may accept."""
    if ("x-ms-version", "") not in headers and "x-ms-version" not in dict(headers):
        headers = (("x-ms-version", "2021-08-06"), *headers)
    request = Request(method, f"/{ACCOUNT}{path}", query, headers, body.encode())
    sign = table_shared_key if service == "table" else shared_key
    with Client(server.endpoints[service]) as client:
        return client.ask(sign(ACCOUNT, KEY)(request))


def _set(server: Server, service: str, content: str) -> Answer:
    root = "StorageServiceProperties"
    document = f"{_LINE}<{root}>{content}</{root}>" if content else f"{_LINE}<{root} />"
    xml = (("Content-Type", "application/xml"),)
    return _ask(server, service, "PUT", "/", _SERVICE, xml, document)


def _get(server: Server, service: str, version: str = "2021-08-06") -> ElementTree.Element:
    answer = _ask(server, service, "GET", "/", _SERVICE, (("x-ms-version", version),))
    assert answer.status == 200
    return ElementTree.fromstring(answer.body)


def _tags(element: ElementTree.Element | None) -> list[str]:
    assert element is not None
    return [child.tag for child in element]


def _assert_invalid(
    service: str, answer: Answer, line: str, position: str, reason: str | None
) -> None:
    assert answer.status == 400
    assert b"InvalidXmlDocument" in answer.body
    assert b"XML specified is not syntactically valid." in answer.body
    if service in _WITH_DETAILS:
        error = answer.error()
        assert list(error) == ["Code", "Message", "LineNumber", "LinePosition", "Reason"]
        assert (error["LineNumber"], error["LinePosition"]) == (line, position)
        assert reason is None or error["Reason"] == reason


# Properties


@pytest.mark.parametrize("service", SERVICES)
def test_order_of_elements(server: Server, service: str) -> None:
    rules = _RULE.format("https://a.example", "x-ms-meta-data*,x-ms-meta-abc")
    website = (
        "<StaticWebsite><Enabled>true</Enabled><DefaultIndexDocumentPath>a</DefaultIndexDocumentPath>"
        "<IndexDocument>b</IndexDocument><ErrorDocument404Path>c</ErrorDocument404Path>"
        "</StaticWebsite>"
    )
    more = f"<DefaultServiceVersion>2014-02-14</DefaultServiceVersion>{website}"
    sent = f"<Cors>{rules}</Cors>" + (more if service == "blob" else "")
    assert _set(server, service, sent).status == 202
    root = _get(server, service)
    expected = ["Logging", "HourMetrics", "MinuteMetrics", "Cors"]
    if service == "file":
        expected = [*expected[1:], "ProtocolSettings"]
    if service == "blob":
        expected += ["DeleteRetentionPolicy", "StaticWebsite", "DefaultServiceVersion"]
        assert _tags(root.find("DeleteRetentionPolicy")) == ["Enabled", "AllowPermanentDelete"]
        assert root.findtext("DeleteRetentionPolicy/AllowPermanentDelete") == "false"
        older = _get(server, service, "2019-12-12")
        assert _tags(older.find("DeleteRetentionPolicy")) == ["Enabled"]
        assert _tags(root.find("StaticWebsite")) == [
            "Enabled",
            "IndexDocument",
            "ErrorDocument404Path",
            "DefaultIndexDocumentPath",
        ]
    assert _tags(root) == expected
    if service != "file":
        logging = ["Version", "Read", "Write", "Delete", "RetentionPolicy"]
        assert _tags(root.find("Logging")) == logging
    assert _tags(root.find("Cors/CorsRule")) == [
        "AllowedMethods",
        "AllowedOrigins",
        "AllowedHeaders",
        "ExposedHeaders",
        "MaxAgeInSeconds",
    ]
    assert root.findtext("Cors/CorsRule/AllowedHeaders") == "content-type,x-ms-*"
    assert root.findtext("Cors/CorsRule/ExposedHeaders") == "x-ms-meta-abc,x-ms-meta-data*"
    assert _set(server, service, "<Cors />").status == 202


@pytest.mark.parametrize("service", SERVICES)
def test_documents_beyond_the_limits(server: Server, service: str) -> None:
    before = ElementTree.tostring(_get(server, service))
    rules = _RULE.format("*", "*") * 6
    minutes = (
        "<MinuteMetrics><Version>1.0</Version><Enabled>true</Enabled><IncludeAPIs>true</IncludeAPIs>"
        "<RetentionPolicy><Enabled>true</Enabled><Days>366</Days></RetentionPolicy></MinuteMetrics>"
    )
    _assert_invalid(service, _set(server, service, f"<Cors>{rules}</Cors>"), "0", "0", "")
    _assert_invalid(service, _set(server, service, minutes), "2", "176", _DAYS)
    disabled = minutes.replace("<Enabled>true</Enabled><Days>", "<Enabled>false</Enabled><Days>")
    reason = "Element Days is only expected when RetentionPolicy is enabled."
    _assert_invalid(service, _set(server, service, disabled), "2", "177", reason)
    _assert_invalid(service, _set(server, service, ""), "2", "29", None)
    assert ElementTree.tostring(_get(server, service)) == before


# Stored access policies


def _set_policies(server: Server, service: str, *policies: str) -> Answer:
    identifiers = "".join(
        f"<SignedIdentifier><Id>{number}</Id><AccessPolicy>{policy}</AccessPolicy>"
        "</SignedIdentifier>"
        for number, policy in enumerate(policies)
    )
    kind = _RESTYPES.get(service, ())
    query = (*kind, ("comp", "acl"))
    xml = (("Content-Type", "application/xml"),)
    document = f"{_LINE}<SignedIdentifiers>{identifiers}</SignedIdentifiers>"
    return _ask(server, service, "PUT", "/settings", query, xml, document)


@pytest.mark.parametrize("service", SERVICES)
def test_times_of_policies_have_seven_decimals(server: Server, service: str) -> None:
    policy = "<Start>2021-06-01T10:00:00Z</Start><Expiry>2031-06-01</Expiry>"
    assert _set_policies(server, service, f"{policy}<Permission>r</Permission>").status < 300
    kind = _RESTYPES.get(service, ())
    answer = _ask(server, service, "GET", "/settings", (*kind, ("comp", "acl")))
    assert answer.status == 200
    assert b"<Start>2021-06-01T10:00:00.0000000Z</Start>" in answer.body
    assert b"<Expiry>2031-06-01T00:00:00.0000000Z</Expiry>" in answer.body


@pytest.mark.parametrize("service", SERVICES)
def test_too_many_policies(server: Server, service: str) -> None:
    policies = ["<Permission>r</Permission>"] * 6
    _assert_invalid(service, _set_policies(server, service, *policies), "0", "0", None)
    assert _set_policies(server, service, *policies[:5]).status < 300


# CORS

_READS: Final = {
    "blob": ("/settings", (("restype", "container"),)),
    "queue": ("/settings", (("comp", "metadata"),)),
    "table": ("/", _SERVICE),
    "file": ("/settings", (("restype", "share"),)),
}
_CORS: Final = ("access-control-allow-origin", "vary", "access-control-expose-headers")
_MATCH: Final = (("Origin", "https://a.example"),)
_OTHER: Final = (("Origin", "https://b.example"),)
_EXACT: Final = "https://a.example"


def _cors_of(answer: Answer) -> dict[str, str]:
    return {name: answer.headers[name] for name in _CORS if name in answer.headers}


@pytest.mark.parametrize("service", SERVICES)
@pytest.mark.parametrize(
    ("allowed", "headers", "allow_origin", "vary", "exposes"),
    [
        # The documented table: rules, origin, and the headers of the response to a GET.
        ("", (), None, False, False),
        ("", _MATCH, None, False, False),
        ("*", (), "*", False, True),
        ("*", _MATCH, "*", False, True),
        (_EXACT, (), None, True, False),
        (_EXACT, _MATCH, _EXACT, True, True),
        (_EXACT, _OTHER, None, True, False),
    ],
)
def test_reads_by_rule_and_origin(
    server: Server,
    service: str,
    allowed: str,
    headers: tuple[tuple[str, str], ...],
    allow_origin: str | None,
    vary: bool,
    exposes: bool,
) -> None:
    rules = f"<Cors>{_RULE.format(allowed, '*')}</Cors>" if allowed else "<Cors />"
    path, query = _READS[service]
    sent_headers = (("x-ms-client-request-id", "mine"), *headers)
    try:
        assert _set(server, service, rules).status == 202
        # Any front end may answer.
        for _ in range(4):
            cors = _cors_of(_ask(server, service, "GET", path, query, sent_headers))
            exposed = cors.pop("access-control-expose-headers", "").split(",")
            expected = {"vary": "Origin"} if vary else {}
            if allow_origin is not None:
                expected["access-control-allow-origin"] = allow_origin
            assert cors == expected
            common = {"x-ms-request-id", "x-ms-version", "x-ms-client-request-id", "Server"}
            assert (common < set(exposed)) == exposes
            if exposes:
                last = ["Content-Length", "Date", "Transfer-Encoding"]
                assert (exposed[0], exposed[-3:]) == ("x-ms-request-id", last)
                assert "Content-Type" not in exposed
    finally:
        assert _set(server, service, "<Cors />").status == 202


@pytest.mark.parametrize("service", SERVICES)
def test_responses_without_cors_headers(server: Server, service: str) -> None:
    """Responses to writes and errors have CORS headers only if the request has an Origin."""
    path = "/settings"
    kind = _RESTYPES.get(service, ())
    acl = (*kind, ("comp", "acl"))
    try:
        assert _set(server, service, f"<Cors>{_RULE.format('*', 'x-ms-*')}</Cors>").status == 202
        assert _cors_of(_ask(server, service, "PUT", path, acl)) == {}
        missing = _ask(server, service, "GET", "/missing", acl)
        assert (missing.status, _cors_of(missing)) == (404, {})
        written = _cors_of(_ask(server, service, "PUT", path, acl, _MATCH))
        exposed = "x-ms-request-id,x-ms-client-request-id,x-ms-version"
        assert written.pop("access-control-expose-headers") == exposed
        assert written == {"access-control-allow-origin": "*"}
    finally:
        assert _set(server, service, "<Cors />").status == 202

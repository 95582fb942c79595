"""Reading the account, resource and parameters of a request before it is verified."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etagere.auth.request import Address, address, octets, percent_decoded, text
from tests.auth.samples import request


@pytest.mark.parametrize(
    ("host", "path", "expected"),
    [
        ("127.0.0.1:10000", "/acct/c/b", Address("acct", False, True)),
        ("localhost", "/acct", Address("acct", False, True)),
        ("[::1]:10000", "/acct-secondary/c", Address("acct", True, True)),
        ("storage", "/", Address("", False, True)),
        ("acct.blob.core.windows.net", "/c/b", Address("acct", False, False)),
        ("Acct.Blob.localhost:10000", "/c/b", Address("acct", False, False)),
        ("acct-secondary.queue.example.org", "/q", Address("acct", True, False)),
        ("shelf.example.org", "/acct/c", Address("acct", False, True)),
        ("", "", Address("", False, True)),
    ],
)
def test_account_from_host_or_path(host: str, path: str, expected: Address) -> None:
    assert address(host, path) == expected


def test_parameters() -> None:
    sent = request(target="/acct/c?Comp=list&prefix=p%20x&a=2&a=1&&flag&p+q=%2B%zz&A=0&r=1+2%203")
    assert sent.parameters == {
        "comp": "list",
        "prefix": "p x",
        "a": "0,1,2",
        "flag": "",
        "p q": "+%zz",
        "r": "1 2 3",
    }


def test_the_expression_of_find_blobs_by_tags_keeps_its_plus() -> None:
    sent = request(target="/acct?comp=blobs&Where=%22a%22%20%3D%20'x+y'&marker=1+2")
    assert sent.parameters["where"] == "\"a\" = 'x+y'"
    assert sent.parameters["marker"] == "1 2"


@pytest.mark.parametrize(
    ("service", "target", "expected"),
    [
        ("blob", "/acct", ("", "")),
        ("blob", "/acct/", ("", "")),
        ("blob", "/acct/c?restype=container", ("c", "")),
        ("blob", "/acct/c%20d/a%2Fb//e", ("c d", "a/b//e")),
        ("blob", "/acct/alone.txt", ("$root", "alone.txt")),
        ("blob", "/acct/c/a+b%2Bc", ("c", "a+b+c")),
        ("queue", "/acct/q", ("q", "")),
        ("queue", "/acct/q/messages/1", ("q", "messages/1")),
    ],
)
def test_resource(service: str, target: str, expected: tuple[str, str]) -> None:
    assert request(target=target, service=service).resource == expected


def test_resource_of_a_host_style_address() -> None:
    assert request(target="/c/b", host="acct.blob.localhost").resource == ("c", "b")


@given(st.binary())
def test_text_keeps_every_byte(data: bytes) -> None:
    assert octets(text(data)) == data
    octets(percent_decoded(text(data)))

"""Malformed HTTP, almost valid HTTP, and requests smuggled behind either.

Every probe is followed by a marker: a request that only a server which lost count of the bytes
would serve. Each probe gets a clean refusal and a closed connection, or is served as the one
request that it is."""

from __future__ import annotations

import asyncio

import pytest

from tests.protocol.http.harness import ServerFixture, echo, get, on_loops, serving

MARKER = b"GET /smuggled HTTP/1.1\r\nHost: h\r\n\r\n"


def post(*lines: bytes, body: bytes = b"") -> bytes:
    return b"\r\n".join((b"POST /probe HTTP/1.1", b"Host: h", *lines, b"", b"")) + body


CHUNKED = b"Transfer-Encoding: chunked"
LENGTH = b"Content-Length: 5"


def chunked(body: bytes) -> bytes:
    return post(CHUNKED, body=body)


REFUSED: dict[str, bytes] = {
    # Two ways to delimit the body.
    "length and chunked": post(LENGTH, CHUNKED, body=b"0\r\n\r\n"),
    "chunked and length": post(CHUNKED, LENGTH, body=b"0\r\n\r\n"),
    "length zero and chunked": post(b"Content-Length: 0", CHUNKED, body=b"0\r\n\r\n"),
    "same length twice": post(LENGTH, LENGTH, body=b"hello"),
    "different lengths": post(LENGTH, b"Content-Length: 6", body=b"hello"),
    "lengths in a list": post(b"Content-Length: 5, 5", body=b"hello"),
    "different lengths in a list": post(b"Content-Length: 5, 6", body=b"hello"),
    # Invalid lengths.
    "negative length": post(b"Content-Length: -5", body=b"hello"),
    "signed length": post(b"Content-Length: +5", body=b"hello"),
    "hexadecimal length": post(b"Content-Length: 0x5", body=b"hello"),
    "length with a space inside": post(b"Content-Length: 5 0", body=b"hello"),
    "length with an underscore": post(b"Content-Length: 1_0", body=b"hello"),
    "length with a fraction": post(b"Content-Length: 5.0", body=b"hello"),
    "length in other digits": post("Content-Length: \u0665".encode(), body=b"hello"),
    "empty length": post(b"Content-Length: ", body=b"hello"),
    "huge length": post(b"Content-Length: " + b"9" * 30, body=b"hello"),
    "length just over 64 bits": post(b"Content-Length: 18446744073709551621", body=b"hello"),
    # Invalid encodings, or not the last.
    "unknown encoding": post(b"Transfer-Encoding: xchunked", body=b"0\r\n\r\n"),
    "identity": post(b"Transfer-Encoding: identity", body=b"0\r\n\r\n"),
    "identity with length": post(b"Transfer-Encoding: identity", LENGTH, body=b"hello"),
    "gzip and chunked": post(b"Transfer-Encoding: gzip, chunked", body=b"0\r\n\r\n"),
    "chunked and identity": post(b"Transfer-Encoding: chunked, identity", body=b"0\r\n\r\n"),
    "chunked twice": post(CHUNKED, CHUNKED, body=b"0\r\n\r\n"),
    "chunked, then another": post(CHUNKED, b"Transfer-Encoding: x", body=b"0\r\n\r\n"),
    "another, then chunked": post(b"Transfer-Encoding: x", CHUNKED, body=b"0\r\n\r\n"),
    "chunked in quotes": post(b'Transfer-Encoding: "chunked"', body=b"0\r\n\r\n"),
    "chunked with a parameter": post(b"Transfer-Encoding: chunked;q=1", body=b"0\r\n\r\n"),
    "chunked after a comma": post(b"Transfer-Encoding: ,chunked", body=b"0\r\n\r\n"),
    "chunked after a vertical tab": post(b"Transfer-Encoding: \x0bchunked", body=b"0\r\n\r\n"),
    "chunked before a NUL": post(b"Transfer-Encoding: chunked\x00", body=b"0\r\n\r\n"),
    "empty encoding": post(b"Transfer-Encoding:", LENGTH, body=b"hello"),
    "chunked in HTTP/1.0": b"POST / HTTP/1.0\r\n" + CHUNKED + b"\r\n\r\n0\r\n\r\n",
    # Invalid headers.
    "space before the colon": post(b"Transfer-Encoding : chunked", body=b"0\r\n\r\n"),
    "tab before the colon": post(b"Content-Length\t: 5", body=b"hello"),
    "space before a header": b"GET / HTTP/1.1\r\n Host: h\r\n\r\n",
    "folded header": post(b"X-Folded: one", b" two", LENGTH, body=b"hello"),
    "folded encoding": post(b"Transfer-Encoding:", b" chunked", body=b"0\r\n\r\n"),
    "header without a colon": post(b"nonsense"),
    "header without a name": post(b": value"),
    "NUL in a value": post(b"X: a\x00b"),
    "NUL in a name": post(b"X\x00: a"),
    "control byte in a value": post(b"X: a\x08b"),
    "delete in a value": post(b"X: a\x7fb"),
    "bytes beyond ASCII in a name": post("Ünlaut: x".encode()),
    "bracket in a name": post(b"X(y): z"),
    # Other line endings.
    "bare line feeds": b"GET / HTTP/1.1\nHost: h\n\n",
    "bare line feed after the line": b"GET / HTTP/1.1\nHost: h\r\n\r\n",
    "bare line feed in the headers": post(b"X: y\n" + CHUNKED, body=b"0\r\n\r\n"),
    "bare line feed at the end": b"GET / HTTP/1.1\r\nHost: h\r\n\n",
    "bare carriage return in a value": post(b"X: y\rTransfer-Encoding: chunked"),
    "bare carriage returns": b"GET / HTTP/1.1\rHost: h\r\r",
    # Hosts.
    "no host": b"GET / HTTP/1.1\r\n\r\n",
    "two hosts": post(b"Host: other"),
    "the same host twice": post(b"Host: h"),
    # Invalid request lines.
    "HTTP/0.9": b"GET /\r\n",
    "HTTP/0.9 with a version": b"GET / HTTP/0.9\r\nHost: h\r\n\r\n",
    "HTTP/1.2": b"GET / HTTP/1.2\r\nHost: h\r\n\r\n",
    "HTTP/2.0": b"GET / HTTP/2.0\r\nHost: h\r\n\r\n",
    "HTTP/2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "version with leading zero": b"GET / HTTP/01.1\r\nHost: h\r\n\r\n",
    "version without a number": b"GET / HTTP/\r\nHost: h\r\n\r\n",
    "version in lower case": b"GET / http/1.1\r\nHost: h\r\n\r\n",
    "another protocol": b"GET / ICE/1.0\r\nHost: h\r\n\r\n",
    "unknown method": b"FROBNICATE / HTTP/1.1\r\nHost: h\r\n\r\n",
    "method in lower case": b"get / HTTP/1.1\r\nHost: h\r\n\r\n",
    "space before the method": b" GET / HTTP/1.1\r\nHost: h\r\n\r\n",
    "two spaces before the target": b"GET  / HTTP/1.1\r\nHost: h\r\n\r\n",
    "two spaces behind the target": b"GET /  HTTP/1.1\r\nHost: h\r\n\r\n",
    "two spaces behind empty lines": b"\r\n\r\nGET  / HTTP/1.1\r\nHost: h\r\n\r\n",
    "address of another protocol": b"GET ftp://h/ HTTP/1.1\r\nHost: h\r\n\r\n",
    "address with a user": b"GET http://u@h/ HTTP/1.1\r\nHost: h\r\n\r\n",
    "address without a host": b"GET http:/// HTTP/1.1\r\nHost: h\r\n\r\n",
    "target with a space": b"GET /a b HTTP/1.1\r\nHost: h\r\n\r\n",
    "target with a NUL": b"GET /a\x00b HTTP/1.1\r\nHost: h\r\n\r\n",
    "target with a control byte": b"GET /a\x01b HTTP/1.1\r\nHost: h\r\n\r\n",
    "no target": b"GET HTTP/1.1\r\nHost: h\r\n\r\n",
    "relative target": b"GET a HTTP/1.1\r\nHost: h\r\n\r\n",
    "TLS on a plain port": bytes.fromhex("16030100c8010000c40303") + bytes(range(190)),
    "zeros": bytes(1000),
    "text": b"hello\r\n",
    "SSH": b"SSH-2.0-OpenSSH_9.6\r\n",
    # Invalid chunks.
    "chunk size of letters": chunked(b"zz\r\nhello\r\n0\r\n\r\n"),
    "empty chunk size": chunked(b"\r\nhello\r\n0\r\n\r\n"),
    "negative chunk size": chunked(b"-5\r\nhello\r\n0\r\n\r\n"),
    "signed chunk size": chunked(b"+5\r\nhello\r\n0\r\n\r\n"),
    "chunk size as 0x5": chunked(b"0x5\r\nhello\r\n0\r\n\r\n"),
    "space before a chunk size": chunked(b" 5\r\nhello\r\n0\r\n\r\n"),
    "space after a chunk size": chunked(b"5 \r\nhello\r\n0\r\n\r\n"),
    "chunk size over 64 bits": chunked(b"10000000000000005\r\nhello\r\n0\r\n\r\n"),
    "chunk longer than its size": chunked(b"3\r\nhello\r\n0\r\n\r\n"),
    "chunk without an end": chunked(b"5\r\nhello0\r\n\r\n"),
    "bare line feed after a chunk size": chunked(b"5\nhello\r\n0\r\n\r\n"),
    "bare line feed after a chunk": chunked(b"5\r\nhello\n0\r\n\r\n"),
    "bare line feed in an extension": chunked(b"5;a\nb\r\nhello\r\n0\r\n\r\n"),
    "bare line feed after the last chunk": chunked(b"5\r\nhello\r\n0\n\n"),
    "missing final line end": chunked(b"5\r\nhello\r\n0\r\n"),
    "length in a trailer": chunked(b"0\r\nContent-Length: 50\r\n\r\n"),
    "NUL in a trailer": chunked(b"0\r\nX: a\x00\r\n\r\n"),
    # Upgrades to other protocols.
    "CONNECT": b"CONNECT h:80 HTTP/1.1\r\nHost: h:80\r\n\r\n",
}
# A marker hidden where parsers may disagree about the body.
REFUSED["marker behind length and chunked"] = post(
    b"Content-Length: %d" % (5 + len(MARKER)), CHUNKED, body=b"0\r\n\r\n" + MARKER
)
REFUSED["marker in a chunk behind length"] = post(
    b"Content-Length: 4", CHUNKED, body=b"%x\r\n" % len(MARKER) + MARKER + b"\r\n0\r\n\r\n"
)

SERVED: dict[str, tuple[bytes, bytes]] = {
    # Unusual, but one valid request, with its body.
    "absolute target": (b"GET http://h/probe?x HTTP/1.1\r\nHost: h\r\n\r\n", b""),
    "asterisk": (b"OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n", b""),
    "body of a GET": (b"GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello", b"hello"),
    "marker in a body": (post(b"Content-Length: %d" % len(MARKER), body=MARKER), MARKER),
    "marker in a chunk": (
        chunked(b"%x\r\n" % len(MARKER) + MARKER + b"\r\n0\r\n\r\n"),
        MARKER,
    ),
    "marker in a value": (post(b"X: GET /smuggled HTTP/1.1"), b""),
    "length with spaces around": (post(b"Content-Length:  5 \t", body=b"hello"), b"hello"),
    "length with zeros": (post(b"Content-Length: 0005", body=b"hello"), b"hello"),
    "name in another case": (post(b"tRANSFER-eNCODING: CHUNKED", body=b"0\r\n\r\n"), b""),
    "tabs around the encoding": (post(b"Transfer-Encoding:\tchunked", body=b"0\r\n\r\n"), b""),
    "line ends before the request": (b"\r\n\r\n" + get(), b""),
    "empty host": (b"GET / HTTP/1.1\r\nHost:\r\n\r\n", b""),
    "encoding that only looks like one": (post(b"X-Transfer-Encoding: chunked"), b""),
    "underscored name": (post(b"Content_Length: 5"), b""),
    "upgrade": (get("/", "Upgrade: h2c", "Connection: Upgrade"), b""),
    "upgrade with a body": (
        post(b"Upgrade: h2c", b"Connection: Upgrade", LENGTH, body=b"hello"),
        b"hello",
    ),
    "upgrade with chunks": (
        post(b"Upgrade: h2c", b"Connection: Upgrade", CHUNKED, body=b"5\r\nhello\r\n0\r\n\r\n"),
        b"hello",
    ),
    "upgrade with a marker in its body": (
        post(
            b"Upgrade: h2c",
            b"Connection: Upgrade",
            b"Content-Length: %d" % len(MARKER),
            body=MARKER,
        ),
        MARKER,
    ),
    "upgrade without Connection": (post(b"Upgrade: h2c", LENGTH, body=b"hello"), b"hello"),
    "two slashes": (b"GET //h/..//x HTTP/1.1\r\nHost: h\r\n\r\n", b""),
}


@pytest.mark.parametrize("probe", REFUSED)
@on_loops
async def test_refused(probe: str) -> None:
    async with serving(echo) as server:
        for split in (False, True):
            await _refused(server, REFUSED[probe], split=split)
        assert b"/smuggled" not in server.stub.targets
        # At most the body was refused, after its head was served.
        assert len(server.stub.logged) == len(server.stub.requests) <= 2


async def _refused(server: ServerFixture, probe: bytes, *, split: bool) -> None:
    client = await server.connect()
    if split:
        for at in range(0, len(probe), 7):
            await client.send_all(probe[at : at + 7])
            await asyncio.sleep(0)
        await client.send_all(MARKER)
    else:
        await client.send_all(probe + MARKER)
    answer = await client.answer()
    assert 400 <= answer.status < 500
    assert answer.header("X-Malformed") == "yes"
    assert answer.header("Connection") == "close"
    await client.closed()


@pytest.mark.parametrize("probe", SERVED)
@on_loops
async def test_served_as_one_request(probe: str) -> None:
    data, body = SERVED[probe]
    async with serving(echo) as server:
        for split in (False, True):
            client = await server.connect()
            sent = data + b"GET /after HTTP/1.1\r\nHost: h\r\n\r\n"
            for at in range(0, len(sent), 7 if split else len(sent)):
                await client.send(sent[at : at + 7] if split else sent)
                await asyncio.sleep(0)
            answer = await client.answer()
            assert (answer.status, answer.body) == (200, body)
            assert (await client.answer()).status == 200
            await client.close()
        assert len(server.stub.requests) == 4
        assert server.stub.targets[1::2] == [b"/after"] * 2


@on_loops
async def test_nothing_after_the_last_request_is_served() -> None:
    async with serving(echo) as server:
        for last in (get("/", "Connection: close"), b"GET / HTTP/1.0\r\n\r\n"):
            client = await server.connect()
            assert (await client.ask(last + MARKER)).status == 200
            await client.closed()
        assert server.stub.targets == [b"/"] * 2


@on_loops
async def test_a_refusal_is_sent_in_order() -> None:
    async with serving(echo) as server:
        client = await server.connect()
        await client.send(get("/1") + get("/2") + REFUSED["no host"] + MARKER)
        answers = [await client.answer() for _ in range(3)]
        assert [answer.status for answer in answers] == [200, 200, 400]
        assert [answer.header("Connection") for answer in answers] == [None, None, "close"]
        await client.closed()
        assert server.stub.targets == [b"/1", b"/2"]


# Whatever came before, and however it was split into packets.
BEFORE: dict[str, bytes] = {
    "nothing": b"",
    "another request": b"GET /before HTTP/1.1\r\nHost: h\r\n\r\n",
    "a body": post(LENGTH, body=b"h\r\n\r\n"),
    "chunks": chunked(b"4\r\n\r\n\r\n\r\n1;a=b\r\n \r\n0\r\n\r\n"),
    "chunks with a trailer": chunked(b"1\r\n\n\r\n0\r\nX: y  z\r\n\r\n"),
    "an upgrade": post(b"Connection: upgrade", b"Upgrade: h2c", LENGTH, body=b"hello"),
    "two spaces elsewhere": b"GET /before HTTP/1.1\r\nHost: h\r\nX: a  b\r\n\r\n",
}


@pytest.mark.parametrize("before", BEFORE.values(), ids=BEFORE)
def test_two_spaces_are_found_in_any_packet(before: bytes) -> None:
    async def scenario() -> None:
        good = b"GET /good HTTP/1.1\r\nHost: h\r\n\r\n"
        bad = b"GET  /bad HTTP/1.1\r\nHost: h\r\n\r\n"
        async with serving(echo) as server:
            for data, expected in ((good, 200), (bad, 400)):
                whole = before + data
                for cut in range(1, len(whole)):
                    client = await server.connect()
                    await client.send(whole[:cut])
                    await asyncio.sleep(0)
                    await client.send(whole[cut:])
                    if before:
                        assert (await client.answer()).status == 200, cut
                    assert (await client.answer()).status == expected, cut
                    client.writer.close()
            assert b"/bad" not in server.stub.targets

    asyncio.run(scenario())

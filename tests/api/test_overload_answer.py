"""What clients would lose under overload: a refusal that is one answer to one request, whatever the request's bytes."""

from __future__ import annotations

import httptools
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from movemask.api.overload import answer, is_plain_request

PLAIN = b"POST /v1/policy HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: 4\r\n\r\n{  }"

LINES = st.sampled_from(
    [
        b"Host: h",
        b"Content-Length: 4",
        b"content-length:4",
        b"Content-Length: 5",
        b"Content-Length: +4",
        b"Content-Length : 4",
        b"Transfer-Encoding: chunked",
        b"Connection: close",
        b"connection: Upgrade",
        b"Upgrade: h2c",
        b"Expect: 100-continue",
        b"X: \r\n Content-Length: 4",
        b"X: y\nContent-Length: 4",
        b"X",
        b": y",
        b"X:",
        b"X: \x00",
        b"X\x00: y",
        b"Content-Length: 0x4",
        b"Content-Length:\t4 ",
        b"Content-Length: 4, 4",
        b"X: \xff",
        b"Content_Length: 4",
        b"X: y\r",
        b"Proxy-Connection: close",
    ]
)
STARTS = st.sampled_from(
    [
        b"POST /v1/policy HTTP/1.1",
        b"GET / HTTP/1.1",
        b"HEAD / HTTP/1.1",
        b"GET /livez HTTP/1.1",
        b"GET /metrics?x HTTP/1.1",
        b"POST / HTTP/1.0",
        b"POST / HTTP/1.1 ",
        b"POST /a b HTTP/1.1",
        b"POST  / HTTP/1.1",
        b"GET http://h/livez HTTP/1.1",
        b"POST / http/1.1",
        b"GET / HTTP/2.0",
        b"CONNECT h:1 HTTP/1.1",
        b"\r\nGET / HTTP/1.1",
        b"GET /\xff HTTP/1.1",
        b"GET /\x01 HTTP/1.1",
    ]
)
BODIES = st.sampled_from([b"", b"{  }", b"{   }", b"0\r\n\r\n", PLAIN, b"\r\n\r\n{  }"])


class Read:
    """What uvicorn's parser makes of bytes."""

    def __init__(self, data: bytes) -> None:
        self.begun = self.complete = 0
        self.body, self.url = b"", b""
        self.parser = httptools.HttpRequestParser(self)
        self.kept = True
        self.failed = False
        try:
            self.parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self.failed = True

    def on_message_begin(self) -> None:
        self.begun += 1

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.complete += 1
        self.kept = self.parser.should_keep_alive()


@given(
    STARTS, st.lists(LINES, max_size=5), st.sampled_from([b"", b"{  }", b"{   }", b"0\r\n\r\n", PLAIN, b"\r\n\r\n{  }"])
)
@example(b"POST /v1/policy HTTP/1.1", [b"Host: h", b"Content-Length: 4"], b"{  }")
def test_what_is_refused_unparsed_is_one_request_to_the_parser_or_none_that_it_takes(
    start: bytes, lines: list[bytes], body: bytes
) -> None:
    data = b"\r\n".join([start, *lines, b"", body])
    if is_plain_request(data):
        read = Read(data)
        assert read.failed or (read.begun, read.complete, read.kept) == (1, 1, True)
        assert read.failed or len(read.body) == len(body)
        assert not read.url.startswith((b"/livez", b"/readyz", b"/metrics"))


@pytest.mark.parametrize(
    ("data", "plain"),
    [
        (PLAIN, True),
        (b"GET /v1/models HTTP/1.1\r\nHost: h\r\n\r\n", True),
        (PLAIN[:-1], False),
        (PLAIN + b" ", False),
        (PLAIN * 2, False),
        (PLAIN.replace(b"Host: h", b"Connection: close"), False),
        (PLAIN.replace(b"Content-Length: 4", b"Transfer-Encoding: chunked"), False),
        (PLAIN.replace(b"Host: h", b"Expect: 100-continue"), False),
        (b"GET /readyz HTTP/1.1\r\nHost: h\r\n\r\n", False),
        (b"", False),
    ],
)
def test_requests_of_most_clients_are_refused_unparsed(data: bytes, plain: bool) -> None:
    assert is_plain_request(data) == plain


def test_the_answer_is_as_long_as_it_says() -> None:
    for sent in (answer(), answer(keep=False)):
        head, _, body = sent.partition(b"\r\n\r\n")
        assert int(head.partition(b"content-length: ")[2].split(b"\r\n")[0]) == len(body)
    assert answer(head=True).endswith(b"\r\n\r\n")

"""Both transports keep the contract of ``gateway.upstream.contract``, on raw sockets, byte for byte."""

from __future__ import annotations

import asyncio
import os
import ssl
import time
from functools import partial
from pathlib import Path

import pytest

import gateway.upstream.native
import gateway.upstream.via_httpx2
from gateway.upstream.contract import TransportError, WireRequest
from tests.fakes.patience import WAIT_S
from tests.gateway.upstream.lab import OK, REQUEST, Attempt, Lab
from tests.gateway.upstream.raw_peer import PeerConnection, RawPeer, eventually

CHUNKED_HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
LENGTH_HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n"
CLOSE_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\n"

# name -> (the whole answer, its body, whether the connection can be used again, whether the peer's close ends it)
ANSWERS: dict[str, tuple[bytes, bytes, bool, bool]] = {
    "content-length": (LENGTH_HEAD + b"0123456789", b"0123456789", True, False),
    "chunked": (CHUNKED_HEAD + b"5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n", b"hello world", True, False),
    "chunked with extensions and trailers": (
        CHUNKED_HEAD + b'5;a=b\r\nhello\r\n6;q="x;y"\r\n world\r\n0;last\r\nx-took: 3\r\nx-b: c\r\n\r\n',
        b"hello world",
        True,
        False,
    ),
    "chunked with long sizes": (
        CHUNKED_HEAD + b"00005\r\nhello\r\n0A\r\n0123456789\r\n000\r\n\r\n",
        b"hello0123456789",
        True,
        False,
    ),
    "close-delimited": (CLOSE_HEAD + b"until the end", b"until the end", False, True),
    "HTTP/1.0": (b"HTTP/1.0 200 OK\r\n\r\nold", b"old", False, True),
    "connection: close": (b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok", b"ok", False, False),
    "empty body": (b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", b"", True, False),
    "empty chunked body": (CHUNKED_HEAD + b"0\r\n\r\n", b"", True, False),
    "empty close-delimited body": (CLOSE_HEAD, b"", False, True),
    "204": (b"HTTP/1.1 204 No Content\r\n\r\n", b"", True, False),
    "304": (b"HTTP/1.1 304 Not Modified\r\ncontent-length: 12\r\n\r\n", b"", True, False),
    "no reason phrase": (b"HTTP/1.1 200 \r\ncontent-length: 2\r\n\r\nok", b"ok", True, False),
}
PREFIXES: dict[str, bytes] = {
    "before the head": b"",
    "in the head": b"HTTP/1.1 200 OK\r\ncontent-",
    "before the body": CHUNKED_HEAD,
    "in the body": CHUNKED_HEAD + b"5\r\nhello\r\n5\r\nwo",
    "in a length body": LENGTH_HEAD + b"0123",
    "in a close-delimited body": CLOSE_HEAD + b"0123",
}
TRUNCATED: dict[str, bytes] = {
    "content-length": LENGTH_HEAD + b"0123",
    "content-length, nothing came": LENGTH_HEAD,
    "in a chunk": CHUNKED_HEAD + b"a\r\n0123",
    "between chunks": CHUNKED_HEAD + b"5\r\nhello\r\n",
    "in a chunk's size": CHUNKED_HEAD + b"5\r\nhello\r\n1",
    "before the last blank line": CHUNKED_HEAD + b"5\r\nhello\r\n0\r\n",
}
MALFORMED: dict[str, bytes] = {
    "another protocol": b"SSH-2.0-OpenSSH_9.2p1\r\n\r\n",
    "HTML without a head": b"<html><body>Bad Gateway</body></html>\r\n\r\n",
    "a status that is no number": b"HTTP/1.1 abc OK\r\ncontent-length: 2\r\n\r\nok",
    "a header without a colon": b"HTTP/1.1 200 OK\r\nnonsense\r\n\r\n",
    "a length that is no number": b"HTTP/1.1 200 OK\r\ncontent-length: many\r\n\r\n",
    "two lengths": b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nok!",
    "a switch of protocols": b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n",
}


# --- the request as the engine reads it


async def test_the_request_goes_out_as_it_was_given(lab: Lab) -> None:
    headers = ((b"content-type", b"application/json"), (b"x-a", b"1"), (b"authorization", b"Bearer k"), (b"x-a", b"2"))
    request = WireRequest("POST", "/api//v3/chat?q=a|b%7c&x={y}", headers, b'{"a": 1}')
    attempt, connection, seen = await lab.arrive(request)
    assert seen.line == b"POST /api//v3/chat?q=a|b%7c&x={y} HTTP/1.1"
    assert seen.body == b'{"a": 1}'
    assert seen.all(b"host") == [b"127.0.0.1:%d" % lab.peer.port]
    assert seen.all(b"accept-encoding") == [b"identity"]
    assert seen.all(b"content-length") == [b"8"]
    own = {b"host", b"accept-encoding", b"content-length"}
    assert tuple(pair for pair in seen.headers if pair[0].lower() not in own) == headers
    await connection.send(OK)
    await attempt.until_ended()


async def test_a_get_has_no_body_and_no_length_and_an_empty_post_says_so(lab: Lab) -> None:
    attempt, connection, seen = await lab.arrive(WireRequest("GET", "/v1/models", (), b""))
    assert seen.line == b"GET /v1/models HTTP/1.1"
    assert seen.all(b"content-length") == []
    await connection.send(OK)
    await attempt.until_ended()
    attempt = await lab.start(WireRequest("POST", "/v1/x", (), b""))
    seen = await connection.read_request()
    assert seen.all(b"content-length") == [b"0"]
    await connection.send(OK)
    await attempt.until_ended()


async def test_requests_to_many_targets_go_out_as_each_was_given(lab: Lab) -> None:
    connection = await lab.warm()
    for n in [*range(40), 0, 39]:
        method, body = ("GET", b"") if n % 3 == 0 else ("POST", b"%d" % n)
        headers = ((b"x-n", b"%d" % n),) * (n % 2)
        attempt = await lab.start(WireRequest(method, f"/v1/x?n={n // 2}", headers, body))
        seen = await connection.read_request()
        assert (seen.line, seen.body) == (f"{method} /v1/x?n={n // 2} HTTP/1.1".encode(), body)
        assert seen.all(b"host") == [b"127.0.0.1:%d" % lab.peer.port]
        assert seen.all(b"x-n") == [value for _, value in headers]
        await connection.send(OK)
        await attempt.until_ended()


async def test_a_large_body_arrives_whole_at_a_peer_that_reads_slowly(lab: Lab) -> None:
    body = os.urandom(5_000_000)
    attempt = await lab.start(WireRequest("POST", "/v1/chat/completions", (), body))
    connection = await lab.peer.accept()
    seen = await connection.read_request(at_most_bytes=16_000)
    assert seen.body == body
    await connection.send(OK)
    await attempt.until_ended()
    await eventually(lambda: lab.upstream.idle_connections == 1)


async def test_times_are_monotonic_and_in_order(lab: Lab) -> None:
    before_s = time.perf_counter()
    attempt, connection, _ = await lab.arrive()
    assert before_s <= attempt.exchange.connected_s <= attempt.exchange.sent_s <= time.perf_counter()
    await connection.send(OK)
    await attempt.until_ended()


# --- answers


@pytest.mark.parametrize("name", ANSWERS)
@pytest.mark.parametrize("delivery", ["whole", "head then body", "byte by byte"])
async def test_an_answer_is_read_in_each_framing(lab: Lab, name: str, delivery: str) -> None:
    answer, body, reusable, by_close = ANSWERS[name]
    attempt, connection, _ = await lab.arrive()
    if delivery == "whole":
        await connection.send(answer)
    elif delivery == "byte by byte":
        await connection.send_byte_by_byte(answer)
    else:
        head, rest = answer.split(b"\r\n\r\n", 1)
        await connection.send(head + b"\r\n\r\n")
        await eventually(lambda: attempt.head is not None)
        await connection.send(rest)
    if by_close:
        await eventually(lambda: attempt.body == body)
        assert not attempt.over
        connection.close()
    await attempt.until_ended()
    assert attempt.body == body
    assert attempt.status == int(answer.split(b" ")[1])
    if reusable:
        await eventually(lambda: lab.upstream.idle_connections == 1)
    else:
        await lab.until_nothing_is_open()


async def test_header_names_come_in_lower_case_in_order_with_repeats(lab: Lab) -> None:
    attempt, connection, _ = await lab.arrive()
    await connection.send(
        b"HTTP/1.1 429 Too Many\r\nContent-Type: text/Plain\r\nX-B:  2 \r\nx-a: 1\r\nX-b: 3\r\nRetry-After: 7\r\n"
        b"Content-Length: 2\r\n\r\nno"
    )
    await attempt.until_ended()
    assert attempt.head is not None
    assert attempt.head.headers == (
        (b"content-type", b"text/Plain"),
        (b"x-b", b"2"),
        (b"x-a", b"1"),
        (b"x-b", b"3"),
        (b"retry-after", b"7"),
        (b"content-length", b"2"),
    )


async def test_trailers_are_no_headers(lab: Lab) -> None:
    attempt, connection, _ = await lab.arrive()
    await connection.send(CHUNKED_HEAD + b"2\r\nok\r\n0\r\nx-late: 1\r\n\r\n")
    await attempt.until_ended()
    assert attempt.head is not None
    assert attempt.head.headers == ((b"transfer-encoding", b"chunked"),)


@pytest.mark.parametrize("together", [True, False], ids=["in one read", "one by one"])
async def test_interim_answers_are_skipped(lab: Lab, together: bool) -> None:
    parts = [
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"HTTP/1.1 103 Early Hints\r\nlink: </x>; rel=preload\r\ncontent-length: 3\r\n\r\n",
        b"HTTP/1.1 102 Processing\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx-final: 1\r\ncontent-length: 2\r\n\r\nok",
    ]
    attempt, connection, _ = await lab.arrive()
    if together:
        await connection.send(b"".join(parts))
    else:
        for part in parts:
            await connection.send_byte_by_byte(part)
    await attempt.until_ended()
    assert attempt.head is not None
    assert attempt.head.headers == ((b"x-final", b"1"), (b"content-length", b"2"))
    assert attempt.body == b"ok"
    await eventually(lambda: lab.upstream.idle_connections == 1)


async def test_chunks_that_come_in_one_read_are_one_piece(lab: Lab) -> None:
    attempt, connection, _ = await lab.arrive()
    await connection.send(CHUNKED_HEAD)
    await eventually(lambda: attempt.head is not None)
    await connection.send(b"".join(b"4\r\nabcd\r\n" for _ in range(50)))
    await eventually(lambda: len(attempt.body) == 200)
    assert len(attempt.pieces) == 1
    await connection.send(b"2\r\nef\r\n0\r\n\r\n")
    await attempt.until_ended()
    assert attempt.pieces == [b"abcd" * 50, b"ef"]


async def test_each_write_of_the_engine_goes_on_at_once(lab: Lab) -> None:
    attempt, connection, _ = await lab.arrive()
    await connection.send(CHUNKED_HEAD)
    for count in range(1, 21):
        await connection.send(b"8\r\ndata: x\n\r\n")
        await eventually(partial(_has_pieces, attempt, count))
    await connection.send(b"0\r\n\r\n")
    await attempt.until_ended()


@pytest.mark.parametrize("coding", [b"gzip", b"zstd", b"br", b"GZIP", b"identity, gzip"])
async def test_a_content_coding_nobody_accepted_is_an_error(lab: Lab, coding: bytes) -> None:
    attempt, connection, _ = await lab.arrive()
    await connection.send(
        b"HTTP/1.1 200 OK\r\ncontent-encoding: %b\r\ncontent-length: 4\r\n\r\n\x1f\x8b\x08\x00" % coding
    )
    error = await attempt.until_failed()
    assert (error.kind, error.sent) == ("encoding", True)
    assert attempt.head is None
    await connection.until_closed()
    await lab.until_nothing_is_open()


async def test_the_coding_identity_is_none(lab: Lab) -> None:
    attempt, connection, _ = await lab.arrive()
    await connection.send(b"HTTP/1.1 200 OK\r\ncontent-encoding: Identity\r\ncontent-length: 2\r\n\r\nok")
    await attempt.until_ended()
    assert attempt.body == b"ok"


@pytest.mark.parametrize("stays", [False, True], ids=["then closes", "and stays"])
async def test_an_answer_before_the_request_is_whole_is_an_answer(lab: Lab, stays: bool) -> None:
    attempt = await lab.start(WireRequest("POST", "/v1/chat/completions", (), bytes(5_000_000)))
    connection = await lab.peer.accept()
    await connection.read_head()
    await connection.send(b"HTTP/1.1 413 Too Large\r\nconnection: close\r\ncontent-length: 9\r\n\r\ntoo large")
    if not stays:
        connection.close()
    await attempt.until_ended()
    assert (attempt.status, attempt.body) == (413, b"too large")
    await lab.until_nothing_is_open()


async def test_a_connection_with_half_a_request_on_it_is_not_used_again(lab: Lab) -> None:
    attempt = await lab.start(WireRequest("POST", "/v1/chat/completions", (), bytes(5_000_000)))
    connection = await lab.peer.accept()
    await connection.read_head()
    await connection.send(OK)
    await attempt.until_ended()
    await connection.until_closed()
    await lab.until_nothing_is_open()


# --- broken answers


@pytest.mark.parametrize("reset", [False, True], ids=["close", "reset"])
@pytest.mark.parametrize("name", TRUNCATED)
async def test_a_body_that_breaks_off_is_truncated(lab: Lab, name: str, reset: bool) -> None:
    attempt, connection, _ = await lab.arrive()
    await connection.send(TRUNCATED[name])
    await eventually(lambda: attempt.head is not None)
    if reset:
        connection.reset()
    else:
        connection.close()
    error = await attempt.until_failed()
    assert (error.kind, error.sent) == ("truncated", True)
    await lab.until_nothing_is_open()


async def test_what_came_before_the_break_is_given_on(lab: Lab) -> None:
    attempt, connection, _ = await lab.arrive()
    await connection.send(CHUNKED_HEAD + b"5\r\nhello\r\n9\r\nwor")
    connection.close()
    error = await attempt.until_failed()
    assert error.kind == "truncated"
    assert attempt.body == b"hellowor"


async def test_a_reset_does_not_end_a_close_delimited_body(lab: Lab) -> None:
    attempt, connection, _ = await lab.arrive()
    await connection.send(CLOSE_HEAD + b"0123")
    await eventually(lambda: attempt.body == b"0123")
    connection.reset()
    error = await attempt.until_failed()
    assert error.kind == "truncated"


@pytest.mark.parametrize("reset", [False, True], ids=["close", "reset"])
@pytest.mark.parametrize(
    "said",
    [b"", b"H", b"HTTP/1.1 200 OK\r\ncontent-", b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 200 OK\r\nx: y\r\n"],
)
async def test_a_new_connection_that_closes_before_a_whole_head_is_a_reset_and_is_not_tried_again(
    lab: Lab, said: bytes, reset: bool
) -> None:
    attempt, connection, _ = await lab.arrive()
    await connection.send(said)
    if reset:
        connection.reset()
    else:
        connection.close()
    error = await attempt.until_failed()
    assert (error.kind, error.sent) == ("reset", True)
    assert not attempt.exchange.reused
    await lab.until_nothing_is_open()
    assert lab.peer.accepted == 1


@pytest.mark.parametrize("name", MALFORMED)
async def test_what_is_not_http_is_malformed(lab: Lab, name: str) -> None:
    attempt, connection, _ = await lab.arrive()
    await connection.send(MALFORMED[name])
    error = await attempt.until_failed()
    assert (error.kind, error.sent) == ("malformed", True)
    assert attempt.head is None
    await connection.until_closed()
    await lab.until_nothing_is_open()


async def test_garbage_is_malformed_also_when_the_peer_closes_behind_it(lab: Lab) -> None:
    attempt, connection, _ = await lab.arrive()
    await connection.send(MALFORMED["another protocol"])
    connection.close()
    error = await attempt.until_failed()
    assert error.kind == "malformed"


@pytest.mark.parametrize("body", [b"zz\r\nhello\r\n", b"-5\r\nhello\r\n", b"5\r\nhelloXX5\r\n"])
async def test_broken_chunks_are_malformed(lab: Lab, body: bytes) -> None:
    attempt, connection, _ = await lab.arrive()
    await connection.send(CHUNKED_HEAD)
    await eventually(lambda: attempt.head is not None)
    await connection.send(body)
    error = await attempt.until_failed()
    assert error.kind == "malformed"
    await connection.until_closed()


@pytest.mark.parametrize("filler", [b"x-filler: 0123456789\r\n", b"x"], ids=["of many headers", "of one line"])
async def test_a_head_that_never_ends_is_malformed_at_a_bound(lab: Lab, filler: bytes) -> None:
    attempt, connection, _ = await lab.arrive()
    await connection.send(b"HTTP/1.1 200 OK\r\nx-start: ")
    try:
        for _ in range(200):
            await connection.send((filler * 4_096)[:4_096])
            await asyncio.sleep(0)
            if attempt.over:
                break
    except ConnectionError:
        pass
    error = await attempt.until_failed()
    assert error.kind == "malformed"
    await lab.until_nothing_is_open()


@pytest.mark.parametrize("filler", [b"x-filler: 0123456789\r\n", b"x"], ids=["of many", "of one line"])
async def test_trailers_that_never_end_are_malformed_at_a_bound(lab: Lab, filler: bytes) -> None:
    attempt, connection, _ = await lab.arrive()
    await connection.send(CHUNKED_HEAD + b"2\r\nok\r\n0\r\nx-start: ")
    try:
        for _ in range(1_000):
            await connection.send((filler * 4_096)[:4_096])
            await asyncio.sleep(0)
            if attempt.over:
                break
    except ConnectionError:
        pass
    error = await attempt.until_failed()
    assert error.kind == "malformed"
    await lab.until_nothing_is_open()


async def test_a_head_of_20_kilobytes_is_fine(lab: Lab) -> None:
    attempt, connection, _ = await lab.arrive()
    lines = b"".join(b"x-%d: %b\r\n" % (number, b"v" * 90) for number in range(200))
    await connection.send(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n" + lines + b"\r\nok")
    await attempt.until_ended()
    assert attempt.head is not None
    assert len(attempt.head.headers) == 201


# --- connections: reuse, idling, the silent retry


async def test_requests_one_after_the_other_share_a_connection(lab: Lab) -> None:
    connection = await lab.warm()
    for name in ("chunked", "content-length", "204", "chunked with extensions and trailers"):
        attempt = await lab.start()
        assert attempt.exchange.reused
        await connection.read_request()
        await connection.send(ANSWERS[name][0])
        await attempt.until_ended()
        assert attempt.body == ANSWERS[name][1]
    assert lab.peer.accepted == 1
    assert lab.upstream.open_connections == 1


async def test_requests_at_the_same_time_have_connections_of_their_own(lab: Lab) -> None:
    first, first_connection, _ = await lab.arrive()
    second, second_connection, _ = await lab.arrive()
    assert lab.upstream.open_connections == 2
    assert lab.upstream.idle_connections == 0
    await second_connection.send(OK)
    await second.until_ended()
    assert not first.over
    await first_connection.send(OK)
    await first.until_ended()
    await eventually(lambda: lab.upstream.idle_connections == 2)


async def test_a_request_sent_from_on_end_finds_the_connection_idle(lab: Lab) -> None:
    idle: list[int] = []

    class Ending(Attempt):
        def on_end(self) -> None:
            super().on_end()
            idle.append(lab.upstream.idle_connections)

    attempt, connection, _ = await lab.arrive(attempt=Ending())
    await connection.send(OK)
    await attempt.until_ended()
    assert idle == [1]


async def test_an_idle_connection_is_closed_at_the_idle_limit(lab: Lab) -> None:
    lab.connect_to(lab.peer.port, idle_s=0.05)
    attempt, connection, _ = await lab.arrive()
    await connection.send(OK)
    await attempt.until_ended()
    await connection.until_closed()
    await lab.until_nothing_is_open()
    assert lab.upstream.idle_connections == 0
    second, second_connection, _ = await lab.arrive()
    assert not second.exchange.reused
    await second_connection.send(OK)
    await second.until_ended()


async def test_the_idle_limit_does_not_touch_a_connection_in_use(lab: Lab) -> None:
    lab.connect_to(lab.peer.port, idle_s=0.05)
    attempt, connection, _ = await lab.arrive()
    await connection.send(OK)
    await attempt.until_ended()
    second = await lab.start()
    await asyncio.sleep(0.1)
    if second.exchange.reused:
        await connection.read_request()
    else:
        connection = await lab.peer.accept()
        await connection.read_request()
    await connection.send(OK)
    await second.until_ended()


async def test_without_an_idle_time_no_connection_is_kept(lab: Lab) -> None:
    lab.connect_to(lab.peer.port, idle_s=0.0)
    attempt, connection, _ = await lab.arrive()
    await connection.send(OK)
    await attempt.until_ended()
    await connection.until_closed()
    await lab.until_nothing_is_open()


async def test_an_idle_connection_that_the_peer_closes_is_forgotten(lab: Lab) -> None:
    connection = await lab.warm()
    connection.close()
    await lab.until_nothing_is_open()
    assert lab.upstream.idle_connections == 0


async def test_a_blank_line_behind_an_answer_spoils_nothing(lab: Lab) -> None:
    lab.peer.serve(_answers_and_a_blank_line)
    for _ in range(3):
        attempt = await lab.start()
        await attempt.until_ended()
        assert attempt.body == b"ok"


@pytest.mark.parametrize(
    "garbage", [b"garbage", b"\x00", b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil", b"HTTP/1.1"]
)
@pytest.mark.parametrize("late", [False, True], ids=["in one read", "later"])
@pytest.mark.parametrize("answer", [OK, ANSWERS["chunked"][0], ANSWERS["204"][0]], ids=["length", "chunked", "204"])
async def test_bytes_behind_an_answer_are_nobodys_answer(lab: Lab, answer: bytes, garbage: bytes, late: bool) -> None:
    attempt, connection, _ = await lab.arrive()
    await connection.send(answer if late else answer + garbage)
    await attempt.until_ended()
    if late:
        await connection.send(garbage)
    await connection.until_closed()
    await lab.until_nothing_is_open()
    second, second_connection, _ = await lab.arrive()
    await second_connection.send(ANSWERS["content-length"][0])
    await second.until_ended()
    assert second.body == b"0123456789"


@pytest.mark.parametrize("reset", [False, True], ids=["close", "reset"])
@pytest.mark.parametrize("moment", ["unnoticed", "as the request arrives"])
async def test_a_reused_connection_that_closes_unheard_is_replaced_once(lab: Lab, moment: str, reset: bool) -> None:
    connection = await lab.warm()
    if moment == "unnoticed":
        (connection.reset if reset else connection.close)()
        attempt = await lab.start()
    else:
        attempt = await lab.start()
        await connection.receive()
        (connection.reset if reset else connection.close)()
    fresh = await lab.peer.accept()
    assert (await fresh.read_request()).body == REQUEST.body
    await fresh.send(OK)
    await attempt.until_ended()
    assert (attempt.status, attempt.body) == (200, b"ok")
    assert not attempt.exchange.reused
    assert lab.peer.accepted == 2


async def test_a_large_request_on_a_reused_connection_that_closes_goes_out_again_whole(lab: Lab) -> None:
    connection = await lab.warm()
    body = os.urandom(3_000_000)
    attempt = await lab.start(WireRequest("POST", "/v1/chat/completions", (), body))
    await connection.read_head()
    connection.close()
    fresh = await lab.peer.accept()
    assert (await fresh.read_request()).body == body
    await fresh.send(OK)
    await attempt.until_ended()


async def test_the_replacement_is_not_replaced(lab: Lab) -> None:
    connection = await lab.warm()
    attempt = await lab.start()
    await connection.read_request()
    connection.close()
    fresh = await lab.peer.accept()
    await fresh.read_request()
    fresh.close()
    error = await attempt.until_failed()
    assert error.kind == "reset"
    await lab.until_nothing_is_open()
    assert lab.peer.accepted == 2


async def test_all_idle_connections_dead_at_once_cost_one_replacement(lab: Lab) -> None:
    pairs = [await lab.arrive() for _ in range(4)]
    for attempt, connection, _ in pairs:
        await connection.send(OK)
        await attempt.until_ended()
    await eventually(lambda: lab.upstream.idle_connections == 4)
    for _, connection, _ in pairs:
        connection.close()
    attempt, fresh, _ = await lab.arrive()
    await fresh.send(OK)
    await attempt.until_ended()
    assert lab.peer.accepted == 5


async def test_a_replacement_that_cannot_connect_is_a_connect_error(lab: Lab) -> None:
    connection = await lab.warm()
    attempt = await lab.start()
    await connection.read_request()
    lab.peer.stop_listening()
    connection.close()
    error = await attempt.until_failed()
    assert error.kind == "connect"
    await lab.until_nothing_is_open()


@pytest.mark.parametrize("said", [b"H", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 100 Continue\r\n\r\n"])
async def test_a_reused_connection_that_said_anything_is_not_replaced(lab: Lab, said: bytes) -> None:
    connection = await lab.warm()
    attempt = await lab.start()
    await connection.read_request()
    await connection.send(said)
    connection.close()
    error = await attempt.until_failed()
    assert error.kind == "reset"
    await lab.until_nothing_is_open()
    assert lab.peer.accepted == 1


@pytest.mark.parametrize("way", ["abort", "release"])
async def test_leaving_while_the_connection_is_replaced_leaves_nothing_open(lab: Lab, way: str) -> None:
    connection = await lab.warm()
    attempt = await lab.start()
    await connection.read_request()
    connection.close()
    while attempt.exchange.reused:  # noqa: ASYNC110 (each pass of the loop counts: connecting takes only a few)
        await asyncio.sleep(0)
    getattr(attempt, way)()
    lab.peer.serve(_answers)
    second = await lab.start()
    await second.until_ended()
    await eventually(lambda: lab.upstream.open_connections == lab.upstream.idle_connections)


# --- connecting


async def test_a_refused_connection_is_a_connect_error(lab: Lab) -> None:
    lab.peer.stop_listening()
    with pytest.raises(TransportError) as caught:
        await lab.start()
    assert (caught.value.kind, caught.value.sent) == ("connect", False)
    assert lab.upstream.open_connections == 0


async def test_a_name_that_does_not_resolve_is_a_connect_error(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    async def unknown(*_: object, **__: object) -> list[object]:
        raise OSError("Name or service not known")

    monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", unknown, raising=False)
    with pytest.raises(TransportError) as caught:
        await lab.start()
    assert caught.value.kind == "connect"


async def test_connecting_that_takes_too_long_is_a_connect_timeout(lab: Lab) -> None:
    peer = RawPeer(backlog=0)
    peer.fill_backlog()
    lab.connect_to(peer.port)
    with pytest.raises(TransportError) as caught:
        await lab.start(connect_timeout_s=0.1)
    assert (caught.value.kind, caught.value.sent) == ("connect_timeout", False)
    assert lab.upstream.open_connections == 0
    await peer.aclose()


async def test_the_connect_timeout_ends_with_connecting(lab: Lab) -> None:
    attempt = await lab.start(connect_timeout_s=1.0)
    connection = await lab.peer.accept()
    await connection.read_request()
    await asyncio.sleep(1.1)
    assert not attempt.over
    await connection.send(OK)
    await attempt.until_ended()


async def test_cancelling_while_connecting_leaves_nothing_open(lab: Lab) -> None:
    peer = RawPeer(backlog=0)
    peer.fill_backlog()
    lab.connect_to(peer.port)
    before = _open_sockets()
    attempt = Attempt()
    sending = asyncio.ensure_future(lab.upstream.send(REQUEST, attempt, connect_timeout_s=WAIT_S))
    await eventually(lambda: _open_sockets() > before)
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    await eventually(lambda: _open_sockets() == before)
    assert lab.upstream.open_connections == 0
    assert attempt.breaches == []
    await peer.aclose()


@pytest.mark.parametrize("spins", range(12))
async def test_cancelling_at_any_step_of_send_leaves_nothing_open(lab: Lab, spins: int) -> None:
    attempt = Attempt()
    sending = asyncio.ensure_future(lab.upstream.send(REQUEST, attempt, connect_timeout_s=WAIT_S))
    for _ in range(spins):
        await asyncio.sleep(0)
    if not sending.cancel():
        attempt.sent(await sending)
        attempt.abort()
    await asyncio.gather(sending, return_exceptions=True)
    await lab.until_nothing_is_open()
    assert attempt.breaches == []


# --- leaving


@pytest.mark.parametrize("paused", [False, True], ids=["reading", "paused"])
@pytest.mark.parametrize("name", PREFIXES)
async def test_an_abort_is_felt_by_the_peer_at_once(lab: Lab, name: str, paused: bool) -> None:
    attempt, connection, _ = await lab.arrive()
    await connection.send(PREFIXES[name])
    if b"\r\n\r\n" in PREFIXES[name]:
        await eventually(lambda: attempt.head is not None)
    if paused:
        attempt.exchange.pause()
    attempt.abort()
    await connection.until_closed()
    await lab.until_nothing_is_open()
    attempt.exchange.abort()


async def test_an_abort_right_after_send_is_felt_by_the_peer(lab: Lab) -> None:
    attempt = await lab.start()
    attempt.abort()
    connection = await lab.peer.accept()
    await connection.until_closed()
    await lab.until_nothing_is_open()


async def test_an_abort_while_the_request_is_still_going_out_closes_at_once(lab: Lab) -> None:
    attempt = await lab.start(WireRequest("POST", "/v1/chat/completions", (), bytes(5_000_000)))
    connection = await lab.peer.accept()
    await connection.read_head()
    attempt.abort()
    await lab.until_nothing_is_open()
    await connection.until_closed()


@pytest.mark.parametrize("call", ["when_head", "when_body"])
async def test_an_abort_from_within_a_call_is_the_last_call(lab: Lab, call: str) -> None:
    attempt = Attempt()
    setattr(attempt, call, attempt.abort)
    attempt, connection, _ = await lab.arrive(attempt=attempt)
    await connection.send(OK + b"garbage")
    await connection.until_closed()
    await lab.until_nothing_is_open()
    assert not attempt.over


async def test_an_abort_after_the_end_does_not_touch_the_connection(lab: Lab) -> None:
    connection = await lab.warm()
    lab.attempts[0].exchange.abort()
    lab.attempts[0].exchange.release()
    attempt = await lab.start()
    lab.attempts[0].exchange.abort()
    lab.attempts[0].exchange.pause()
    await connection.read_request()
    await connection.send(OK)
    await attempt.until_ended()
    assert lab.peer.accepted == 1


@pytest.mark.parametrize("name", ["before the head", "in the head", "in the body", "in a length body"])
@pytest.mark.parametrize("paused", [False, True], ids=["reading", "paused"])
async def test_a_released_exchange_gives_its_connection_back_when_the_body_ends(
    lab: Lab, name: str, paused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    _set_grace(monkeypatch, WAIT_S)
    start = PREFIXES[name]
    whole = (
        ANSWERS["content-length"][0]
        if name == "in a length body"
        else CHUNKED_HEAD + b"5\r\nhello\r\n5\r\nworld\r\n0\r\n\r\n"
    )
    if name == "in the head":
        whole = OK
    start = whole[: len(start)] if name != "in the head" else OK[:20]
    attempt, connection, _ = await lab.arrive()
    if paused:
        attempt.exchange.pause()
    await connection.send(start)
    if not paused and b"\r\n\r\n" in start:
        await eventually(lambda: attempt.head is not None)
    attempt.release()
    await connection.send(whole[len(start) :])
    await eventually(lambda: lab.upstream.idle_connections == 1)
    second = await lab.start()
    assert second.exchange.reused
    await connection.read_request()
    await connection.send(OK)
    await second.until_ended()
    assert lab.peer.accepted == 1


async def test_a_released_exchange_is_closed_when_the_body_does_not_end(lab: Lab) -> None:
    attempt, connection, _ = await lab.arrive()
    await connection.send(PREFIXES["in the body"])
    await eventually(lambda: attempt.body == b"hellowo")
    attempt.release()
    assert lab.upstream.open_connections == 1
    await connection.until_closed()
    await lab.until_nothing_is_open()


async def test_a_released_exchange_may_still_be_aborted(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    _set_grace(monkeypatch, 60.0)
    attempt, connection, _ = await lab.arrive()
    await connection.send(PREFIXES["in the body"])
    await eventually(lambda: attempt.body == b"hellowo")
    attempt.release()
    attempt.abort()
    await connection.until_closed()
    await lab.until_nothing_is_open()


async def test_the_connection_of_a_released_exchange_outlives_the_grace_in_other_hands(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    _set_grace(monkeypatch, 1.0)
    attempt, connection, _ = await lab.arrive()
    await connection.send(CHUNKED_HEAD)
    await eventually(lambda: attempt.head is not None)
    attempt.release()
    await connection.send(b"0\r\n\r\n")
    await eventually(lambda: lab.upstream.idle_connections == 1)
    second = await lab.start()
    await connection.read_request()
    await asyncio.sleep(1.1)
    await connection.send(OK)
    await second.until_ended()


@pytest.mark.parametrize("name", PREFIXES)
async def test_closing_the_upstream_ends_open_exchanges_silently(lab: Lab, name: str) -> None:
    attempt, connection, _ = await lab.arrive()
    await connection.send(PREFIXES[name])
    attempt.deaf = attempt.over or not PREFIXES[name]
    await lab.upstream.aclose()
    attempt.deaf = True
    await connection.until_closed()
    await lab.until_nothing_is_open()


async def test_closing_the_upstream_closes_idle_connections(lab: Lab) -> None:
    connection = await lab.warm()
    await lab.upstream.aclose()
    await connection.until_closed()
    await lab.until_nothing_is_open()
    assert lab.upstream.idle_connections == 0


@pytest.mark.parametrize("steps", range(3))
async def test_closing_the_upstream_ends_a_send_that_still_connects(lab: Lab, steps: int) -> None:
    sending = asyncio.ensure_future(lab.upstream.send(REQUEST, Attempt(), connect_timeout_s=WAIT_S))
    for _ in range(steps):
        await asyncio.sleep(0)
    await lab.upstream.aclose()
    async with asyncio.timeout(WAIT_S):
        with pytest.raises(TransportError, match="closes its connections") as raised:
            await sending
    assert raised.value.kind == "local"
    await lab.until_nothing_is_open()


async def test_two_hundred_rounds_of_churn_leave_room_for_normal_requests(lab: Lab) -> None:  # RW-22
    lab.peer.serve(_streams)
    for number in range(200):
        attempts = [await lab.start() for _ in range(4)]
        for index, attempt in enumerate(attempts):
            for _ in range((number * 3 + index * 5) % 17):
                await asyncio.sleep(0)
            attempt.abort()
    await eventually(lambda: lab.upstream.open_connections == lab.upstream.idle_connections)
    attempts = list(await asyncio.gather(*(lab.start() for _ in range(12))))
    for attempt in attempts:
        await attempt.until_ended()
        assert attempt.body == b"tick" * 8
    assert lab.upstream.open_connections == 12


async def test_churn_of_sends_cancelled_half_way_leaves_nothing_open(lab: Lab) -> None:  # RW-22
    lab.peer.serve(_streams)
    for number in range(100):
        sends = [
            asyncio.ensure_future(lab.upstream.send(REQUEST, Attempt(), connect_timeout_s=WAIT_S)) for _ in range(4)
        ]
        for _ in range(number % 9):
            await asyncio.sleep(0)
        for send in sends:
            if not send.cancel():
                send.result().abort()
        for result in await asyncio.gather(*sends, return_exceptions=True):
            if not isinstance(result, BaseException):
                result.abort()
    await eventually(lambda: lab.upstream.open_connections == lab.upstream.idle_connections)
    attempt = await lab.start()
    await attempt.until_ended()


# --- back-pressure


@pytest.mark.parametrize("framing", ["length", "chunked"])
async def test_a_paused_exchange_stops_the_engine_and_loses_nothing(lab: Lab, framing: str) -> None:
    body = bytes(range(256)) * 32_768  # 8 MiB
    data, head = body, b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body)
    if framing == "chunked":
        piece = 4_096
        data = b"".join(b"1000\r\n%b\r\n" % body[at : at + piece] for at in range(0, len(body), piece)) + b"0\r\n\r\n"
        head = CHUNKED_HEAD
    attempt, connection, _ = await lab.arrive()
    await connection.send(head)
    await eventually(lambda: attempt.head is not None)
    attempt.exchange.pause()
    taken = 0
    while more := await connection.send_until_full(data[taken:]):  # the kernel lets some through as it probes
        taken += more
        assert taken < 2_000_000, f"a paused exchange took {taken} bytes"
    attempt.exchange.resume()
    await connection.send(data[taken:])
    await attempt.until_ended()
    assert attempt.body == body


async def test_pausing_in_every_piece_still_brings_everything(lab: Lab) -> None:
    loop = asyncio.get_running_loop()
    attempt = Attempt()

    def breathe() -> None:
        attempt.exchange.pause()
        loop.call_soon(attempt.exchange.resume)

    attempt.when_head = attempt.when_body = breathe
    attempt, connection, _ = await lab.arrive(attempt=attempt)
    body = os.urandom(1_000_000)
    await connection.send(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n" + body)
    await attempt.until_ended()
    assert attempt.body == body


async def test_an_exchange_paused_at_the_end_of_its_answer_does_not_keep_the_next_one_waiting(lab: Lab) -> None:
    attempt = Attempt()
    attempt.when_body = lambda: attempt.exchange.pause()
    attempt, connection, _ = await lab.arrive(attempt=attempt)
    await connection.send(OK)
    await attempt.until_ended()
    second = await lab.start()
    if second.exchange.reused:
        await connection.read_request()
    else:
        connection = await lab.peer.accept()
        await connection.read_request()
    await connection.send(OK)
    await second.until_ended()


async def test_a_pause_before_the_head_holds_until_resumed(lab: Lab) -> None:
    attempt, connection, _ = await lab.arrive()
    attempt.exchange.pause()
    attempt.exchange.pause()
    await connection.send(OK)
    await asyncio.sleep(0.05)
    attempt.exchange.resume()
    attempt.exchange.resume()
    await attempt.until_ended()
    assert attempt.body == b"ok"


# --- TLS


async def test_tls_is_spoken_and_its_connections_are_reused(
    lab: Lab, tls: tuple[ssl.SSLContext, ssl.SSLContext]
) -> None:
    server_tls, client_tls = tls
    server = await asyncio.start_server(_answers_tls, "127.0.0.1", 0, ssl=server_tls)
    lab.connect_to(server.sockets[0].getsockname()[1], tls=client_tls)
    for reused in (False, True, True):
        attempt = await lab.start(WireRequest("POST", "/v1/x", (), bytes(300_000)))
        assert attempt.exchange.reused == reused
        await attempt.until_ended()
        assert attempt.body == b"300000"
    assert lab.upstream.open_connections == 1
    await lab.upstream.aclose()
    server.close()


async def test_a_certificate_nobody_vouches_for_is_a_connect_error(
    lab: Lab, tls: tuple[ssl.SSLContext, ssl.SSLContext]
) -> None:
    server_tls, _ = tls
    server = await asyncio.start_server(_answers_tls, "127.0.0.1", 0, ssl=server_tls)
    lab.connect_to(server.sockets[0].getsockname()[1], tls=ssl.create_default_context())
    with pytest.raises(TransportError) as caught:
        await lab.start()
    assert (caught.value.kind, caught.value.sent) == ("connect", False)
    assert "certificate verify failed: self-signed certificate" in str(caught.value)
    assert "SSL_CERT_FILE" in str(caught.value)
    await lab.until_nothing_is_open()
    server.close()
    lab.loop_errors.clear()  # the server's side of the failed handshake


async def test_a_peer_that_speaks_no_tls_is_a_connect_error(lab: Lab) -> None:
    lab.connect_to(lab.peer.port, tls=ssl.create_default_context())
    sending = asyncio.ensure_future(lab.start())
    connection = await lab.peer.accept()
    await connection.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    with pytest.raises(TransportError) as caught:
        await sending
    assert caught.value.kind == "connect"
    assert "does it speak TLS on this port?" in str(caught.value)
    await lab.until_nothing_is_open()


async def test_a_handshake_that_never_ends_is_a_connect_timeout(lab: Lab) -> None:
    lab.connect_to(lab.peer.port, tls=ssl.create_default_context())
    with pytest.raises(TransportError) as caught:
        await lab.start(connect_timeout_s=0.1)
    assert caught.value.kind == "connect_timeout"
    connection = await lab.peer.accept()
    await connection.until_closed()
    await lab.until_nothing_is_open()


async def test_cancelling_in_the_handshake_leaves_nothing_open(lab: Lab) -> None:
    lab.connect_to(lab.peer.port, tls=ssl.create_default_context())
    sending = asyncio.ensure_future(lab.upstream.send(REQUEST, Attempt(), connect_timeout_s=WAIT_S))
    connection = await lab.peer.accept()
    assert await connection.receive()
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    await connection.until_closed()
    await lab.until_nothing_is_open()


async def _answers(connection: PeerConnection) -> None:
    while True:
        await connection.read_request()
        await connection.send(OK)


async def _answers_and_a_blank_line(connection: PeerConnection) -> None:
    while True:
        await connection.read_request()
        await connection.send(OK + b"\r\n")


async def _streams(connection: PeerConnection) -> None:
    while True:
        await connection.read_request()
        await connection.send(CHUNKED_HEAD)
        for _ in range(8):
            await connection.send(b"4\r\ntick\r\n")
            await asyncio.sleep(0)
        await connection.send(b"0\r\n\r\n")


async def _answers_tls(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while head := await reader.readuntil(b"\r\n\r\n"):
            length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
            size = b"%d" % len(await reader.readexactly(length))
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(size), size))
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


def _set_grace(monkeypatch: pytest.MonkeyPatch, grace_s: float) -> None:
    for module in (gateway.upstream.native, gateway.upstream.via_httpx2):
        monkeypatch.setattr(module, "RELEASE_GRACE_S", grace_s)


def _has_pieces(attempt: Attempt, count: int) -> bool:
    return len(attempt.pieces) == count


def _open_sockets() -> int:
    folder = Path("/proc/self/fd")
    return sum(entry.is_socket() for entry in folder.iterdir() if entry.exists())

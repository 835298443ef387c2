#!/usr/bin/env python3
"""Checks the measuring side itself: does ssebench accept what is right and catch what is wrong, does mockengine behave?

make && ./selftest.py [--bin build]
"""

import argparse
import contextlib
import http.client
import json
import socket
import struct
import subprocess
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
SEED = 100000  # ssebench's first request
BIN = HERE / "build"


def event(text, i="chatcmpl-1", finish="null"):
    delta = f'{{"index":0,"delta":{{"content":"{text}"}},"finish_reason":{finish}}}'
    return f'data: {{"id":"{i}","object":"chat.completion.chunk","choices":[{delta}]}}\n\n'


def tokens(*offsets):
    return [event(f" w{SEED + k}") for k in offsets]


FIN = event("", finish='"stop"')
USAGE = 'data: {"id":"chatcmpl-1","choices":[],"usage":{"prompt_tokens":1,"completion_tokens":3}}\n\n'
DONE = "data: [DONE]\n\n"
ERROR = 'data: {"error":{"message":"engine died"}}\n\n'
GOOD = [*tokens(0, 1, 2), FIN, USAGE, DONE]


def chunked(events, end=True, status="200 OK"):
    body = b"".join(b"%x\r\n%s\r\n" % (len(e), e.encode()) for e in events)
    return (
        f"HTTP/1.1 {status}\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n".encode()
        + body
        + (b"0\r\n\r\n" if end else b"")
    )


def length(text, status="200 OK", extra=""):
    return f"HTTP/1.1 {status}\r\ncontent-length: {len(text)}\r\n{extra}\r\n{text}".encode()


TEXT = f" w{SEED} w{SEED + 1} w{SEED + 2}"
FULL = f'{{"id":"x","choices":[{{"message":{{"role":"assistant","content":"{TEXT}"}},"finish_reason":"stop"}}]}}'

# name: (answer, how, flags, the one failure counter that must be 1, or "ok")
CASES = {
    "good": (chunked(GOOD), "", "--usage", "ok"),
    "good, byte by byte": (chunked(GOOD), "bytes", "--usage", "ok"),
    "good, content-length": (length("".join(GOOD)), "", "--usage", "ok"),
    "good, until close": (b"HTTP/1.1 200 OK\r\n\r\n" + "".join(GOOD).encode(), "close", "--usage", "ok"),
    "good, CRLF lines, comments, no space after data": (
        chunked([": ping\r\n\r\n"] + [e.replace("data: ", "data:").replace("\n", "\r\n") for e in GOOD]),
        "",
        "--usage",
        "ok",
    ),
    "good, several events in one chunk, two tokens in one event": (
        chunked(["".join([event(f" w{SEED} w{SEED + 1}"), *tokens(2)]), FIN + DONE]),
        "",
        "",
        "ok",
    ),
    "good, after 100 Continue": (b"HTTP/1.1 100 Continue\r\n\r\n" + chunked(GOOD), "", "--usage", "ok"),
    "good, spaces in the JSON": (chunked([e.replace('":', '": ') for e in GOOD]), "", "--usage", "ok"),
    "good, not streamed": (length(FULL), "", "--no-stream", "ok"),
    "a token is missing": (chunked([*tokens(0, 2), FIN, DONE]), "", "", "order"),
    "a token comes twice": (chunked([*tokens(0, 1, 1, 2), FIN, DONE]), "", "", "order"),
    "tokens swapped": (chunked([*tokens(1, 0, 2), FIN, DONE]), "", "", "order"),
    "a token of another stream": (chunked(tokens(0, 1) + tokens(500) + [FIN, DONE]), "", "", "order"),
    "too few tokens": (chunked([*tokens(0, 1), FIN, DONE]), "", "", "count"),
    "too many tokens": (chunked([*tokens(0, 1, 2, 3), FIN, DONE]), "", "", "count"),
    "no [DONE]": (chunked([*tokens(0, 1, 2), FIN]), "", "", "marker"),
    "id changes": (chunked([*tokens(0, 1), event(f" w{SEED + 2}", "chatcmpl-2"), FIN, DONE]), "", "", "id"),
    "usage asked for and not sent": (chunked([*tokens(0, 1, 2), FIN, DONE]), "", "--usage", "usage"),
    "an error event, then a clean end": (chunked([*tokens(0, 1), ERROR, DONE]), "", "", "error_event"),
    "an error event, then the last chunk": (chunked([*tokens(0, 1), ERROR]), "", "", "error_event"),
    "an error event, until close": (
        b"HTTP/1.1 200 OK\r\n\r\n" + "".join([*tokens(0, 1), ERROR]).encode(),
        "close",
        "",
        "error_event",
    ),
    "an error event, then closed": (chunked([*tokens(0, 1), ERROR], end=False), "close", "", "error_event_cut"),
    "an error event, then reset": (chunked([*tokens(0, 1), ERROR], end=False), "reset", "", "error_event_cut"),
    "an error event, then more tokens and a clean end": (
        chunked([*tokens(0, 1), ERROR, *tokens(2), FIN, DONE]),
        "",
        "",
        "error_event",
    ),
    "status 500": (length('{"error":1}', "500 Internal Server Error"), "", "", "status"),
    "closed in mid-stream": (chunked(tokens(0, 1), end=False), "close", "", "truncated"),
    "reset in mid-stream": (chunked(tokens(0, 1), end=False), "reset", "", "reset"),
    "no last chunk": (chunked(GOOD, end=False), "close", "", "truncated"),
    "body shorter than its length": (length("".join(GOOD))[:-20], "close", "", "truncated"),
    "bad chunk size": (chunked(tokens(0)).replace(b"0\r\n\r\n", b"zz\r\n\r\n"), "", "", "framing"),
    "not HTTP": (b"hello, this is no HTTP\r\n\r\n", "", "", "framing"),
    "closed without an answer": (b"", "close", "", "reset"),
    "no answer": (b"", "hang", "--timeout 0.5", "timeout"),
    "answer cut short, not streamed": (length(FULL[:-30].replace(f" w{SEED + 2}", "")), "", "--no-stream", "count"),
}


def serve(sock, answer, how):
    c, _ = sock.accept()
    c.recv(65536)
    c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if how == "bytes":
        for k in range(len(answer)):
            c.sendall(answer[k : k + 1])
    else:
        c.sendall(answer)
    if how == "reset":
        time.sleep(0.1)
        c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    if how in ("close", "reset"):
        c.close()
        return
    c.settimeout(2)
    with contextlib.suppress(OSError):
        c.recv(10)  # until the client leaves
    c.close()


def check_client():
    bad = 0
    for name, (answer, how, flags, want) in CASES.items():
        s = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=serve, args=(s, answer, how), daemon=True).start()
        out = subprocess.run(
            [BIN / "ssebench", "--port", str(s.getsockname()[1]), "--requests", "1", "--tokens", "3", *flags.split()],
            stdout=subprocess.PIPE,
            timeout=20,
        )
        r = json.loads(out.stdout)
        got = "ok" if r["ok"] == 1 and not r["failed"] else ",".join(k for k, v in r["failures"].items() if v)
        s.close()
        if got != want:
            bad += 1
            print(f"FAIL ssebench: {name}: wanted {want}, got {got}: {r['first_error']}")
        done = want != "ok" and DONE.encode() in answer
        if r["failed_with_done"] != done:
            bad += 1
            print(f"FAIL ssebench: {name}: failed_with_done is {r['failed_with_done']}")
    return 2 * len(CASES), bad


def check_mock():
    s = socket.create_server(("127.0.0.1", 0))
    port = s.getsockname()[1]
    s.close()
    p = subprocess.Popen([BIN / "mockengine", "--port", str(port)])
    n = bad = 0

    def ok(name, cond):
        nonlocal n, bad
        n += 1
        if not cond:
            bad += 1
            print("FAIL mockengine:", name)

    def raw(data, pieces=1):
        c = socket.create_connection(("127.0.0.1", port))
        step = max(1, len(data) // pieces)
        for k in range(0, len(data), step):
            c.sendall(data[k : k + step])
            if pieces > 1:
                time.sleep(0.002)
        c.settimeout(0.5)
        out = b""
        try:
            while b := c.recv(65536):
                out += b
        except TimeoutError:
            pass
        c.close()
        return out

    def metric(name):
        h = http.client.HTTPConnection("127.0.0.1", port)
        h.request("GET", "/metrics")
        text = h.getresponse().read().decode()
        h.close()
        return int(text.split(f"\nmock_{name} ")[1].split()[0])

    try:
        time.sleep(0.3)
        body = json.dumps(
            {
                "model": "m",
                "max_tokens": 2,
                "seed": 7,
                "stream": True,
                "messages": [{"role": "user", "content": 'a "b\\" {[ stream: false'}],
            }
        ).encode()
        head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n"
        plain = head + b"content-length: %d\r\n\r\n" % len(body) + body
        r = raw(plain)
        ok("two tokens in order", r.find(b" w7") < r.find(b" w8") and b"[DONE]" in r and r.endswith(b"0\r\n\r\n"))
        ok("the request in many pieces", raw(plain, 40).count(b"data: ") == r.count(b"data: "))
        ch = (
            head
            + b"transfer-encoding: chunked\r\n\r\n"
            + b"".join(b"%x\r\n%s\r\n" % (len(body[k : k + 9]), body[k : k + 9]) for k in range(0, len(body), 9))
            + b"0\r\n\r\n"
        )
        ok("a chunked request body", raw(ch).count(b"data: ") == r.count(b"data: "))
        ok("a chunked request body in pieces", raw(ch, 50).count(b"data: ") == r.count(b"data: "))
        ok("pipelined requests", raw(plain * 3).count(b"[DONE]") == 3)
        ok(
            "HTTP/1.0: no chunks, then close",
            b"chunked" not in raw(plain.replace(b"HTTP/1.1", b"HTTP/1.0"))
            and b"[DONE]" in raw(plain.replace(b"HTTP/1.1", b"HTTP/1.0")),
        )
        ok(
            "expect: 100-continue",
            raw(plain.replace(b"host: x", b"host: x\r\nexpect: 100-continue")).startswith(b"HTTP/1.1 100"),
        )
        ok("malformed JSON is refused", b" 400 " in raw(plain[:-1] + b" "))
        ok("unknown path", b" 404 " in raw(b"GET /nope HTTP/1.1\r\n\r\n"))
        a0 = metric("aborts_total")
        c = socket.create_connection(("127.0.0.1", port))
        c.sendall(
            plain.replace(b"host: x", b"host: x\r\nx-mock-itl-ms: 50").replace(b'"max_tokens": 2', b'"max_tokens": 9')
        )
        time.sleep(0.12)
        ok("running gauge", metric("running") == 1)
        c.close()
        time.sleep(0.05)
        ok("an abort is seen", metric("aborts_total") == a0 + 1 and metric("running") == 0)
    finally:
        p.terminate()
        p.wait()
    return n, bad


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--bin", default=BIN)
    BIN = Path(ap.parse_args().bin).resolve()
    total = [sum(x) for x in zip(check_client(), check_mock(), strict=True)]
    print(f"{total[0] - total[1]} passed, {total[1]} failed")
    raise SystemExit(1 if total[1] else 0)

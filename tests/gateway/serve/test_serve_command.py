"""``weir serve`` as a process: what it prints, how it stops, what it says when it cannot start."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import socket
from pathlib import Path

import pytest

from gateway.__main__ import main
from gateway.probing import discovery
from gateway.probing.discovery import PORTS
from tests.fakes.gateway import config
from tests.fakes.patience import WAIT_S
from tests.fakes.raw_client import connect, r0, request_bytes
from tests.fakes.scripted import (
    ScriptedUpstream,
    chat_stream,
    done,
    end,
    fin,
    gate,
    hang,
    head,
    role,
    tok,
    unused_port,
)
from tests.fakes.weir_process import ended_well, refused, weir

CHAT = "/v1/chat/completions"


def written(folder: Path, text: str) -> str:
    path = folder / "weir.yaml"
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
async def test_a_signal_lets_running_streams_finish_and_refuses_new_ones(
    number: signal.Signals, tmp_path: Path
) -> None:
    opened = asyncio.Event()
    script = [head(200, "sse"), role(), tok("a"), gate(opened), tok("b"), fin("stop"), done(), end()]
    port = unused_port()
    async with (
        ScriptedUpstream(script) as u,
        weir("serve", "-c", written(tmp_path, config(u.url, listen=f"127.0.0.1:{port}"))) as process,
    ):
        await process.says("serving m on")
        async with connect(port) as client, connect(port) as idle:
            await idle.send(request_bytes("GET", "/healthz"))
            await idle.reply(method="GET")
            await client.send(request_bytes("POST", CHAT, r0()))
            await client.read_until(b'"content":"a"')
            process.signal(number)
            await refused(port)
            opened.set()
            reply = await client.reply()
            assert reply.content() == "ab"
            assert reply.done
        await ended_well(process)
        (line,) = [json.loads(line) for line in process.out.splitlines()]
        assert (line["msg"], line["outcome"], line["status"]) == ("request", "ok", 200)
        assert "stopping" in process.err.decode()


async def test_streams_that_outlast_the_drain_end_with_an_error_event(tmp_path: Path) -> None:
    port = unused_port()
    async with ScriptedUpstream([head(200, "sse"), tok("a"), hang()]) as u:
        text = config(u.url, listen=f"127.0.0.1:{port}", shutdown={"drain": "100ms"})
        async with weir("serve", "-c", written(tmp_path, text)) as process:
            await process.says("serving m on")
            async with connect(port) as client:
                await client.send(request_bytes("POST", CHAT, r0()))
                await client.read_until(b'"content":"a"')
                process.signal()
                reply = await client.reply()
                assert reply.stream_error is not None
                assert reply.stream_error["code"] == "shutting_down"
                assert not reply.done
            await asyncio.wait_for(u.last.left.wait(), WAIT_S)
            await ended_well(process)


async def test_without_a_file_it_serves_the_engines_that_it_finds(tmp_path: Path) -> None:
    port = next((port for port in PORTS[::-1] if port != 8080 and _free(port)), None)
    assert port is not None, "none of the ports on which engines are looked for is free"
    async with weir("engine", "--port", str(port)) as engine:
        await engine.says(str(port))
        listen = unused_port()
        async with weir("serve", "--listen", f"127.0.0.1:{listen}") as process:
            await process.says("serving ")
            found = re.search(rb"found \S.* on http://127\.0\.0\.1:%d: ([^\s,]+)" % port, process.err)
            assert found is not None, process.err.decode()
            model = found[1].decode()
            async with connect(listen) as client:
                await client.send(request_bytes("POST", CHAT, r0(model=model, max_tokens=4)))
                reply = await client.reply()
                assert reply.status == 200
                assert reply.done
            process.signal()
            await ended_well(process)
        engine.signal(signal.SIGINT)


async def test_a_file_in_the_folder_that_is_not_served_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(discovery, "PORTS", (unused_port(),))
    monkeypatch.setattr("uvloop.run", asyncio.run)
    told = "weir.yaml in this folder is not used: weir serve -c weir.yaml serves what it says"
    with pytest.raises(SystemExit):
        await asyncio.to_thread(main, ["serve"])
    assert told not in capsys.readouterr().err
    written(tmp_path, config("http://127.0.0.1:9"))
    with pytest.raises(SystemExit):
        await asyncio.to_thread(main, ["serve"])
    assert told in capsys.readouterr().err


def _free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


async def test_it_tells_the_port_that_it_took(tmp_path: Path) -> None:
    async with (
        ScriptedUpstream(chat_stream()) as u,
        weir("serve", "-c", written(tmp_path, config(u.url, listen="127.0.0.1:0"))) as process,
    ):
        await process.says("serving m on")
        told = re.search(rb"http://127\.0\.0\.1:(\d+)", process.err)
        assert told is not None
        assert int(told[1]) > 0
        async with connect(int(told[1])) as client:
            await client.send(request_bytes("POST", CHAT, r0()))
            assert (await client.reply()).done
        process.signal()
        await ended_well(process)


async def test_listen_on_the_command_line_wins(tmp_path: Path) -> None:
    port, other = unused_port(), unused_port()
    path = written(tmp_path, config("http://127.0.0.1:9", listen=f"127.0.0.1:{other}"))
    async with weir("serve", "-c", path, "--listen", f"127.0.0.1:{port}") as process:
        await process.says("serving m on")
        async with connect(port) as client:
            await client.send(request_bytes("GET", "/healthz"))
            assert (await client.reply(method="GET")).status == 200
        process.signal()
        await ended_well(process)


async def test_an_address_in_use_is_told_with_what_to_do(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        path = written(tmp_path, config("http://127.0.0.1:9", listen=f"127.0.0.1:{port}"))
        async with weir("serve", "-c", path) as process:
            assert await process.ended() == 1
            told = process.err.decode()
            assert str(port) in told
            assert "--listen" in told
            assert "Traceback" not in told


@pytest.mark.parametrize(
    ("text", "words"),
    [("pools: {}\n", "pools"), ("pols: {}\n", "pools"), (": : :", ""), ("", "pools"), ("- a\n", "")],
)
async def test_a_file_that_is_wrong_is_told_without_a_traceback(text: str, words: str, tmp_path: Path) -> None:
    async with weir("serve", "-c", written(tmp_path, text)) as process:
        assert await process.ended() == 1
        told = process.err.decode()
        assert "weir.yaml" in told
        assert words in told
        assert "Traceback" not in told


async def test_a_file_that_is_not_there_is_told_without_a_traceback(tmp_path: Path) -> None:
    async with weir("serve", "-c", str(tmp_path / "absent.yaml")) as process:
        assert await process.ended() == 1
        assert "absent.yaml" in process.err.decode()
        assert "Traceback" not in process.err.decode()


@pytest.mark.parametrize("workers", ["1", "2"])
async def test_the_admin_address_on_the_command_line_is_told(workers: str, tmp_path: Path) -> None:
    admin = f"127.0.0.1:{unused_port()}"
    path = written(tmp_path, config("http://127.0.0.1:9", listen="127.0.0.1:0", admin={"listen": admin}))
    async with weir("serve", "-c", path, "--listen", admin, "--workers", workers) as process:
        assert await process.ended() == 1
        told = process.err.decode()
        assert f"--listen {admin}: operators connect there (admin.listen is {admin})" in told
        assert "Traceback" not in told


@pytest.mark.parametrize("listen", ["nonsense", "8080", ":8080", "127.0.0.1:99999", "::1:8080"])
async def test_a_listen_address_that_is_none_is_told_without_a_traceback(listen: str, tmp_path: Path) -> None:
    path = written(tmp_path, config("http://127.0.0.1:9"))
    async with weir("serve", "-c", path, "--listen", listen) as process:
        assert await process.ended() in (1, 2)
        told = process.err.decode()
        assert "listen" in told
        assert "HOST" in told.upper()
        assert "Traceback" not in told

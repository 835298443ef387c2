"""``weir serve --workers N`` as processes: one serves for all, a dead one is replaced, and all of them stop."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.config import AdminConfig
from gateway.config.file import parse
from gateway.flight_log import BATCH
from gateway.server import CannotListen
from gateway.workers.command import supervise
from gateway.workers.supervisor import LONGEST_WAIT_S, MOST_STARTING, restart_wait_s
from gateway.workers.worker import READY
from tests.fakes.flown import Samples, samples, total
from tests.fakes.gateway import config
from tests.fakes.patience import WAIT_S
from tests.fakes.raw_client import RawConnection, Reply, connect, r0, request_bytes
from tests.fakes.scripted import (
    ScriptedUpstream,
    chat_stream,
    completion,
    done,
    end,
    fin,
    gate,
    hang,
    head,
    json_answer,
    role,
    tok,
    unused_port,
)
from tests.fakes.weir_process import ROOT, WeirProcess, ended_well, refused, weir

CHAT = "/v1/chat/completions"
WORKERS = 3
WITHIN_S = 20.0


class NoAnswer(Exception):
    """The connection ended before the answer."""


class Served:
    """One Weir with several workers.

    Attributes:
        process: Its supervisor.
        port: Where it listens.
        folder: Of its numbers.
    """

    def __init__(self, process: WeirProcess, port: int, folder: Path) -> None:
        self.process = process
        self.port = port
        self.folder = folder

    async def ask(self, method: str, path: str, body: object = None) -> Reply:
        async with connect(self.port) as client:
            await client.send(request_bytes(method, path, body))
            reply = await client.reply(method=method)
        if not reply.whole:
            raise NoAnswer
        return reply

    async def numbers(self) -> Samples:
        reply = await self.ask("GET", "/metrics")
        assert reply.status == 200
        return samples(reply.body.decode())

    async def until(self, name: str, value: float, **labels: str) -> Samples:
        """Scrapes until the sum of these series is that."""
        async with asyncio.timeout(WITHIN_S):
            while True:
                try:
                    read = await self.numbers()
                except (OSError, NoAnswer):  # whom the kernel chose has just died, or nobody lives just now
                    read = {}
                if read and total(read, name, **labels) == value:
                    return read
                await asyncio.sleep(0.02)

    async def pids(self) -> set[int]:
        """The processes of all workers, once all of them are there."""
        async with asyncio.timeout(WITHIN_S):
            while True:
                found = workers_of(self.process.pid)
                if len(found) == WORKERS:
                    return found
                await asyncio.sleep(0.02)


def workers_of(supervisor: int) -> set[int]:
    """The processes of all workers that are there now."""
    return {int(name) for name in os.listdir("/proc") if name.isdecimal() and _is_child(name, supervisor)}


def _is_child(pid: str, parent: int) -> bool:
    try:
        status = Path("/proc", pid, "status").read_text()
    except OSError:  # it has just ended
        return False
    found = re.search(r"^PPid:\t(\d+)$", status, re.MULTILINE)
    return found is not None and int(found[1]) == parent and "\nState:\tZ" not in status


@asynccontextmanager
async def serving(
    tmp_path: Path, url: str, workers: int = WORKERS, under: tuple[str, ...] = (), **top: Any
) -> AsyncGenerator[Served]:
    port, folder = unused_port(), tmp_path / "numbers"
    text = config(url, listen=f"127.0.0.1:{port}", metrics={"dir": str(folder)}, **top)
    path = tmp_path / "weir.yaml"
    path.write_text(text)
    async with weir("serve", "-c", str(path), "--workers", str(workers), under=under) as process:
        await process.says(f"with {workers} workers")
        yield Served(process, port, folder)


# --- serving


async def test_rw_30_all_workers_serve_and_each_tells_what_all_have_done(tmp_path: Path) -> None:
    async with ScriptedUpstream(chat_stream()) as u, serving(tmp_path, u.url) as served:
        for _ in range(100):
            assert (await served.ask("POST", CHAT, r0())).done
        read = await served.until("weir_requests_total", 100, outcome="ok")
        for _ in range(20):  # whoever answers
            assert total(read, "weir_requests_total", outcome="ok") == 100
            assert total(read, "weir_time_to_first_token_seconds_count") == 100
            assert total(read, "weir_workers") == WORKERS
            read = await served.numbers()
        workers = {dict(labels)["worker"] for name, labels in read if name == "process_cpu_seconds_total"}
        assert workers == {"0", "1", "2"}
        connected = total(read, "weir_endpoint_connect_seconds_count")
        assert connected >= 2, "one worker did everything"
        served.process.signal()
        await ended_well(served.process)
        assert len(served.process.out.splitlines()) == 100
        assert served.process.err.decode().count("serving m on") == 1
        assert list(served.folder.iterdir()) == []


async def test_gauges_are_those_of_all_workers(tmp_path: Path) -> None:
    async with (
        ScriptedUpstream([head(200, "sse"), role(), tok("a"), hang()]) as u,
        serving(tmp_path, u.url, shutdown={"drain": 0}) as served,
        streams(served, 6) as open_streams,
    ):
        assert len(open_streams) == 6
        read = await served.until("weir_requests_in_flight", 6)
        assert total(read, "weir_endpoint_in_flight") == 6
        assert total(read, "weir_endpoint_healthy") == 1


@asynccontextmanager
async def streams(served: Served, count: int) -> AsyncGenerator[list[RawConnection]]:
    """Streams that have begun."""
    async with AsyncExitStack() as stack:
        opened = [await stack.enter_async_context(connect(served.port)) for _ in range(count)]
        for connection in opened:
            await connection.send(request_bytes("POST", CHAT, r0()))
            await connection.read_until(b'"content":"a"')
        yield opened


# --- what the operator says


async def healths(served: Served, count: int = 30) -> set[str]:
    """What whoever answers says of the first endpoint."""
    return {(await served.ask("GET", "/weir/endpoints")).json()[0]["health"] for _ in range(count)}


async def until_all_say(served: Served, health: str) -> None:
    async with asyncio.timeout(WITHIN_S):
        while await healths(served) != {health}:
            pass


async def test_all_workers_do_what_one_is_told_and_so_does_one_that_comes_later(tmp_path: Path) -> None:
    async with ScriptedUpstream(chat_stream()) as u, serving(tmp_path, u.url) as served:
        assert (await served.ask("POST", "/weir/endpoints/m-0/drain")).json()["health"] == "draining"
        await until_all_say(served, "draining")
        before = await served.pids()
        os.kill(min(before), signal.SIGKILL)
        await served.until("weir_workers", WORKERS - 1)
        await served.until("weir_workers", WORKERS)
        assert await healths(served) == {"draining"}
        assert {(await served.ask("POST", CHAT, r0())).status for _ in range(12)} == {503}
        await served.ask("POST", "/weir/endpoints/m-0/readmit")
        await until_all_say(served, "healthy")
        assert (await served.ask("POST", CHAT, r0())).done
        served.process.signal()
        await ended_well(served.process)
        assert list(served.folder.iterdir()) == []


# --- a worker dies


async def test_a_killed_worker_is_replaced_and_no_counter_goes_down(tmp_path: Path) -> None:
    """Under load: clients that were not connected to the killed one notice nothing."""
    async with ScriptedUpstream(json_answer(completion())) as u, serving(tmp_path, u.url) as served:
        stop = asyncio.Event()
        answered = lost = 0

        async def load() -> None:
            nonlocal answered, lost
            while not stop.is_set():
                try:
                    reply = await served.ask("POST", CHAT, r0(stream=False))
                except (OSError, NoAnswer):
                    lost += 1  # was with the one that was killed
                    continue
                answered += reply.status == 200

        clients = [asyncio.create_task(load()) for _ in range(3)]
        last: Samples = {}

        async def scraped() -> None:
            nonlocal last
            try:
                read = await served.numbers()
            except (OSError, NoAnswer):
                return
            counters = {k: v for k, v in read.items() if _only_rises(k[0])}
            for key, value in last.items():
                assert counters.get(key, -1) >= value, key
            last = counters

        for killed in range(2):
            before = await served.pids()
            os.kill(min(before), signal.SIGKILL)
            async with asyncio.timeout(WITHIN_S):
                while len(set(await served.pids()) - before) != 1:
                    await scraped()
                await served.process.says("was ended by signal 9")
            enough = answered + 30
            async with asyncio.timeout(WITHIN_S):
                while answered < enough:
                    await scraped()
            assert killed + 1 == served.process.err.decode().count("was ended by signal 9")
        stop.set()
        await asyncio.gather(*clients)
        await served.until("weir_workers", WORKERS)
        # What a killed worker had not told of yet is lost: less than a batch
        async with asyncio.timeout(WITHIN_S):
            while total(await served.numbers(), "weir_requests_total", outcome="ok") < answered - 2 * (BATCH - 1):
                pass
        assert lost <= 3 * 2 * 3, "more clients lost their answer than were with those that were killed"
        served.process.signal()
        assert await served.process.ended() == 0


def _only_rises(name: str) -> bool:
    return name.startswith("weir_") and name.endswith(("_total", "_bucket", "_count", "_sum"))


async def test_gauges_of_a_killed_worker_go(tmp_path: Path) -> None:
    async with (
        ScriptedUpstream([head(200, "sse"), role(), tok("a"), hang()]) as u,
        serving(tmp_path, u.url, shutdown={"drain": 0}) as served,
        streams(served, 6),
    ):
        await served.until("weir_requests_in_flight", 6)
        for pid in await served.pids():
            os.kill(pid, signal.SIGKILL)
        await served.until("weir_requests_in_flight", 0)
        await served.until("weir_workers", WORKERS)


async def test_a_worker_that_is_told_to_stop_drains_and_is_replaced(tmp_path: Path) -> None:
    opened = asyncio.Event()
    script = [head(200, "sse"), role(), tok("a"), gate(opened), tok("b"), fin("stop"), done(), end()]
    async with ScriptedUpstream(script) as u, serving(tmp_path, u.url) as served, streams(served, 1) as (client,):
        for pid in await served.pids():
            os.kill(pid, signal.SIGTERM)
        opened.set()
        assert (await client.reply()).done
        await served.process.says("ended with status 0")
        await served.until("weir_workers", WORKERS)
        assert (await served.ask("GET", "/healthz")).status == 200


def test_a_place_stays_empty_the_longer_the_sooner_its_workers_die() -> None:
    waits_s = [restart_wait_s(deaths) for deaths in range(1000)]
    assert waits_s == sorted(waits_s)
    assert 0 < waits_s[0] <= 0.5
    assert waits_s[-1] == LONGEST_WAIT_S


# --- stopping


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
async def test_a_signal_drains_all_workers(number: signal.Signals, tmp_path: Path) -> None:
    opened = asyncio.Event()
    script = [head(200, "sse"), role(), tok("a"), gate(opened), tok("b"), fin("stop"), done(), end()]
    async with ScriptedUpstream(script) as u, serving(tmp_path, u.url) as served, streams(served, 6) as clients:
        served.process.signal(number)
        await served.process.says("stopping")
        await refused(served.port)
        opened.set()
        replies = [await client.reply() for client in clients]
        assert all(reply.done and reply.content() == "ab" for reply in replies)
        await ended_well(served.process)
        lines = [json.loads(line) for line in served.process.out.splitlines()]
        assert [line["outcome"] for line in lines] == ["ok"] * 6
        assert served.process.err.decode().count("stopping") == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
async def test_a_signal_to_the_whole_group_is_one_signal(number: signal.Signals, tmp_path: Path) -> None:
    """As Ctrl-C in a terminal, or a service manager's: each worker gets it twice, and still drains."""
    opened = asyncio.Event()
    script = [head(200, "sse"), role(), tok("a"), gate(opened), tok("b"), fin("stop"), done(), end()]
    async with ScriptedUpstream(script) as u, serving(tmp_path, u.url) as served, streams(served, 6) as clients:
        for pid in (served.process.pid, *await served.pids()):
            os.kill(pid, number)
        await refused(served.port)
        opened.set()
        assert all([(await client.reply()).done for client in clients])
        await ended_well(served.process)


async def test_a_terminal_that_closes_ends_no_request(tmp_path: Path) -> None:
    """The kernel sends SIGHUP to whom the terminal belongs, and so does the shell: it comes twice."""
    opened = asyncio.Event()
    script = [head(200, "sse"), role(), tok("a"), gate(opened), tok("b"), fin("stop"), done(), end()]
    async with ScriptedUpstream(script) as u, serving(tmp_path, u.url) as served, streams(served, 3) as clients:
        for pid in (served.process.pid, *await served.pids()):
            os.kill(pid, signal.SIGHUP)
        await served.process.says("stopping")
        await refused(served.port)
        served.process.signal(signal.SIGHUP)
        opened.set()
        assert all([(await client.reply()).done for client in clients])
        await ended_well(served.process)


async def test_workers_started_with_nohup_hear_no_hangup(tmp_path: Path) -> None:
    async with ScriptedUpstream(chat_stream()) as u, serving(tmp_path, u.url, under=("nohup",)) as served:
        before = await served.pids()
        for pid in (served.process.pid, *before):
            os.kill(pid, signal.SIGHUP)
        for _ in range(12):
            assert (await served.ask("POST", CHAT, r0())).done
        assert await served.pids() == before
        served.process.signal()
        await ended_well(served.process)


async def test_a_second_signal_ends_all_streams(tmp_path: Path) -> None:
    async with (
        ScriptedUpstream([head(200, "sse"), role(), tok("a"), hang()]) as u,
        serving(tmp_path, u.url) as served,
        streams(served, 6) as clients,
    ):
        served.process.signal()
        await refused(served.port)
        served.process.signal()
        for client in clients:
            reply = await client.reply()
            assert reply.stream_error is not None
            assert reply.stream_error["code"] == "shutting_down"
        await ended_well(served.process)


async def test_a_signal_is_heard_while_workers_start(tmp_path: Path) -> None:
    many = 8 * MOST_STARTING
    path, seen = tmp_path / "weir.yaml", set[int]()
    path.write_text(config("http://127.0.0.1:9", listen=f"127.0.0.1:{unused_port()}"))
    async with weir("serve", "-c", str(path), "--workers", str(many)) as process, asyncio.timeout(WITHIN_S):
        while len(seen) < 2:
            seen |= workers_of(process.pid)
            await asyncio.sleep(0)
        process.signal()
        ended = asyncio.create_task(ended_well(process))
        while not ended.done():
            seen |= workers_of(process.pid)
            await asyncio.sleep(0)
        await ended
    assert len(seen) <= many / 2


async def test_workers_do_not_outlive_their_supervisor(tmp_path: Path) -> None:
    async with ScriptedUpstream(chat_stream()) as u, serving(tmp_path, u.url) as served:
        pids = await served.pids()
        served.process.signal(signal.SIGKILL)
        await refused(served.port)
        async with asyncio.timeout(WITHIN_S):
            while any(os.access(f"/proc/{pid}", os.F_OK) for pid in pids):  # noqa: ASYNC110 - it is the kernel's
                await asyncio.sleep(0.02)


AS_WORKER = """
import socket, sys
from pathlib import Path
from gateway.workers import worker
from gateway.config.file import load
from gateway.instruments.worker_numbers import Seat
_, file, folder, line = sys.argv
sys.exit(worker.run(load(Path(file)), Seat(0, 1, Path(folder)), socket.socket(fileno=int(line))))
"""


@pytest.mark.parametrize("ready", [False, True])
async def test_a_worker_ends_whose_supervisor_died_while_it_started(ready: bool, tmp_path: Path) -> None:
    """Before the worker has told that it is ready, or with those words unread."""
    path = tmp_path / "weir.yaml"
    path.write_text(config("http://127.0.0.1:9", listen=f"127.0.0.1:{unused_port()}"))
    ours, theirs = socket.socketpair()
    with ours, theirs:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", AS_WORKER, str(path), str(tmp_path), str(theirs.fileno())),
            pass_fds=[theirs.fileno()],
            cwd=ROOT,
            stderr=asyncio.subprocess.PIPE,
        )
        theirs.close()
        if ready:
            assert await asyncio.to_thread(ours.recv, 64, socket.MSG_PEEK) == READY
        ours.close()
        _, told = await asyncio.wait_for(process.communicate(), WAIT_S)
    assert process.returncode == 0, told.decode()
    assert told == b""


# --- what keeps them from serving is told once


@contextmanager
def taken_port(*, shared: bool) -> Generator[int]:
    with socket.socket() as taken:
        if shared:
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield taken.getsockname()[1]


@pytest.mark.parametrize("key", ["listen", "admin.listen"])
@pytest.mark.parametrize("shared", [False, True])
async def test_an_address_in_use_is_told_once(shared: bool, key: str, tmp_path: Path) -> None:
    with taken_port(shared=shared) as port:
        address, free = f"127.0.0.1:{port}", f"127.0.0.1:{unused_port()}"
        top: dict[str, Any] = {"listen": address} if key == "listen" else {"listen": free, "admin": {"listen": address}}
        path = tmp_path / "weir.yaml"
        path.write_text(config("http://127.0.0.1:9", **top))
        async with weir("serve", "-c", str(path), "--workers", "3") as process:
            assert await process.ended() == 1
            told = process.err.decode()
            assert told.count(str(port)) == 1
            assert key in told
            assert "Traceback" not in told


def test_an_admin_listener_that_turns_out_to_be_at_the_main_ones_address_is_refused() -> None:
    """Two names of one host, which the file does not show: the kernel would deal out clients to both listeners."""
    shared = f"127.0.0.1:{unused_port()}"
    read = parse(config("http://127.0.0.1:9", listen=shared), source="test", environ={})
    both = read.model_copy(update={"admin": AdminConfig(listen=shared)})  # as if the file had named it in another way
    with pytest.raises(CannotListen) as told:
        supervise(both, 2, lambda _: None)
    assert (told.value.key, told.value.address) == ("admin.listen", shared)
    assert told.value.strerror == "Address already in use"


async def test_a_wrong_file_is_told_once(tmp_path: Path) -> None:
    path = tmp_path / "weir.yaml"
    path.write_text("pols: {}\n")
    async with weir("serve", "-c", str(path), "--workers", "3") as process:
        assert await process.ended() == 1
        assert process.err.decode().count("unknown key") == 1


async def test_the_numbers_of_an_earlier_run_are_not_counted(tmp_path: Path) -> None:
    async with ScriptedUpstream(chat_stream()) as u:
        async with serving(tmp_path, u.url, 2) as served:
            assert (await served.ask("POST", CHAT, r0())).done
            await served.until("weir_requests_total", 1)
            served.process.signal(signal.SIGKILL)
            await refused(served.port)
            assert list(served.folder.iterdir())
        async with serving(tmp_path, u.url, 2) as served:
            assert total(await served.numbers(), "weir_requests_total") == 0


async def test_two_weirs_do_not_share_a_folder(tmp_path: Path) -> None:
    async with serving(tmp_path, "http://127.0.0.1:9", 2) as served:
        path = tmp_path / "other.yaml"
        path.write_text(
            config("http://127.0.0.1:9", listen=f"127.0.0.1:{unused_port()}", metrics={"dir": str(served.folder)})
        )
        async with weir("serve", "-c", str(path), "--workers", "2") as other:
            assert await other.ended() == 1
            assert "metrics.dir: another Weir uses" in other.err.decode()
        assert total(await served.numbers(), "weir_workers") == 2


async def test_workers_share_a_port_that_was_not_named(tmp_path: Path) -> None:
    path = tmp_path / "weir.yaml"
    path.write_text(config("http://127.0.0.1:9", listen="127.0.0.1:0", admin={"listen": "127.0.0.1:0"}))
    async with weir("serve", "-c", str(path), "--workers", "2") as process:
        await process.says("operators find")
        (port,) = {int(told) for told in re.findall(r"serving m on http://127\.0\.0\.1:(\d+)", process.err.decode())}
        (admin,) = {int(told) for told in re.findall(r"/weir/\* on http://127\.0\.0\.1:(\d+)", process.err.decode())}
        assert (await Served(process, port, tmp_path).ask("GET", "/healthz")).status == 200
        read = await Served(process, admin, tmp_path).numbers()
        assert total(read, "weir_workers") == 2
        process.signal()
        await ended_well(process)


@pytest.mark.parametrize("number", ["0", "-1", "x", "1.5", ""])
async def test_a_number_of_workers_that_is_none_is_told(number: str) -> None:
    async with weir("serve", f"--workers={number}") as process:
        assert await process.ended() == 2
        assert "--workers" in process.err.decode()

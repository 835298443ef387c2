"""Several worker processes that serve the same addresses, and the process that keeps them at it.

Workers are forked: the configuration is read once, a worker is there within a tenth of a second, and one that takes a
dead one's place runs the same code and configuration, whatever has changed on the disk since. To fork is safe here
because the supervisor runs neither threads nor an event loop. Each worker binds the addresses for itself
(SO_REUSEPORT), and the kernel deals out the connections; the supervisor holds the ports, but does not listen.
"""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable
from math import inf
from pathlib import Path
from typing import NoReturn

from ..config import Config
from ..instruments.number_file import tell_death
from ..instruments.worker_numbers import Seat
from ..server import FAREWELL_S
from ..stopping import INSISTING, stop_signals
from . import worker

log = logging.getLogger("weir")

QUICK_S = 10.0
"""A worker that dies sooner than this has not served well."""
FIRST_WAIT_S = 0.1
LONGEST_WAIT_S = 30.0
MOST_STARTING = max(os.cpu_count() or 1, 2)
"""Workers that start at the same time: more of them would be no sooner there, and hold up who wants to end them."""
KILL_S = 5.0
"""For a worker to end after all it may wait for; then it is killed."""


def restart_wait_s(quick_deaths: int) -> float:
    """How long a dead worker's place stays empty.

    Args:
        quick_deaths: So many in a row died soon after their start, the last one included.
    """
    return min(FIRST_WAIT_S * 2.0 ** min(quick_deaths, 30), LONGEST_WAIT_S)


class _Place:
    """One worker's place: who has it, or when it is to be taken again. Times are monotonic.

    Attributes:
        pid: The process, None while there is none.
        line: To the process.
        ready: It serves.
        due_s: When another process is to take the place.
    """

    def __init__(self, seat: Seat) -> None:
        self.seat = seat
        self.pid: int | None = None
        self.line: socket.socket | None = None
        self.ready = False
        self.due_s = inf
        self.began_s = 0.0
        self.quick_deaths = 0

    def say(self, word: bytes) -> None:
        if self.line is not None:
            with contextlib.suppress(OSError):  # it has just died
                self.line.send(word)


class Supervisor:
    """Keeps workers at work.

    Args:
        config: With addresses whose ports are known.
        count: How many workers.
        folder: For their numbers.
        told: Called once, when all of them serve.
        to_close: Closed in each worker: what only the supervisor needs.
    """

    def __init__(
        self,
        config: Config,
        count: int,
        folder: Path,
        told: Callable[[], None],
        to_close: Callable[[], None],
    ) -> None:
        self._config = config
        self._folder = folder
        self._told: Callable[[], None] | None = told
        self._to_close = to_close
        self._places = [_Place(Seat(number, count, folder)) for number in range(count)]
        self._selector = selectors.DefaultSelector()
        self._wakes, self._wake = socket.socketpair()
        self._stop_signals = stop_signals()
        self._handled = (*self._stop_signals, signal.SIGCHLD)
        self._served = False
        self._stops = 0
        self._kill_s = inf
        self._status = 0

    def run(self) -> int:
        """Runs until told to stop, or until no worker can serve. Returns the exit status."""
        for end in (self._wakes, self._wake):
            end.setblocking(False)
        signal.set_wakeup_fd(self._wake.fileno(), warn_on_full_buffer=False)
        for number in self._handled:
            signal.signal(number, _noted)
        self._selector.register(self._wakes, selectors.EVENT_READ)
        self._begin(self._places[0])  # alone: what keeps it from serving would keep the others, and is told once
        while self._goes_on():
            self._wait()
            self._reap()
            self._begin_due()
        return self._status

    def _goes_on(self) -> bool:
        if any(place.pid is not None for place in self._places):
            return True
        if not self._stops and not self._served:
            self._status = 1  # the worker has told why
            return False
        return not self._stops

    def _wait(self) -> None:
        now_s = time.monotonic()
        begin_s = min(place.due_s for place in self._places) if self._room() else inf
        until_s = min(self._kill_s, begin_s)
        for key, _ in self._selector.select(None if until_s == inf else max(until_s - now_s, 0.0)):
            if key.fileobj is self._wakes:
                for number in self._wakes.recv(4096):
                    if number in INSISTING or (number in self._stop_signals and not self._stops):
                        self._stop()
            else:
                self._hear(key.data)
        if time.monotonic() >= self._kill_s:
            self._kill()

    def _hear(self, place: _Place) -> None:
        line = place.line
        assert line is not None
        if worker.READY not in worker.received(line):
            self._selector.unregister(line)  # its end: the process is dying, and is reaped
            return
        place.ready = True
        if not self._served:
            self._served = True
            if not self._stops:
                for other in self._places[1:]:
                    other.due_s = time.monotonic()
        if self._told is not None and all(other.ready for other in self._places):
            self._told()
            self._told = None

    # --- stopping

    def _stop(self) -> None:
        self._stops += 1
        drain_s = self._config.shutdown.drain_s
        if self._stops == 1:
            log.info("stopping: running requests may end within %g s; another SIGTERM or SIGINT ends them", drain_s)
            word = worker.STOP
        else:
            word, drain_s = worker.HURRY, 0.0
            for number in INSISTING:
                signal.signal(number, signal.SIG_DFL)  # a third ends this process as ever
        self._kill_s = time.monotonic() + drain_s + 2 * FAREWELL_S + KILL_S
        for place in self._places:
            place.due_s = inf
            place.say(word)

    def _kill(self) -> None:
        self._kill_s = inf
        for place in self._places:
            if place.pid is not None:
                log.error("worker %d does not end, and is killed", place.seat.number)
                os.kill(place.pid, signal.SIGKILL)

    # --- the dead

    def _reap(self) -> None:
        for place in self._places:
            if place.pid is None:
                continue
            pid, status = os.waitpid(place.pid, os.WNOHANG)
            if pid:
                self._died(place, os.waitstatus_to_exitcode(status))

    def _died(self, place: _Place, status: int) -> None:
        number = place.seat.number
        tell_death(self._folder, number)
        place.pid, place.ready = None, False
        if place.line is not None:
            with contextlib.suppress(KeyError):
                self._selector.unregister(place.line)
            place.line.close()
            place.line = None
        if self._stops:
            self._status = self._status or int(status != 0)
            return
        if not self._served:
            return
        now_s = time.monotonic()
        place.quick_deaths = place.quick_deaths + 1 if now_s - place.began_s < QUICK_S else 0
        wait_s = restart_wait_s(place.quick_deaths)
        place.due_s = now_s + wait_s
        log.warning("worker %d %s; another takes its place in %.1f s", number, _how(status), wait_s)

    def _begin_due(self) -> None:
        now_s = time.monotonic()
        due = [place for place in self._places if place.due_s <= now_s]
        for place in due[: self._room()]:
            self._begin(place)

    def _room(self) -> int:
        """Returns how many more may start now."""
        return max(MOST_STARTING - sum(place.pid is not None and not place.ready for place in self._places), 0)

    # --- the living

    def _begin(self, place: _Place) -> None:
        """Starts a worker at this place."""
        ours, theirs = socket.socketpair()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        # Nothing may come between the fork and the worker's own handlers: this process's would swallow it
        signal.pthread_sigmask(signal.SIG_BLOCK, self._handled)
        pid = os.fork()
        if pid == 0:
            ours.close()
            self._be_worker(place.seat, theirs)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, self._handled)
        theirs.close()
        place.pid, place.line = pid, ours
        place.began_s, place.due_s = time.monotonic(), inf
        self._selector.register(ours, selectors.EVENT_READ, place)

    def _be_worker(self, seat: Seat, line: socket.socket) -> NoReturn:
        """What the new process does, all its life."""
        status = 1
        try:
            signal.set_wakeup_fd(-1)
            for number in self._handled:
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, self._handled)
            self._to_close()
            self._selector.close()
            for other in (self._wakes, self._wake, *(place.line for place in self._places)):
                if other is not None:
                    other.close()
            status = worker.run(self._config, seat, line)
        except BaseException:
            log.exception("worker %d failed", seat.number)
        finally:
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(OSError, ValueError):
                    stream.flush()
            os._exit(status)  # past everything that is the supervisor's to end


def _noted(number: int, frame: object) -> None:
    """The number has been written where the supervisor waits."""


def _how(status: int) -> str:
    return f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"

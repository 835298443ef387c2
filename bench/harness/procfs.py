"""What /proc and the CPU clocks tell about a process and all its descendants. Linux only."""

import os
import socket
import threading
import time
from pathlib import Path

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGESIZE")
MB = 1024 * 1024


def _stat(pid: int) -> list[str]:
    """Fields of /proc/PID/stat from the third on (the second, the name, may hold spaces)."""
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()


def tree(root: int) -> set[int]:
    """Live pids of root, of its descendants and of its session."""
    parent, session = {}, {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            fields = _stat(int(entry))
        except OSError:
            continue
        if fields[0] != "Z":
            parent[int(entry)], session[int(entry)] = int(fields[1]), int(fields[3])
    found = {root} if root in parent else set()
    while True:
        new = {pid for pid, up in parent.items() if pid not in found and (up in found or session[pid] == root)}
        if not new:
            return found
        found |= new


def cpu_s(root: int) -> float:
    """CPU seconds used so far by the tree: each process's CPU clock (ended threads too) and its ended children."""
    total = 0.0
    for pid in tree(root):
        try:
            total += time.clock_gettime((~pid << 3) | 2)  # another process's clock id: clock_getcpuclockid(3)
            fields = _stat(pid)
            total += (int(fields[13]) + int(fields[14])) / TICKS_PER_S
        except OSError:
            continue
    return total


def ready_wait_s(root: int) -> float:
    """Seconds the tree's threads stood ready to run without a core: tells contention."""
    total_ns = 0
    for pid in tree(root):
        for file in Path(f"/proc/{pid}/task").glob("*/schedstat"):
            try:
                total_ns += int(file.read_text().split()[1])
            except (OSError, IndexError):
                continue
    return total_ns / 1e9


def rss_mb(root: int) -> float:
    """Resident memory of the tree; pages shared by forked workers count once for each."""
    return _rss_mb(tree(root))


def _rss_mb(pids: set[int]) -> float:
    total = 0
    for pid in pids:
        try:
            total += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        except OSError:
            continue
    return total * PAGE_BYTES / MB


def calibrate_us(core: int) -> float:
    """CPU time of one fixed small job on this core now: what the neighbours cost us (cache, turbo, steal)."""
    one, other = socket.socketpair()
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        start_s = time.thread_time()
        for _ in range(5000):
            one.send(b"x" * 256)
            other.recv(512)
        return round((time.thread_time() - start_s) / 5000 * 1e6, 3)
    finally:
        os.sched_setaffinity(0, before)
        one.close()
        other.close()


def renice(pid: int, nice: int) -> None:
    """Niceness of a process and of its session's scheduling group: with autogroups on, the group's counts."""
    if nice:
        os.setpriority(os.PRIO_PROCESS, pid, nice)
        try:
            Path(f"/proc/{pid}/autogroup").write_text(str(nice))
        except OSError:
            return


class PeakRss(threading.Thread):
    """Samples the tree's RSS every 200 ms until ``stop``, which returns the highest, in MB.

    The tree is looked up once: walking /proc at each sample would take time from what is measured.
    """

    def __init__(self, root: int) -> None:
        super().__init__(daemon=True)
        self._pids = tree(root)
        self._peak_mb = 0.0
        self._done = threading.Event()
        self.start()

    def run(self) -> None:
        while not self._done.is_set():
            self._peak_mb = max(self._peak_mb, _rss_mb(self._pids))
            self._done.wait(0.2)

    def stop(self) -> float:
        self._done.set()
        self.join()
        return self._peak_mb

"""The folder in which workers keep their numbers, for one Weir at a time."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Generator
from pathlib import Path

from .number_file import remove_files


class CannotUseFolder(Exception):
    """``metrics.dir`` is of no use."""


@contextlib.contextmanager
def numbers_folder(configured: str | None) -> Generator[Path]:
    """Gives an empty folder of this name, or a temporary one; what workers leave there is removed at the end.

    Raises:
        CannotUseFolder: It cannot be made, or another Weir uses it.
    """
    if configured is None:
        # In memory where that is to be had: a disk that writes a page back could hold up whoever counts in it
        parent = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        with tempfile.TemporaryDirectory(prefix="weir-", dir=parent, ignore_cleanup_errors=True) as made:
            yield Path(made)
        return
    folder = Path(configured)
    with contextlib.ExitStack() as held:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
            held.callback(os.close, lock)
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove_files(folder)  # of a run that was killed
        except BlockingIOError as error:
            raise CannotUseFolder(f"metrics.dir: another Weir uses {folder}; give each a folder of its own") from error
        except OSError as error:
            raise CannotUseFolder(f"metrics.dir: {folder} cannot be used: {error.strerror}") from error
        held.callback(remove_files, folder)
        yield folder

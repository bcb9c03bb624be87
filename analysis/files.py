"""Files that are there whole or not at all, however a program ends; all that is written, moved or removed passes here.

Locks are the system's own on open files (flock): it frees them however their holder ends, so there is no clock to trust
and no process number that another process inherits.
"""

import fcntl
import glob
import json
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

# Called before each change of the disk.
watching: list[Callable[[], object]] = []
# What is being written, and folders on their way out.
PARTIAL = (".tmp-*", ".old-*")
# Seconds between two looks at a lock that somebody else holds.
LOOK = 0.2


def change() -> None:
    """Called before each change of the disk: where a test can end the program."""
    for watch in watching:
        watch()


@contextmanager
def write_whole(path: Path) -> Iterator[Path]:
    """A place beside `path` to write to; when all is written it takes the place of `path`, else it is removed."""
    # A folder that is not there is an error, and is not made.
    os.stat(path.parent)
    sweep(path.parent, f".tmp-{glob.escape(path.name)}-*")
    with draft(path.parent, path.name) as folder:
        yield folder / path.name
        change()
        os.replace(folder / path.name, path)


def write_bytes(path: Path, data: bytes) -> None:
    """Put `data` at `path`, whole."""
    with write_whole(path) as place:
        place.write_bytes(data)


def write_text(path: Path, text: str) -> None:
    """Put a text at `path` as UTF-8, whole."""
    write_bytes(path, text.encode())


def write_json(path: Path, numbers: dict[str, Any]) -> None:
    """Plain data as JSON, one line per key. Errors: ValueError for what is no number."""
    lines = ",\n".join(f" {json.dumps(key)}: {json.dumps(value, allow_nan=False)}" for key, value in numbers.items())
    write_text(path, f"{{\n{lines}\n}}\n")


def read_json(path: Path) -> dict[str, Any] | None:
    """What `write_json` left there; None where there is nothing, or nothing readable."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


def append(path: Path, text: str) -> None:
    """Add lines to a log, whose last line may be cut short by a sudden end."""
    change()
    with path.open("a", encoding="utf-8") as file:
        file.write(text)


def move(path: Path, target: Path) -> None:
    """Rename a file or a folder. Errors: OSError, as where `target` is a folder with something in it."""
    change()
    path.rename(target)


def touch(path: Path) -> None:
    """Date a file or a folder now."""
    change()
    os.utime(path)


def remove(path: Path) -> None:
    """Take a file or a folder away, whole at once; one that is not here is no error."""
    leaving = path.with_name(f".old-{path.name}-{secrets.token_hex(4)}")
    with suppress(FileNotFoundError):
        move(path, leaving)
        clear(leaving)


def clear(path: Path) -> None:
    """Remove a folder or a file that nobody reads."""
    change()
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


@contextmanager
def draft(folder: Path, name: str) -> Iterator[Path]:
    """A new folder in `folder` to fill and to rename; what is left of it at the end is removed. The lock is on the
    folder: many a program that writes a file makes it anew, and a lock on the former would hold nothing."""
    change()
    folder.mkdir(parents=True, exist_ok=True)
    while True:
        path = folder / f".tmp-{name}-{secrets.token_hex(4)}"
        path.mkdir()
        holder = os.open(path, os.O_RDONLY)
        fcntl.flock(holder, fcntl.LOCK_EX)
        if same(holder, path):
            break
        # Swept between making and locking.
        os.close(holder)
    try:
        yield path
    finally:
        try:
            if path.exists():
                clear(path)
        finally:
            os.close(holder)


@contextmanager
def folder_whole(out: Path) -> Iterator[Path]:
    """A draft of the folder `out`; when all is written it takes the place of `out`, whose other files come with it."""
    with draft(out.parent, out.name) as place:
        yield place
        if not out.is_dir():
            move(place, out)
            return
        for path in out.rglob("*"):
            target = place / path.relative_to(out)
            if path.is_file() and not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, target)
        exchange(place, out)


def exchange(path: Path, other: Path) -> None:
    """Let two folders change places; where the system cannot do it at once, by two renames."""
    import ctypes

    change()
    with suppress(AttributeError, OSError):
        # AT_FDCWD and RENAME_EXCHANGE of renameat2(2), which Python does not offer.
        cwd, swap = -100, 2
        call = ctypes.CDLL(None, use_errno=True).renameat2
        if call(cwd, os.fsencode(path), cwd, os.fsencode(other), swap) == 0:
            return
    aside = other.with_name(f".old-{other.name}-{secrets.token_hex(4)}")
    other.rename(aside)
    path.rename(other)
    aside.rename(path)


def sweep(folder: Path, *patterns: str) -> list[str]:
    """Remove what writers that live no more left half-written in `folder`; the names of what went."""
    gone = []
    for path in [path for pattern in patterns or PARTIAL for path in folder.glob(pattern)]:
        if is_free(path, remove=True):
            gone.append(path.name)
    return gone


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Hold the lock file `path`, which stays, for some reading and writing that belong together."""
    holder = os.open(path, os.O_CREAT | os.O_RDWR, 0o666)
    try:
        fcntl.flock(holder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(holder)


@contextmanager
def locked(path: Path, wait: Callable[[], Any]) -> Iterator[None]:
    """Hold the lock file `path`, which goes at the end; `wait` as of `hold`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    holder = hold(path, wait)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(holder)


def hold(path: Path, wait: Callable[[], Any] = lambda: None) -> int:
    """Lock a file, which is made where there is none; the open file, which holds the lock until it is closed. While
    somebody else holds it, `wait()` is called, which may raise, and it is tried again."""
    while (holder := _held(path)) is None:
        wait()
        time.sleep(LOOK)
    return holder


def _held(path: Path) -> int | None:
    """The open, locked file at `path`; None while another holds it."""
    while True:
        holder = os.open(path, os.O_CREAT | os.O_RDWR, 0o666)
        try:
            fcntl.flock(holder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(holder)
            return None
        if same(holder, path):
            return holder
        # Removed between opening and locking.
        os.close(holder)


def is_free(path: Path, remove: bool = False) -> bool:
    """Whether nobody holds the lock of a file or a folder, or it is not there; `remove`: what is free goes."""
    try:
        holder = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return True
    except OSError:
        # A link, or not ours to open.
        return False
    try:
        # Shared: two who ask do not take each other for a holder.
        fcntl.flock(holder, fcntl.LOCK_SH | fcntl.LOCK_NB)
        if remove and same(holder, path):
            clear(path)
        return True
    except BlockingIOError:
        return False
    finally:
        os.close(holder)


def same(holder: int, path: Path) -> bool:
    """Whether an open file is the one at `path`."""
    try:
        return os.path.samestat(os.fstat(holder), os.stat(path))
    except FileNotFoundError:
        return False

"""Focuscope: one word runs everything, with nothing but Python.

    python run.py                   install on first use, then serve the app on this machine
    python run.py serve --port N    the same, on the first free port from N on (default 8501)
    python run.py test              the tests; --all adds the long ones; other ARGS go to pytest
    python run.py lint              ruff and mypy: mistakes, formatting, types
    python run.py python ARGS       the installed Python, for example -m analysis groups TEXT

TORCH chooses another build of PyTorch: a version (2.12.1), a wheel file, or cuda.
"""

from __future__ import annotations  # an older Python reads this file far enough to be refused

import contextlib
import getpass
import inspect
import os
import platform
import socket
import subprocess
import sys
from typing import NoReturn

from environment import BASE, DEV, RAY, ROOT, Refusal, install, use

OLDEST, NEWEST = (3, 11), (3, 14)
MACHINES = {("Linux", "x86_64"), ("Linux", "aarch64"), ("Darwin", "arm64")}


def check(version: tuple, system: str, machine: str, libc: tuple[str, str], bits: int = 64) -> None:
    """Refuse a Python or a platform that the libraries have no builds for; nothing has been downloaded yet."""
    if not OLDEST <= tuple(version[:2]) <= NEWEST:
        raise Refusal(
            "Focuscope needs Python 3.11 to 3.14, the versions its libraries are built for, and this is Python "
            f"{version[0]}.{version[1]}: start it with one of those, for example `python3.13 run.py`."
        )
    old = system == "Linux" and (libc[0] != "glibc" or [int(part) for part in libc[1].split(".")[:2]] < [2, 28])
    if bits != 64 or (system, machine) not in MACHINES or old:
        raise Refusal(
            f"Focuscope does not run on {bits}-bit Python on {system} {machine} {' '.join(libc)}: use a 64-bit Python "
            "on Linux (x86_64 or aarch64, glibc 2.28 or newer; on Windows inside WSL) or macOS (Apple silicon)."
        )


def free_port(first: int, tries: int = 100) -> int:
    """The first port from `first` on that nobody listens on."""
    for port in range(first, min(first + tries, 65536)):
        with socket.socket() as probe, socket.socket() as place:
            probe.settimeout(0.5)
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                continue
            if os.name == "posix":  # a port given back a moment ago is free; on Windows this would mean "share it"
                place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with contextlib.suppress(OSError):
                place.bind(("127.0.0.1", port))
                return port
    raise Refusal(f"No port from {first} to {first + tries - 1} is free: name one with `python run.py serve --port N`.")


def ssh_line(port: int, connection: str, user: str) -> str:
    """The command that brings the port to the reader's own machine; `connection` is ssh's variable SSH_CONNECTION."""
    *_, host, ssh_port = connection.split()
    return f"ssh{'' if ssh_port == '22' else f' -p {ssh_port}'} -L {port}:127.0.0.1:{port} {user}@{host}"


def become(*arguments: str) -> NoReturn:
    """Turn into the installed Python with these arguments."""
    python = use()
    os.chdir(str(ROOT))
    os.execv(python, [python, *arguments])


def serve(arguments: list[str]) -> int:
    """usage: python run.py serve [--port N]

    Installs what is missing and serves the app to this machine alone, on 127.0.0.1, until Ctrl-C.

    --port N    the first port to try (default 8501); the next free one is taken and printed

    FOCUSCOPE_DEMO=1 restricts what strangers may ask for, FOCUSCOPE_STATE=DIR names the folder of what is computed, and
    docs/sharing.md says how to let others in.
    """
    if {"-h", "--help"} & set(arguments):
        print(inspect.getdoc(serve))
        return 0
    if arguments and (len(arguments) != 2 or arguments[0] != "--port" or not arguments[1].isdigit()):
        raise Refusal("`python run.py serve` takes --port N, the first port to try: --help says what it does.")
    install(BASE)
    port, connection = free_port(int(arguments[1]) if arguments else 8501), os.environ.get("SSH_CONNECTION", "")
    if connection:
        print(f"First, on your own machine: {ssh_line(port, connection, getpass.getuser())}")
    print(f"Focuscope is at http://127.0.0.1:{port} (Ctrl-C stops it).", flush=True)
    options = [f"--server.port={port}", "--server.address=127.0.0.1", "--logger.hideWelcomeMessage=true"]
    if connection or not sys.stdout.isatty():
        # Nobody sits here for whom a browser could be opened.
        options.append("--server.headless=true")
    # Python's own allocator gives nothing back when readers leave.
    os.environ["PYTHONMALLOC"] = "malloc"
    return become("-m", "streamlit", "run", "app/serve/served.py", *options)


def test(arguments: list[str]) -> int:
    """Run the tests; all of them need Ray too."""
    install(BASE, DEV, *([RAY] if "--all" in arguments else []))
    return become("-m", "tests", *arguments)


def lint(_: list[str]) -> int:
    """Look for mistakes, formatting and types, each also when another complains."""
    install(BASE, DEV)
    python = use()
    os.chdir(str(ROOT))
    steps = ["ruff", "check"], ["ruff", "format", "--check"], ["mypy"]
    return max([subprocess.call([python, "-m", *step]) for step in steps])


def python(arguments: list[str]) -> int:
    """Run the installed Python."""
    install(BASE)
    return become(*arguments)


COMMANDS = {"serve": serve, "test": test, "lint": lint, "python": python}


def main(arguments: list[str]) -> int:
    """Run one command; the exit status is that of the tool it ran, or 1 after one sentence."""
    word, rest = (arguments[0], arguments[1:]) if arguments else ("serve", [])
    if word in ("-h", "--help", "help"):
        print(__doc__.strip())
        return 0
    try:
        where = platform.system(), platform.machine(), platform.libc_ver(), sys.maxsize.bit_length() + 1
        check(sys.version_info, *where)
        if word not in COMMANDS:
            raise Refusal(f"`{word}` is not one of {', '.join(COMMANDS)}: `python run.py --help` explains them.")
        return COMMANDS[word](rest)
    except (Refusal, OSError, KeyboardInterrupt) as error:
        print(f"focuscope: {str(error) or 'stopped'}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

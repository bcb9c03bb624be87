"""Focuscope: one word runs everything, with nothing but Python.

    python run.py                   install on first use, then serve the app on this machine
    python run.py serve --port N    the same, on the first free port from N on (default 8501)
    python run.py test              the tests; --all adds the long ones; other ARGS go to pytest
    python run.py lint              ruff and mypy: mistakes, formatting, types
    python run.py python ARGS       the installed Python, for example -m analysis groups TEXT

TORCH chooses another build of PyTorch: a version (2.12.1), a wheel file, or cuda.
"""

import contextlib
import getpass
import hashlib
import json
import os
import platform
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
PYTHON = VENV / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
STAMP = VENV / "focuscope.json"  # what is installed; without it the folder is half-made
BASE, DEV, RAY = "requirements.txt", "requirements-dev.txt", "requirements-ray.txt"

OLDEST, NEWEST = (3, 11), (3, 14)
MACHINES = {("Linux", "x86_64"), ("Linux", "aarch64"), ("Darwin", "arm64")}
TORCH, TORCH_RANGE = "2.13.0", "torch>=2.11,<2.14"
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
NVIDIA_DRIVER = ("/proc/driver/nvidia/version", "/dev/nvidiactl", "/usr/lib/wsl/lib/libcuda.so.1")
CUDA_PACKAGES = ("nvidia-", "cuda-", "triton")
COSTS = {"cpu": (0.5, 2.2, 3), "cuda": (3.0, 6.5, 13)}  # GB to download, GB on disk, minutes at 50 Mbit/s


class Refusal(Exception):
    """One sentence for whoever started the script: what, why, what to do."""


def check(version, system, machine, libc, bits=64):
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


def torch_pin(choice):
    """The requirement that TORCH asks for: "" is the tested version, else cuda, a version in range or a wheel file."""
    if re.search(r"(^|[/\\])torch-2\.1[123]\.[^/\\]*\.whl$", choice) and os.path.isfile(choice):
        return os.path.abspath(choice)
    if choice not in ("", "cuda") and not re.fullmatch(r"2\.1[123]\.\d+(\+\w+)?", choice):
        raise Refusal(f"TORCH={choice} is no version from 2.11 to 2.13, no wheel file of one and not cuda: correct it.")
    return "torch==" + (TORCH if choice in ("", "cuda") else choice)


def torch_without_cuda(pin, resolve):
    """What to ask pip for where there is no NVIDIA driver: the first answer that brings no CUDA package.

    resolve(arguments) lists what the build asks for that pip finds, or raises Refusal when it finds none.
    """
    why = None
    for arguments in ([pin], [pin, "--index-url", CPU_INDEX], [TORCH_RANGE]):
        try:
            needs = resolve(arguments)
        except Refusal as error:
            why = why or error
            continue
        if not any(need.lower().startswith(CUDA_PACKAGES) for need in needs):
            return arguments
        why = Refusal(
            "Only CUDA builds of PyTorch (2.7 GB) were found and this machine has no NVIDIA driver: allow access to "
            f"{CPU_INDEX}, set TORCH to a CPU wheel file, or set TORCH=cuda to install those 2.7 GB."
        )
    raise why


def pip(*arguments):
    """Run the venv's pip and show what it downloads; Refusal with pip's own last lines when it fails."""
    command, said = [str(PYTHON), "-m", "pip", "--disable-pip-version-check", "--no-input", *arguments], []
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "errors": "replace"}
    with subprocess.Popen(command, **pipes) as child:
        for line in filter(None, map(str.strip, child.stdout)):
            said.append(line)
            if line.startswith(("Downloading ", "Installing ")) and ".metadata" not in line:
                print("   " + line.split(":")[0], flush=True)
    if child.returncode:
        raise Refusal("pip failed; is there a network (HTTPS_PROXY, PIP_INDEX_URL)? It said: " + " | ".join(said[-3:]))


def resolve(arguments):
    """What the build of PyTorch that pip would install asks for in turn; only its description is downloaded."""
    print("Looking for", *arguments, flush=True)
    report = VENV / "report.json"
    pip("install", "--dry-run", "--no-deps", "--retries=1", "--timeout=20", f"--report={report}", *arguments)
    return json.loads(report.read_text(encoding="utf-8"))["install"][0]["metadata"].get("requires_dist", [])


def announce(cuda, free):
    """Say what a first start costs before it begins; Refusal when `free` GB of disk are too few."""
    download, disk, minutes = COSTS["cuda" if cuda else "cpu"]
    if free < disk:
        raise Refusal(f"The libraries need {disk} GB of disk and {free:.1f} GB are free: make room, then start again.")
    print(f"First start: {download} GB to download, {disk} GB on disk, {minutes} minutes at 50 Mbit/s.", flush=True)


def create_venv():
    """Make `.venv` from scratch, with a pip new enough to answer a dry run without downloading the packages."""
    base = getattr(sys, "_base_executable", None) or sys.executable  # works also while `.venv` itself is active
    if subprocess.run([base, "-m", "venv", "--clear", str(VENV)], capture_output=True).returncode:
        raise Refusal("This Python cannot make a virtual environment: on Debian and Ubuntu, install python3-venv.")
    pip("install", "--upgrade", "pip")


def read_stamp():
    """The stamp of the last complete installation; {} when there is none, so that `.venv` is missing or half-made."""
    with contextlib.suppress(OSError, ValueError, TypeError):
        return dict(json.loads(STAMP.read_text(encoding="utf-8"))) if PYTHON.exists() else {}
    return {}


def install(*names):
    """Bring `.venv` to what these requirements files say; at once when its stamp says so."""
    with open(str(ROOT / ".venv.lock"), "w") as lock:
        with contextlib.suppress(ImportError):  # Windows has no fcntl and goes without
            import fcntl

            fcntl.flock(lock, fcntl.LOCK_EX)  # of two starts, one installs and the other waits
        stamp, python = read_stamp(), "{}.{}".format(*sys.version_info)
        torch = os.environ.get("TORCH", stamp.get("torch", ""))  # a build once chosen stays
        texts = {name: "\n".join([python, torch, (ROOT / name).read_text(encoding="utf-8")]) for name in names}
        wanted = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in texts.items()}
        if all(stamp.get(name) == wanted[name] for name in names):
            return
        fresh = (stamp.get("python"), stamp.get("torch")) != (python, torch)
        if fresh:
            pin, linux = torch_pin(torch), platform.system() == "Linux"
            cuda = torch == "cuda" or (linux and any(os.path.exists(sign) for sign in NVIDIA_DRIVER))
            announce(cuda, shutil.disk_usage(str(ROOT)).free / 1e9)
        STAMP.unlink(missing_ok=True)  # an installation that is cut off leaves no stamp: the next start builds anew
        try:
            if fresh:
                create_venv()
                search = linux and not cuda and not pin.endswith(".whl")
                pip("install", *(torch_without_cuda(pin, resolve) if search else [pin]))
            pip("install", *[part for name in names for part in ("-r", str(ROOT / name))])
        except Refusal:
            if not fresh:  # pip leaves everything as it was when it gives up by itself
                STAMP.write_text(json.dumps(stamp), encoding="utf-8")
            raise
        stamp = {**({"python": python, "torch": torch} if fresh else stamp), **wanted}
        STAMP.write_text(json.dumps(stamp), encoding="utf-8")


def free_port(first, tries=100):
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


def ssh_line(port, connection, user):
    """The command that brings the port to the reader's own machine; `connection` is ssh's variable SSH_CONNECTION."""
    *_, host, ssh_port = connection.split()
    return f"ssh{'' if ssh_port == '22' else f' -p {ssh_port}'} -L {port}:127.0.0.1:{port} {user}@{host}"


def become(*arguments):
    """Turn into the venv's Python with these arguments (on Windows: run it and hand on its exit status)."""
    os.chdir(str(ROOT))
    if os.name == "posix":
        os.execv(str(PYTHON), [str(PYTHON), *arguments])
    return subprocess.call([str(PYTHON), *arguments])


def serve(arguments):
    """Install what is missing and serve the app until Ctrl-C."""
    if arguments and (len(arguments) != 2 or arguments[0] != "--port" or not arguments[1].isdigit()):
        raise Refusal("`python run.py serve` knows one option: --port N, the first port to try.")
    install(BASE)
    port, connection = free_port(int(arguments[1]) if arguments else 8501), os.environ.get("SSH_CONNECTION", "")
    if connection:
        print(f"First, on your own machine: {ssh_line(port, connection, getpass.getuser())}")
    print(f"Focuscope is at http://127.0.0.1:{port} (Ctrl-C stops it).", flush=True)
    options = [f"--server.port={port}", "--server.address=127.0.0.1", "--logger.hideWelcomeMessage=true"]
    if connection or not sys.stdout.isatty():
        options.append("--server.headless=true")  # nobody sits here for whom a browser could be opened
    return become("-m", "streamlit", "run", "app/serve/served.py", *options)


def test(arguments):
    """Run the tests; all of them need Ray too."""
    install(BASE, DEV, *([RAY] if "--all" in arguments else []))
    return become("-m", "tests", *arguments)


def lint(_):
    """Look for mistakes, formatting and types, each also when another complains."""
    install(BASE, DEV)
    os.chdir(str(ROOT))
    steps = ["ruff", "check"], ["ruff", "format", "--check"], ["mypy"]
    return max([subprocess.call([str(PYTHON), "-m", *step]) for step in steps])


def python(arguments):
    """Run the installed Python."""
    install(BASE)
    return become(*arguments)


COMMANDS = {"serve": serve, "test": test, "lint": lint, "python": python}


def main(arguments):
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

"""The environment that `run.py` works with: which libraries it holds, and how it comes to hold others.

`.venv` is a link to a folder of `.venvs`, which is never written to once it stands. Every change makes another one
beside it, which takes its place when it is complete: when that fails, or is cut off, the one before serves on.
"""

from __future__ import annotations  # an older Python reads this file far enough to be refused

import contextlib
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

# Windows has none, and run.py refuses it in a sentence.
with contextlib.suppress(ImportError):
    import fcntl

ROOT = Path(__file__).resolve().parent
VENV, VENVS = ROOT / ".venv", ROOT / ".venvs"
# The next `.venv`, for a moment.
LINK = ROOT / ".venv.new"
# In an environment: what is installed; without it the folder is half-made.
STAMP = "focuscope.json"
BASE, DEV, RAY = "requirements.txt", "requirements-dev.txt", "requirements-ray.txt"
CONSTRAINTS = "constraints.txt"
# Published without wheels, pure Python.
SOURCES = {"rouge_score", "sqlitedict", "word2number"}

TORCH_RANGE = "torch>=2.11,<2.14"
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
NVIDIA_DRIVER = ("/proc/driver/nvidia/version", "/dev/nvidiactl", "/usr/lib/wsl/lib/libcuda.so.1")
CUDA_PACKAGES = ("nvidia-", "cuda-", "triton")
# GB to download, GB on disk, minutes at 50 Mbit/s.
COSTS = {"cpu": (0.5, 2.2, 3), "cuda": (3.0, 6.5, 13)}


class Refusal(Exception):
    """One sentence for whoever started the script: what, why, what to do."""


def tested() -> dict[str, str]:
    """Package -> the version that the tests ran with."""
    lines = (ROOT / CONSTRAINTS).read_text(encoding="utf-8").splitlines()
    return dict(line.split("==") for line in lines if "==" in line)


def torch_pin(choice: str) -> str:
    """The requirement that TORCH asks for: "" is the tested version, else cuda, a version in range or a wheel file."""
    if re.search(r"(^|[/\\])torch-2\.1[123]\.[^/\\]*\.whl$", choice) and os.path.isfile(choice):
        return os.path.abspath(choice)
    if choice not in ("", "cuda") and not re.fullmatch(r"2\.1[123]\.\d+(\+\w+)?", choice):
        raise Refusal(f"TORCH={choice} is no version from 2.11 to 2.13, no wheel file of one and not cuda: correct it.")
    return "torch==" + (tested()["torch"] if choice in ("", "cuda") else choice)


def torch_without_cuda(pin: str, resolve: Callable[[list[str]], list[str]]) -> list[str]:
    """What to ask pip for where there is no NVIDIA driver: the first answer that brings no CUDA package.

    resolve(arguments) lists what the build asks for that pip finds, or raises Refusal when it finds none.
    """
    why: Refusal | None = None
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
    # Each answer was refused, or brings CUDA.
    assert why is not None
    raise why


def pip(env: Path, *arguments: str) -> None:
    """Run the pip of an environment and show what it downloads; Refusal with pip's own last lines when it fails."""
    command = [str(interpreter(env)), "-m", "pip", "--disable-pip-version-check", "--no-input", *arguments]
    printed = []
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as child:
        for line in filter(None, map(str.strip, child.stdout or ())):
            printed.append(line)
            if line.startswith(("Downloading ", "Installing ")) and ".metadata" not in line:
                print("   " + line.split(":")[0], flush=True)
    if child.returncode:
        last = [line for line in printed if not line.startswith("WARNING")][-3:]
        raise Refusal("pip failed; is there a network (HTTPS_PROXY, PIP_INDEX_URL)? It said: " + " | ".join(last))


def resolve(env: Path, arguments: list[str]) -> list[str]:
    """What the build of PyTorch that pip would install asks for in turn; only its description is downloaded."""
    print("Looking for", *arguments, flush=True)
    report = env / "report.json"
    pip(env, "install", "--dry-run", "--no-deps", "--retries=1", "--timeout=20", f"--report={report}", *arguments)
    return json.loads(report.read_text(encoding="utf-8"))["install"][0]["metadata"].get("requires_dist", [])


def create_venv(env: Path) -> None:
    """An empty environment, with a pip new enough to answer a dry run without downloading the packages."""
    # Works also while `.venv` itself is active.
    base = getattr(sys, "_base_executable", None) or sys.executable
    if subprocess.run([base, "-m", "venv", "--clear", str(env)], capture_output=True).returncode:
        raise Refusal("This Python cannot make a virtual environment: on Debian and Ubuntu, install python3-venv.")
    pip(env, "install", "--upgrade", "--retries=1", "pip")


def copy_venv(old: Path, env: Path) -> None:
    """The environment `old` at another place; the files are hard links, so this takes seconds and no room."""

    def link(source: str, target: str) -> None:
        try:
            os.link(source, target)
        # Another disk, or one that knows no links.
        except OSError:
            shutil.copy2(source, target)

    ignored = shutil.ignore_patterns(STAMP)
    shutil.copytree(str(old), str(env), symlinks=True, dirs_exist_ok=True, copy_function=link, ignore=ignored)
    # Console scripts hold the path of their Python.
    for script in [env / "pyvenv.cfg", *(env / "bin").iterdir()]:
        if script.is_file() and not script.is_symlink() and os.fsencode(old) in script.read_bytes():
            text, mode = script.read_bytes(), script.stat().st_mode
            # A write through the link would change the old one.
            script.unlink()
            script.write_bytes(text.replace(os.fsencode(old), os.fsencode(env)))
            script.chmod(mode)


def add(env: Path, names: tuple[str, ...]) -> None:
    """Install what these files require, in the tested versions where there are wheels of them, else within ranges."""
    # Whose build was chosen before.
    pins = {name: version for name, version in tested().items() if name != "torch"}
    place = env / CONSTRAINTS
    place.unlink(missing_ok=True)
    place.write_text("\n".join(map("==".join, pins.items())), encoding="utf-8")
    files = [part for name in names for part in ("-r", str(ROOT / name))]
    try:
        # As wheels: compiling one would take longer than anybody waits.
        pip(env, "install", *files, "--constraint", str(place), "--only-binary", ",".join(pins.keys() - SOURCES))
    except Refusal as error:
        # Without a network pip knows no version at all, and asking again would end the same way.
        if "from versions: none" in str(error):
            raise
        print(f"The tested versions do not fit here; others within the ranges are taken. {error}", flush=True)
        pip(env, "install", *files, "--prefer-binary")


def interpreter(env: Path) -> Path:
    """The Python of an environment."""
    return env / "bin" / "python"


def use() -> str:
    """The Python that `.venv` names now. `tidy` leaves its environment alone while this process runs, or what it turns
    into, and another one that takes its place changes nothing for it."""
    env = VENV.resolve()
    # Some network disks know no locks.
    with contextlib.suppress(OSError):
        os.set_inheritable(lock(env, fcntl.LOCK_SH), True)
    return str(interpreter(env))


def read_stamp(env: Path) -> dict[str, str]:
    """The stamp of a complete environment; {} of one that is missing, half-made, or whose Python is gone."""
    with contextlib.suppress(OSError, ValueError, TypeError):
        stamp = dict(json.loads((env / STAMP).read_text(encoding="utf-8")))
        return stamp if interpreter(env).exists() else {}
    return {}


def install(*names: str) -> None:
    """Bring `.venv` to what these requirements files say; at once when its stamp says so.

    Where that fails, one sentence says why, and what is installed serves on if it is within the requirements' ranges.
    """
    with open(str(ROOT / ".venv.lock"), "w") as alone:
        # Of two starts, one installs and the other waits.
        fcntl.flock(alone, fcntl.LOCK_EX)
        stamp, python = read_stamp(VENV), "{}.{}".format(*sys.version_info)
        # A build once chosen stays.
        torch = os.environ.get("TORCH", stamp.get("torch", ""))
        about = [python, torch, (ROOT / CONSTRAINTS).read_text(encoding="utf-8")]
        texts = {name: "\n".join([*about, (ROOT / name).read_text(encoding="utf-8")]) for name in names}
        wanted = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in texts.items()}
        if any(stamp.get(name) != wanted[name] for name in names):
            fresh = (stamp.get("python"), stamp.get("torch")) != (python, torch)
            pin = torch_pin(torch) if fresh else None
            try:
                build({**({"python": python, "torch": torch} if fresh else stamp), **wanted}, names, pin)
            except (Refusal, OSError) as error:
                if not serves(names):
                    raise
                old = f"The environment of before (Python {stamp['python']}) still serves"
                print(f"focuscope: {old}, no other could be made: {error}", file=sys.stderr, flush=True)
        tidy()


def build(stamp: dict[str, str], names: tuple[str, ...], pin: str | None) -> None:
    """Make the environment of this stamp beside `.venv` and put it in its place: from scratch with the build of
    PyTorch that `pin` asks for, or without one as a copy to which these files' requirements are added."""
    linux = platform.system() == "Linux"
    cuda = stamp["torch"] == "cuda" or (linux and any(os.path.exists(sign) for sign in NVIDIA_DRIVER))
    if pin:
        download, disk, minutes = COSTS["cuda" if cuda else "cpu"]
        free = shutil.disk_usage(str(ROOT)).free / 1e9
        if free < disk:
            raise Refusal(
                f"The libraries need {disk} GB of disk and {free:.1f} GB are free: make room, then start again."
            )
        when = "A new environment" if read_stamp(VENV) else "First start"
        print(f"{when}: {download} GB to download, {disk} GB on disk, {minutes} minutes at 50 Mbit/s.", flush=True)
    VENVS.mkdir(exist_ok=True)
    env = VENVS / f"{stamp['python']}-{time.time_ns()}"
    env.mkdir()
    try:
        if pin:
            create_venv(env)
            search = linux and not cuda and not pin.endswith(".whl")
            torch = torch_without_cuda(pin, partial(resolve, env)) if search else [pin]
            # What it needs comes below, in the tested versions.
            pip(env, "install", "--no-deps", *torch)
        else:
            copy_venv(VENV.resolve(), env)
        add(env, names)
        (env / STAMP).write_text(json.dumps(stamp), encoding="utf-8")
        # `.venv` names this environment, at once. A folder, as somebody may have made it by hand, moves.
        LINK.unlink(missing_ok=True)
        LINK.symlink_to(env.relative_to(ROOT), target_is_directory=True)
        if VENV.exists() and not VENV.is_symlink():
            VENV.rename(VENVS / f"old-{time.time_ns()}")
        LINK.replace(VENV)
    except BaseException:
        shutil.rmtree(str(env), ignore_errors=True)
        raise
    # The programs in C++ now, so that the first text does not wait for them; none without a compiler.
    command = [str(interpreter(env)), "-c", "from analysis.kernels.native import library; library()"]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        subprocess.run(command, cwd=str(ROOT), capture_output=True, timeout=120)


def serves(names: tuple[str, ...]) -> bool:
    """Whether what is installed is within the ranges of these requirements files: pip would install nothing."""
    if not read_stamp(VENV):
        return False
    files = [part for name in names for part in ("-r", str(ROOT / name))]
    command = [str(interpreter(VENV)), "-m", "pip", "install", "--dry-run", "--no-index", "--report=-", "-q"]
    done = subprocess.run([*command, *files], capture_output=True, text=True)
    return done.returncode == 0 and not json.loads(done.stdout)["install"]


def tidy() -> None:
    """Remove environments that are half-made, and those of before that no process which was started here uses."""
    for env in VENVS.iterdir() if VENVS.is_dir() else ():
        if env != VENV.resolve():
            with contextlib.suppress(OSError):
                lock(env, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(str(env), ignore_errors=True)


def lock(folder: Path, how: int) -> int:
    """Lock a folder until this process ends or turns into another program; BlockingIOError where another one has it."""
    handle = os.open(str(folder), os.O_RDONLY)
    fcntl.flock(handle, how)
    return handle

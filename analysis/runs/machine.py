"""Constants of this machine, which prices and predictions go by: measured once by `calibrate-machine` and kept in this
installation's state. Where they were not, or on another chip, those of the machines that this was written on stand."""

from functools import lru_cache
from pathlib import Path
from typing import Any

from ..files import read_json, write_json
from .store import state_root

FILE = "machine.json"
# Operations a second of a plain pass, until that is measured.
OPERATIONS = {"cpu": 5e10, "cuda": 5e13}


def processor_name() -> str:
    """The name of this machine's processor."""
    return next(
        (line.split(":", 1)[1].strip() for line in facts().splitlines() if line.startswith("model name")), "CPU"
    )


def facts() -> str:
    """What the system says of its processors; nothing where it says nothing."""
    try:
        return Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return ""


def constants(device: str, chip: str | None = None) -> dict[str, Any]:
    """What was measured here of a `cpu` or `cuda`, with the `date`; {} where nothing was, or of another chip than the
    one that is named (default for a `cpu`: the one that is here)."""
    path = state_root() / FILE
    try:
        stored = _read(path, path.stat().st_mtime_ns).get(device, {})
    except OSError:
        return {}
    chip = processor_name() if chip is None and device == "cpu" and stored else chip
    return stored if chip is None or stored.get("chip") == chip else {}


@lru_cache(maxsize=1)
def _read(path: Path, when: int) -> dict[str, Any]:
    return read_json(path) or {}


def keep(measured: dict[str, dict[str, Any]]) -> Path:
    """Keep the constants of devices; those of others stay."""
    path = state_root() / FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, (read_json(path) or {}) | measured)
    return path


def pace(device: str) -> float:
    """How many times as fast as was assumed a plain pass is here; 1 where it was not measured."""
    kind = device.partition(":")[0]
    return constants(kind).get("operations", OPERATIONS[kind]) / OPERATIONS[kind]

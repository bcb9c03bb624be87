"""What a package knows of itself: its version, and the command that installs what is optional."""

import importlib.metadata
import tomllib
from pathlib import Path

# Of the checkout; in a wheel neither file below is in it.
HOME = Path(__file__).parents[1]
CHECKOUT = (HOME / "pyproject.toml").is_file()
PROGRAM = "python -m analysis" if CHECKOUT else "python -m focuscope"  # what runs a verb


def version() -> str:
    """The version, of a checkout as pyproject.toml says it; a folder that was copied and not installed has none."""
    if CHECKOUT:
        return tomllib.loads((HOME / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    try:
        return importlib.metadata.version("focuscope")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def installs(extra: str) -> str:
    """The command for the packages of an extra: in the checkout, where no package is installed, by their file."""
    file = f"requirements-{extra}.txt"
    return f"pip install -r {file}" if (HOME / file).is_file() else f"pip install 'focuscope[{extra}]'"

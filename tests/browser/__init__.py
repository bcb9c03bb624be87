"""Flows in a real browser; what they ask of a page stands in `scripts`, one function a file."""

from pathlib import Path

SCRIPTS = Path(__file__).parent / "scripts"


def script(name: str) -> str:
    """The JavaScript function of this name, for `page.evaluate`."""
    return (SCRIPTS / f"{name}.js").read_text(encoding="utf-8")

"""What others rely on, written down so that a redesign can be held against it: every page's address, every control of
an address with its default, every option of every command, every setting of every method, every stored number.

`python -m tests.surfaces` prints what differs from `tests/surfaces.json`; `--write` makes it anew, and what is meant to
differ goes into CHANGELOG.md.
"""

import hashlib
import json
import sys
from pathlib import Path

from analysis.cli.options import fields
from analysis.commands import COMMANDS
from analysis.declaration import in_address as to_url
from analysis.files import write_json
from analysis.studies import describe
from analysis.studies.registry import STORED
from app.selection.controls import CONTROLS
from app.selection.menu import PAGES, address

ROOT = Path(__file__).resolve().parents[1]
WRITTEN = Path(__file__).with_suffix(".json")
CACHE = ROOT / "models_cache"


def surfaces() -> dict[str, dict]:
    """Surface -> name -> what stands there now, as plain data."""
    studies = {f"study {name}": (("study", name), STORED[name]) for name in STORED}
    verbs = {verb: ((verb, None), command) for verb, command in COMMANDS.items() if verb != "study"}
    return {
        "pages": {page.was: address(page.name) for page in PAGES.values()},
        "controls": {name: None if c.default is None else to_url(c.default) for name, c in CONTROLS.items()},
        "options": {
            f"{command} {name}": "required" if field.needed else field.default
            for command, (words, _) in (verbs | studies).items()
            for name, field in fields(*words).items()
        },
        "versions": {command: verb.version for command, (_, verb) in (verbs | studies).items()},
        "settings": {
            f"{method} {field['name']}": {key: value for key, value in field.items() if key != "help"}
            for method, about in describe().items()
            for field in about["fields"]
        },
        "numbers": {str(path.relative_to(CACHE)): numbers_of(path) for path in stored()},
    }


def stored() -> list[Path]:
    """The files of the bundled models that hold what was measured."""
    folders = [CACHE / "demo" / "studies", CACHE / "demo" / "examples", CACHE / "demo-gpt2"]
    paths = {path for folder in folders for path in folder.rglob("*.json")}
    return sorted(paths - set((CACHE / "demo" / "studies" / "work").rglob("*")))


def numbers_of(path: Path) -> str:
    """How many numbers a file holds, and a hash of them by their place."""
    leaves: list[tuple[str, float]] = []

    def walk(place: str, value: object) -> None:
        if isinstance(value, dict):
            for name in sorted(value):
                walk(f"{place}/{name}", value[name])
        elif isinstance(value, list):
            for index, item in enumerate(value):
                walk(f"{place}/{index}", item)
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            leaves.append((place, value))

    walk("", json.loads(path.read_text(encoding="utf-8")))
    return f"{len(leaves)} {hashlib.sha256(repr(leaves).encode()).hexdigest()[:16]}"


def differences(before: dict[str, dict], now: dict[str, dict]) -> list[str]:
    """One line for everything that came, went or changed."""
    lines = []
    for surface in sorted({*before, *now}):
        old, new = before.get(surface, {}), now.get(surface, {})
        for name in sorted({*old, *new}):
            if name not in new:
                lines.append(f"{surface}: {name} is gone")
            elif name not in old:
                lines.append(f"{surface}: {name} is new")
            elif old[name] != new[name]:
                lines.append(f"{surface}: {name} was {old[name]} and is {new[name]}")
    return lines


def main(arguments: list[str]) -> int:
    """1 where something differs."""
    now = json.loads(json.dumps(surfaces()))
    if arguments == ["--write"]:
        write_json(WRITTEN, now)
        return 0
    lines = differences(json.loads(WRITTEN.read_text(encoding="utf-8")), now)
    print("\n".join(lines) or "nothing differs")
    return int(bool(lines))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

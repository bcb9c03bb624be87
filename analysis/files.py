"""Files that are there whole or not at all, however a program ends."""

import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def write_whole(path: Path) -> Iterator[Path]:
    """A place beside `path` to write to; when all is written it takes the place of `path`, else it is removed."""
    partial = path.with_name(f".tmp-{path.name}.{secrets.token_hex(4)}.part")
    try:
        yield partial
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def write_json(path: Path, numbers: dict) -> None:
    """Plain data as JSON, one line per key. Errors: ValueError for what is no number."""
    lines = ",\n".join(f" {json.dumps(key)}: {json.dumps(value, allow_nan=False)}" for key, value in numbers.items())
    with write_whole(path) as place:
        place.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")


def read_json(path: Path) -> dict | None:
    """What `write_json` left there; None where there is nothing, or nothing readable."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None

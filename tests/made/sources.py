"""The project's own source as the tests of its documents read it: every file parsed once in a process."""

import ast
from functools import cache
from pathlib import Path


@cache
def parsed(path: Path) -> ast.Module:
    """The tree of a file. Do not change it."""
    return ast.parse(path.read_text(encoding="utf-8"))

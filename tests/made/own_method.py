"""The program with a method of its user's: what the steps of CONTRIBUTING.md ask for, done in a copy of it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

PARTS = ("analysis", "app", "docs", "lab", ".streamlit")
NAME, TITLE = "strided", "Strided"
SOURCE = '''"""Strides: a window, and one of so many tokens before it."""

from dataclasses import dataclass

from torch import Tensor

from ..declaration import field
from ..seam.calls import Block
from .base import Method


@dataclass
class Strided(Method):
    """A window, and farther back every `stride`-th token."""

    title = "Strided"
    budgeted = "window"
    exported_with = {}

    window: int = field(64, "tokens that are always read, the token itself included", low=1, high=1 << 20)
    stride: int = field(64, "one token of so many is read farther back", low=1, high=1024)

    def mask(self, block: Block) -> Tensor:
        return block.near(self.window, 0) | (block.columns % self.stride == 0)
'''


def program(root: Path, copy: Path) -> None:
    """Fill the folder `copy` with the program in `root` and the method, whose settings are written down for the pages;
    CalledProcessError where that fails."""
    for part in PARTS:
        shutil.copytree(root / part, copy / part)
    (copy / "models_cache").symlink_to(root / "models_cache")
    methods = copy / "analysis" / "methods"
    (methods / f"{NAME}.py").write_text(SOURCE, encoding="utf-8")
    names = methods / "__init__.py"
    before, last, after = names.read_text(encoding="utf-8").partition("from .windows import")
    after = after.replace("\n}\n", f'\n    "{NAME}": {TITLE},\n}}\n', 1)
    names.write_text(f"{before}from .{NAME} import {TITLE}\n{last}{after}", encoding="utf-8")
    command = [sys.executable, "-m", "analysis", "commands"]
    subprocess.run(command, cwd=copy, env={**os.environ, "PYTHONPATH": str(copy)}, check=True)

"""Builds the wheel: `focuscope` alone at the top, with `analysis`, `app` and the bundled model inside it.

In the checkout `analysis` and `app` stand at the top and import each other by these names. An installed package must
not claim names that common, so the imports are rewritten while the wheel is built, by RULES. The other way, an alias in
`sys.modules` or a finder, would answer `import analysis` for every program of the process that installed Focuscope.
"""

import re
import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent
INSIDE = ["analysis", "app", ".streamlit/config.toml", "models_cache/demo", "models_cache/demo-gpt2", "LICENSE"]
LEFT_OUT = shutil.ignore_patterns("__pycache__", "*.pyc", "*.checkpoint", "work")
WRITTEN = (".py", ".csv", ".md")
RULES = [
    (r'^(\s*|.*""")import (analysis|app)$', r"\1from focuscope import \2"),
    (r"^(\s*)(from|import) (analysis|app)(?=[. ])", r"\1\2 focuscope.\3"),
    (r"""(?<=["',])analysis\.(?=[a-z{"'])""", "focuscope.analysis."),  # modules that are named in text
    (r"python -m analysis(?!\.)", "python -m focuscope"),
]


def rewritten(text: str) -> str:
    """A source file as it stands in the wheel."""
    for pattern, put in RULES:
        text = re.sub(pattern, put, text, flags=re.M)
    return text


def build(target: Path) -> None:
    """Put what stands beside `focuscope` in the checkout inside it, at `target`; its own sources are there already."""
    for name in INSIDE:
        source, place = ROOT / name, target / name
        place.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, place, ignore=LEFT_OUT, dirs_exist_ok=True)
        else:
            shutil.copyfile(source, place)
    for path in [*target.glob("*.py"), *(target / "analysis").rglob("*"), *(target / "app").rglob("*")]:
        if path.suffix in WRITTEN:
            path.write_text(rewritten(path.read_text(encoding="utf-8")), encoding="utf-8")


class Build(build_py):
    """setuptools' own, and what stands beside it."""

    def run(self) -> None:
        shutil.rmtree(Path(self.build_lib) / "focuscope", ignore_errors=True)  # of an earlier build
        super().run()
        build(Path(self.build_lib) / "focuscope")


if __name__ == "__main__":
    setup(cmdclass={"build_py": Build})

"""How large the house is and how it reads, counted from its own source: `python -m tests.house`,
or `python -m tests.house analysis/runs app/ui` of some places.

Lines by part; functions whose name is used once besides its definition; the share of names that say nothing; the share
of lines that are a comment of their own; conditional expressions and comprehensions per 1,000 lines.
"""

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PARTS = {"product": ("app", "analysis", "focuscope", "run.py", "environment.py"), "lab": ("lab",), "tests": ("tests",)}
COUNTED = (".py", ".cpp", ".h", ".js")
# Words that fit any value, so that a reader has to look up which.
FILLER = frozenset(
    "found told one said kept asked own mine held shown known made given taken seen at which what other others anyone "
    "nothing something each every much many more less least most whole rest same here there".split()
)


@dataclass(frozen=True)
class Numbers:
    """What one part of the project is made of.

    `python` and `other` count lines (C++ and JavaScript are `other`); `called_once` are functions with a name of their
    own that the whole project uses once; `filler` is the share of bound names that are FILLER; `comments` the share of
    Python lines that are a comment and nothing else; `ternaries` and `comprehensions` are per 1,000 Python lines;
    `aliased` counts file names that stand in several folders and that some import has to rename.
    """

    files: int
    python: int
    other: int
    functions: int
    called_once: int
    filler: float
    comments: float
    ternaries: float
    comprehensions: float
    aliased: int


def sources(part: str) -> list[Path]:
    """The tracked files of a part that are code."""
    listed = subprocess.run(["git", "ls-files", *PARTS[part]], cwd=ROOT, capture_output=True, text=True, check=True)
    return [ROOT / name for name in listed.stdout.split("\n") if name.endswith(COUNTED) and (ROOT / name).is_file()]


def trees(parts: Iterable[str]) -> dict[Path, ast.Module]:
    """Of every Python file of some parts what it says."""
    paths = [path for part in parts for path in sources(part) if path.suffix == ".py"]
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in paths}


def bound_names(tree: ast.Module) -> list[str]:
    """Every name that is bound: variables, parameters, loop and comprehension targets, without attributes."""
    names = [node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
    return names + [node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)]


def used_names(tree: ast.Module) -> Counter:
    """How often each name is read, as a name, an attribute, an import or a word of a string."""
    used = Counter()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            used[node.id] += 1
        elif isinstance(node, ast.Attribute):
            used[node.attr] += 1
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
            used[node.value] += 1
    return used


def numbers(part: str) -> Numbers:
    """Count one part; a function counts as called once when nothing outside its tests uses it twice."""
    parsed = trees([part])
    texts = {path: path.read_text(encoding="utf-8") for path in sources(part)}
    lines = {path: text.count("\n") for path, text in texts.items()}
    python = sum(lines[path] for path in parsed)
    users = ("product", "lab", *(["tests"] if part.startswith("tests") else []))
    used = sum(map(used_names, trees(users).values()), Counter())
    nodes = [node for tree in parsed.values() for node in ast.walk(tree)]
    kinds = Counter(map(type, nodes))
    # Functions of a module, without methods and what Python itself calls.
    bodies = [node for tree in parsed.values() for node in tree.body]
    functions = [node for node in bodies if isinstance(node, ast.FunctionDef) and not node.decorator_list]
    defined = Counter(node.name for node in functions)
    names = [name for tree in parsed.values() for name in bound_names(tree)]
    comments = sum(bool(re.match(r"\s*#", line)) for path in parsed for line in texts[path].split("\n"))
    comprehensions = sum(kinds[kind] for kind in (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp))
    stems = Counter(path.stem for path in parsed if path.stem != "__init__")
    aliases = [alias for node in nodes if isinstance(node, (ast.Import, ast.ImportFrom)) for alias in node.names]
    renamed = {alias.name.rpartition(".")[2] for alias in aliases if alias.asname}
    return Numbers(
        files=len(texts),
        python=python,
        other=sum(lines.values()) - python,
        functions=len(functions),
        called_once=sum(1 for name, times in defined.items() if times == 1 and used[name] == 1),
        filler=round(sum(name in FILLER for name in names) / max(len(names), 1), 4),
        comments=round(comments / max(python, 1), 4),
        ternaries=round(1000 * kinds[ast.IfExp] / max(python, 1), 1),
        comprehensions=round(1000 * comprehensions / max(python, 1), 1),
        aliased=len({stem for stem, times in stems.items() if times > 1} & renamed),
    )


def main() -> None:
    """Print one line a number, the parts side by side; of folders and files that are named instead, where they are."""
    PARTS.update({place: (place,) for place in sys.argv[1:]})
    counted = {part: asdict(numbers(part)) for part in sys.argv[1:] or PARTS}
    print(f"{'':16}", *(f"{part:>10}" for part in counted))
    for name in Numbers.__dataclass_fields__:
        print(f"{name:16}", *(f"{counted[part][name]:>10}" for part in counted))


if __name__ == "__main__":
    main()

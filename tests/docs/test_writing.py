"""All that is written, moved or removed passes `analysis/files.py`: there it is whole or not at all, and there a test
can end the program."""

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CHANGES = {"write_text", "write_bytes", "touch", "unlink", "rename", "replace", "rmtree", "symlink_to", "copyfile"}
OWNERS = {"os", "shutil"}  # whose functions change the disk; `replace` and `rename` of words and tables do not
PLACES = {"place", "draft", "partial"}  # what `write_whole` and `draft` give: nobody reads it yet
APART = {
    "analysis/files.py": "it is the one place",
    "analysis/timing/__init__.py": "it tells the kernel something",
    "analysis/jobs/lease.py": "its lock goes with it",
    "analysis/jobs/process.py": "the log of a process",
    "analysis/cluster/engine.py": "the log of a process",
    "analysis/training/far_run.py": "a link to shards that another training made",
    "analysis/runs/bundle.py": "unpacking into a draft, file by file",
}


def changes(tree: ast.Module) -> list[int]:
    """The lines that change the disk by themselves."""
    found = []
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        function = call.func
        named = isinstance(function, ast.Name) and function.id == "open"
        mode = call.args[1:2] if named else call.args[:1] if getattr(function, "attr", "") == "open" else []
        if mode and isinstance(mode[0], ast.Constant) and set(str(mode[0].value)) & set("wax"):
            found.append(call.lineno)
        if not isinstance(function, ast.Attribute) or function.attr not in CHANGES:
            continue
        owner = function.value.id if isinstance(function.value, ast.Name) else ""
        of_words = function.attr == "replace" or function.attr == "rename" and not call.args
        plain = of_words and owner not in OWNERS
        if not plain and owner not in PLACES:
            found.append(call.lineno)
    return found


def test_all_writing_passes_one_place():
    wrong = []
    for path in sorted([*(ROOT / "analysis").rglob("*.py"), *(ROOT / "focuscope").rglob("*.py")]):
        name = path.relative_to(ROOT).as_posix()
        lines = changes(ast.parse(path.read_text(encoding="utf-8")))
        if lines and name not in APART:
            wrong.append(f"{name}:{lines[0]} changes the disk by itself: use analysis.files")
        if not lines and name in APART:
            wrong.append(f"{name} changes nothing by itself: it is no exception any more")
    assert not wrong, "\n".join(wrong)

"""The documents say what the code does: tree, commands and tables of the README, a docstring on every public name."""

import ast
import re
import shlex
import subprocess
from functools import cache
from pathlib import Path

import pytest

from analysis.cli.options import parser
from tests.made.sources import parsed

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
LONGEST = 400  # lines; about 300 is where to look twice
# Written so that this line is no machine path itself.
MACHINE_PATH = re.compile(r"(?<![\w.~-])/(?:root|home|Users|work|mnt)/\w+|[A-Z]:\\Users")
UNNAMED = {"__pycache__", "__init__.py"}  # entries of a folder that no tree has to show


def files(*patterns: str) -> list[Path]:
    """The project's own files that match: nothing hidden, nothing that git ignores; the sample texts are no code."""
    found = [path for pattern in patterns for path in ROOT.glob(pattern) if path.is_file()]
    ignored = git("check-ignore", "--stdin", text="\n".join(str(path.relative_to(ROOT)) for path in found)).split("\n")
    outside = {ROOT / name for name in ignored if name}
    return sorted(
        path for path in set(found) - outside if "__pycache__" not in path.parts and ".venv" not in path.parts
    )


def git(*arguments: str, text: str) -> str:
    """What git prints; nothing where there is no git or the folder is no clone."""
    try:
        return subprocess.run(["git", *arguments], cwd=ROOT, input=text, capture_output=True, text=True).stdout
    except OSError:
        return ""


def code() -> list[Path]:
    """Every Python file of the project."""
    return files("*.py", "analysis/**/*.py", "app/**/*.py", "lab/**/*.py", "tests/**/*.py")


def readme() -> str:
    """The README, or a clear failure while there is none."""
    assert README.is_file(), "README.md is missing"
    return README.read_text(encoding="utf-8")


def blocks() -> list[str]:
    """The fenced code blocks of the README."""
    return re.findall(r"^```\w*\n(.*?)^```", readme(), flags=re.M | re.S)


# --- the README ---------------------------------------------------------------------------------------------------


def test_the_two_commands_stand_in_the_first_lines():
    top = readme().splitlines()[:15]
    for command in ("python run.py", "python run.py test"):
        assert any(command in line and line.split(command)[1][:1] in ("", "`", " ") for line in top), (
            f"`{command}` is not in the first 15 lines of the README"
        )


def test_line_three_links_a_report_that_needs_no_network():
    link = re.search(r"\]\(([^)\s]+\.html)\)", "\n".join(readme().splitlines()[2:3]))
    assert link, "line 3 of the README links no .html file"
    page = ROOT / link[1]
    assert page.is_file(), f"{link[1]} of line 3 does not exist"
    loads = re.findall(
        r"""<(?:script|img|iframe)[^>]+src=["']?https?://[^"'> ]+|<link[^>]+href=["']?https?://[^"'> ]+""",
        page.read_text(encoding="utf-8"),
    )
    assert not loads, f"{link[1]} loads from the network: {loads[:3]}"


def tree() -> dict[str, list[str]]:
    """The README's tree: folder ("" is the root) -> the names that stand under it. Two spaces indent and separate."""
    block = next((block for block in blocks() if re.search(r"^analysis/", block, flags=re.M)), None)
    assert block, "the README has no code block with a line that starts with `analysis/`"
    found, folders = {"": []}, [""]
    for line in filter(str.strip, block.splitlines()):
        depth = (len(line) - len(line.lstrip())) // 2
        cells = re.split(r"\s{2,}", line.strip())
        names = [
            cell
            for cell in cells
            if re.fullmatch(r"[\w.-]+(/[\w.-]+)*/?", cell) and re.search(r"[./]|file$|^LICENSE$", cell)
        ]
        assert names and cells[0] == names[0], f"a line of the README's tree starts with no file or folder: {line!r}"
        found[folders[depth]] += [name.rstrip("/") for name in names]
        if names[0].endswith("/"):
            folders[depth + 1 :] = ["/".join(filter(None, [folders[depth], names[0].rstrip("/")]))]
            found.setdefault(folders[depth + 1], [])
    return found


def test_tree_names_only_what_exists():
    for folder, names in tree().items():
        for name in names:
            assert (ROOT / folder / name).exists(), f"the README's tree names {folder}/{name}, which does not exist"


@pytest.mark.parametrize("folder", ["", "analysis", "app"])
def test_tree_names_every_room(folder):
    """Every folder, and at the root every file."""
    shown = {name.split("/")[0] for name in tree().get(folder, []) if not name.startswith(".")}
    here = [*files(f"{folder}/*".lstrip("/")), *files(f"{folder}/[!.]*/**/*".lstrip("/"))]  # not into .venv
    real = {path.relative_to(ROOT / folder).parts[0] for path in here if not path.name.startswith(".")} - UNNAMED
    rooms = {name for name in real if not folder or (ROOT / folder / name).is_dir()}
    assert rooms <= shown, f"missing in the README's tree: {sorted(rooms - shown)}"


def commands() -> list[str]:
    """Every `python -m analysis VERB ...` line of the README's code blocks."""
    joined = "\n".join(blocks()).replace("\\\n", " ") if README.is_file() else ""
    return sorted({line.strip().split("#")[0].strip() for line in joined.splitlines() if "python -m analysis " in line})


def test_readme_shows_the_command_line():
    assert commands(), "no code block of the README shows `python -m analysis`"


def test_commands_of_the_readme_are_understood():
    understood = parser("x")
    for command in commands():
        understood.parse_args(shlex.split(command.split("python -m analysis ", 1)[1].split("|")[0]))


def test_table_of_methods_equals_the_code():
    from analysis.methods import METHODS

    rows = re.search(r"^\| *method *\|.*\n\|[-| :]+\|\n((?:\|.*\n)+)", readme() + "\n", flags=re.M | re.I)
    assert rows, "the README has no table whose first column is called `method`"
    named = re.findall(r"^\| *`([a-z0-9_]+)` *\|", rows[1], flags=re.M)
    assert sorted(named) == sorted(METHODS), f"the README lists {sorted(named)}, METHODS has {sorted(METHODS)}"


def test_links_of_the_readme_lead_somewhere():
    for target in re.findall(r"\]\((?!https?://|#|mailto:)([^)#\s]+)", readme()):
        assert (ROOT / target).exists(), f"the README links {target}, which does not exist"


# --- the code -----------------------------------------------------------------------------------------------------


def test_files_say_what_they_are_and_stay_short():
    wrong = []
    for path in code():
        text, name = path.read_text(encoding="utf-8"), str(path.relative_to(ROOT))
        if text.strip() and not ast.get_docstring(parsed(path)):
            wrong.append(f"{name} has no docstring at its top")
        if text.count("\n") > LONGEST:
            wrong.append(f"{name} has {text.count(chr(10))} lines, more than {LONGEST}: it holds two ideas")
    assert not wrong, "\n".join(wrong)


def packed(path: Path) -> list[int]:
    """Lines where `# fmt: skip` packs a statement; a table, which is a list or dict by itself, may have it."""
    text = path.read_text(encoding="utf-8")
    marked = {number for number, line in enumerate(text.splitlines(), 1) if line.endswith("# fmt: " + "skip")}
    if not marked:
        return []
    nodes = [
        node
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Return)
    ]
    tables = {node.end_lineno for node in nodes if isinstance(node.value, ast.List | ast.Tuple | ast.Set | ast.Dict)}
    return sorted(marked - tables)


def test_only_tables_are_packed_in_tests():
    found = {str(path.relative_to(ROOT)): lines for path in files("tests/**/*.py") if (lines := packed(path))}
    assert not found, f"statements packed by `# fmt: skip`: {found}"


@cache
def definitions() -> tuple[list[tuple[str, str]], set[str]]:
    """(file, public name) of what has no docstring, and the names of all methods that have one somewhere."""
    without, documented = [], set()
    for path in [path for path in code() if "tests" not in path.relative_to(ROOT).parts]:
        tree = parsed(path)
        classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
        for parent in [tree, *(node for node in classes if not node.name.startswith("_"))]:
            for node in parent.body:
                if not isinstance(node, (ast.FunctionDef, ast.ClassDef)) or node.name.startswith("_"):
                    continue
                if ast.get_docstring(node):
                    documented.add(node.name)
                else:
                    owner = "" if parent is tree else f"{parent.name}."
                    without.append((str(path.relative_to(ROOT)), owner + node.name))
    return without, documented


def test_every_public_name_has_a_docstring():
    """A method may do without when the method of the same name that it overrides is documented."""
    without, documented = definitions()
    bare = [f"{path}: {name}" for path, name in without if "." not in name or name.split(".")[1] not in documented]
    assert not bare, "public names without a docstring:\n" + "\n".join(bare)


def test_the_project_speaks_of_itself_alone():
    patterns = (
        "*",
        ".ci/*",
        ".github/**/*",
        ".streamlit/*",
        "analysis/**/*",
        "lab/**/*",
        "app/**/*",
        "tests/**/*",
        "models_cache/**/*.json",
        "docs/**/*",
    )
    for path in files(*patterns):
        if path.suffix not in (".safetensors", ".parquet", ".png", ".sqlite") and path.name != ".git":
            text = path.read_text(encoding="utf-8", errors="replace")
            said = MACHINE_PATH.search(text)
            assert not said, f"{path.relative_to(ROOT)} names a path of somebody's machine: {said[0]}"

"""The documents say what the code does: the README's tree, commands, table of methods and links."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from analysis.cli.options import parser
from analysis.methods import METHODS

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```\w*\n(.*?)^```", README, flags=re.M | re.S)
LONGEST_README, LONGEST_FILE = 320, 400  # lines; a file of more than about 300 holds two ideas
BINARY = {".safetensors", ".parquet", ".png", ".sqlite"}
# Written so that this line is no machine path itself.
MACHINE_PATH = re.compile(r"(?<![\w.~-])/(?:root|home|Users|work|mnt)/\w+|[A-Z]:\\Users")


def tracked() -> list[Path]:
    """The files that git knows and that are still there; where this is no clone, there is nothing to look at."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True).stdout.splitlines()
    if not listed:
        pytest.skip("this folder is no clone")
    return [ROOT / name for name in listed if (ROOT / name).is_file()]


def tree() -> dict[str, list[str]]:
    """The README's tree: folder ("" is the root) -> the names that stand under it. Two spaces indent and separate."""
    block = next(block for block in BLOCKS if re.search(r"^analysis/", block, flags=re.M))
    names_in, folders = {"": []}, [""]
    for line in filter(str.strip, block.splitlines()):
        depth = (len(line) - len(line.lstrip())) // 2
        cells = re.split(r"\s{2,}", line.strip())
        names = [cell for cell in cells if re.fullmatch(r"[\w./-]+", cell) and re.search(r"[./]|file$|^LICENSE$", cell)]
        assert names and cells[0] == names[0], f"a line of the README's tree starts with no file or folder: {line!r}"
        names_in[folders[depth]] += [name.rstrip("/") for name in names]
        if names[0].endswith("/"):
            folders[depth + 1 :] = ["/".join(filter(None, [folders[depth], names[0].rstrip("/")]))]
            names_in.setdefault(folders[depth + 1], [])
    return names_in


def test_tree_names_only_what_exists():
    missing = [f"{folder}/{name}" for folder, names in tree().items() for name in names]
    assert [place for place in missing if not (ROOT / place.lstrip("/")).exists()] == []


@pytest.mark.parametrize("folder", ["", "analysis", "app"])
def test_tree_names_every_room(folder):
    """Every folder, and at the root every file."""
    shown = {name.split("/")[0] for name in tree()[folder]}
    inside = [path.relative_to(ROOT / folder).parts for path in tracked() if path.is_relative_to(ROOT / folder)]
    wanted = {parts[0] for parts in inside if not folder or len(parts) > 1}
    assert {name for name in wanted if not name.startswith(".")} - shown == set()


def test_commands_of_the_readme_are_understood():
    lines = "\n".join(BLOCKS).replace("\\\n", " ").splitlines()
    commands = [line.split("#")[0] for line in lines if "python -m analysis " in line]
    assert len(commands) > 10
    for command in commands:
        parser("x").parse_args(shlex.split(command.split("python -m analysis ", 1)[1].split("|")[0]))


def test_table_of_methods_equals_the_code():
    rows = re.search(r"^\| *method *\|.*\n\|[-| :]+\|\n((?:\|.*\n)+)", README + "\n", flags=re.M | re.I)
    assert sorted(re.findall(r"^\| *`([a-z0-9_]+)` *\|", rows[1], flags=re.M)) == sorted(METHODS)


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_links_lead_somewhere(page):
    links = re.findall(r"\]\((?!https?://|#|mailto:)([^)#\s]+)", (ROOT / page).read_text(encoding="utf-8"))
    assert links and [target for target in links if not (ROOT / target).exists()] == []


def test_files_stay_short():
    long = {"README.md": README.count("\n")} if README.count("\n") > LONGEST_README else {}
    for path in tracked():
        if path.suffix == ".py" and (lines := path.read_text(encoding="utf-8").count("\n")) > LONGEST_FILE:
            long[str(path.relative_to(ROOT))] = lines
    assert long == {}


def test_no_file_names_a_path_of_somebodys_machine():
    named = {}
    for path in tracked():
        if path.suffix not in BINARY:
            if match := MACHINE_PATH.search(path.read_text(encoding="utf-8", errors="replace")):
                named[str(path.relative_to(ROOT))] = match[0]
    assert named == {}

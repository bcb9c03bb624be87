"""The documents say what the code does: the README's tree, commands, table of methods and links."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest
from PIL import Image

from analysis.cli.options import parser
from analysis.methods import METHODS

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```\w*\n(.*?)^```", README, flags=re.M | re.S)
LONGEST_README, LONGEST_FILE = 320, 400  # lines; a file of more than about 300 holds two ideas
SCREEN, LARGEST = (1440, 900), 200_000  # pixels and bytes of a picture: those of tests/browser/test_walks.py
# Written so that this line is no machine path itself.
MACHINE_PATH = r"(^|[^A-Za-z0-9_.~-])/(root|home|Users|work|mnt)/[A-Za-z0-9_]|[A-Z]:\\Users"


def git(*words: str) -> list[str]:
    """The lines that git prints; where this is no clone, there is nothing to look at."""
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)
    if done.returncode > 1:
        pytest.skip("this folder is no clone")
    return done.stdout.splitlines()


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


def test_the_tree_names_every_room_and_only_what_exists():
    """Every folder, and at the root every file."""
    places = [f"{folder}/{name}".lstrip("/") for folder, names in tree().items() for name in names]
    assert [place for place in places if not (ROOT / place).exists()] == []
    for folder in ("", "analysis", "app"):
        inside = [Path(name).relative_to(folder).parts for name in git("ls-files", folder or ".")]
        wanted = {parts[0] for parts in inside if not folder or len(parts) > 1}
        named = {name.split("/")[0] for name in tree()[folder]}
        assert {name for name in wanted if not name.startswith(".")} - named == set()


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


def test_the_pictures_of_the_readme_are_those_of_the_walks_and_say_what_they_show():
    pictures = dict(re.findall(r"!\[([^]]*)\]\((docs/\w+\.png)\)", README))
    assert len(pictures) == 3
    for words, place in pictures.items():
        assert len(words.split()) >= 8, f"{place} says what it shows"
        with Image.open(ROOT / place) as picture:
            assert picture.size == SCREEN, place
        assert (ROOT / place).stat().st_size <= LARGEST


def test_files_stay_short_and_name_no_path_of_somebodys_machine():
    assert README.count("\n") <= LONGEST_README and git("grep", "-lIE", MACHINE_PATH) == []
    lines = {name: (ROOT / name).read_text(encoding="utf-8").count("\n") for name in git("ls-files", "*.py")}
    assert {name: count for name, count in lines.items() if count > LONGEST_FILE} == {}

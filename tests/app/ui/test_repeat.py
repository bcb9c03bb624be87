"""Copy as code: what a page shows as lines for a notebook and as a command, which the command line reads."""

import ast
import shlex

import pytest

from analysis.cli.options import fields, parser
from analysis.corpus import sample_texts
from analysis.places import CACHE
from analysis.runs.folder import read_run
from analysis.runs.run import command_of
from app.ui import foot, repeat
from tests.made.in_process import opened, put


def read(command: str) -> dict:
    """What the parser reads of a command."""
    return vars(parser("x").parse_args(shlex.split(command)[3:]))


def test_a_page_without_a_drawer_of_its_own_ends_in_the_code_of_what_it_shows(client):
    app = opened("pairs", text=put(client, "a text of some length " * 4), distance="8")
    assert [one.label for one in app.expander].count(repeat.TITLE) == 1 and not app.code, "written when it is opened"
    app.session_state["repeat_rest"] = True
    app.run()
    lines, commands = (one.value for one in app.code[-2:])
    (run,) = client.store.list("pairs")
    given = read(next(line for line in commands.splitlines() if " pairs " in line))
    assert given["text"] == "TEXT" and given["min_distance"] == run.request["min_distance"]
    calls = [node for node in ast.walk(ast.parse(lines)) if isinstance(node, ast.Call)]
    assert f"python -m analysis {calls[0].args[0].value}" in commands.splitlines()
    assert "pairs = fs.run(" in lines and lines.startswith("import focuscope as fs\n")


def test_a_page_with_a_drawer_of_its_own_has_no_second_one(client):
    app = opened("views/generate.py")
    assert [one.label for one in app.expander].count(repeat.TITLE) == 1
    lines, command = (one.value for one in app.code[-2:])
    assert command.startswith("python -m analysis generate TEXT") and "generate TEXT --model demo" in lines


def test_two_requests_of_one_page_stand_in_one_drawer(client):
    app = opened("views/speed.py")
    assert [one.label for one in app.expander].count(repeat.TITLE) == 1
    lines, commands = (one.value for one in app.code[-2:])
    assert [line.split()[3] for line in commands.splitlines()] == ["launch", "bench"]
    assert "launch = fs.run(" in lines and "bench = fs.run(" in lines


@pytest.mark.parametrize("verb", ["pairs", "route-at", "cap-sweep", "reads-text", "probe", "evaluate", "worth"])
def test_the_command_of_a_stored_run_asks_for_what_the_run_was_asked(verb):
    runs = [read_run(manifest.parent) for manifest in (CACHE / "demo" / "examples").glob("*/manifest.json")]
    for run in [run for run in runs if run.verb == verb]:
        usual = {name: one.default for name, one in fields(verb).items()}
        given = usual | read(command_of(run))
        left = {"made", "text", "texts", "methods", "config"}
        wanted = {name: value for name, value in run.request.items() if value not in (None, "") and name not in left}
        assert given | wanted == given and given["verb"] == verb
        assert (given.get("text") or "story") in ["TEXT", *sample_texts()]


def test_a_page_ends_in_the_papers_it_rests_on(client):
    app = opened("groups", text=put(client, "a text of some length " * 4))
    assert foot.CITE in [one.label for one in app.expander]
    app.session_state["cite"] = True
    app.run()
    (entry,) = [one.value for one in app.code if one.value.startswith("@")]
    assert entry.startswith("@misc{focus,") and entry.count("@") == 1
    assert foot.CITE not in [one.label for one in opened("runs").expander]

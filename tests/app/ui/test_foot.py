"""The end of a page: its results as code, its papers, where it leads; classroom mode, which every link keeps."""

import ast
import json
import shlex
from urllib.parse import parse_qs

import pytest

from analysis.cli.options import fields, parser
from analysis.corpus import sample_texts
from analysis.places import CACHE
from analysis.runs.folder import read_run
from analysis.runs.run import command_of
from app.selection import state
from app.selection.menu import DOORS, PAGES
from app.ui import charts, foot, repeat
from tests.conftest import ROOT
from tests.made.in_process import markup, opened, part, put

WORDS = " ".join(f"word{i}" for i in range(40))


def read(command: str) -> dict:
    """What the parser reads of a command."""
    return vars(parser("x").parse_args(shlex.split(command)[3:]))


def test_a_page_without_a_drawer_of_its_own_ends_in_the_code_of_what_it_shows(client):
    text = put(client, "a text of some length " * 4)
    app = opened("links", text=text, distance="8")
    assert [fold.label for fold in app.expander].count(repeat.TITLE) == 1 and not app.code, "written when it is opened"
    app.session_state["repeat_rest"] = True
    app.run()
    lines, commands = (code.value for code in app.code[-2:])
    (run,) = client.store.list("pairs")
    arguments = read(next(line for line in commands.splitlines() if " pairs " in line))
    assert arguments["text"] == text and arguments["min_distance"] == run.request["min_distance"]
    assert f"{text} is “" in markup(app) and "pairs.tables['pairs'].plot(y='attention', backend='plotly')" in lines
    calls = [node for node in ast.walk(ast.parse(lines)) if isinstance(node, ast.Call)]
    assert f"python -m analysis {calls[0].args[0].value}" in commands.splitlines() and "pairs = fs.run(" in lines


@pytest.mark.parametrize(("view", "verbs"), [("generate", ["generate"]), ("speed", ["launch", "bench"])])
def test_a_page_with_a_drawer_of_its_own_has_no_second_one(client, view, verbs):
    app = opened(view)
    assert [fold.label for fold in app.expander].count(repeat.TITLE) == 1
    lines, commands = (code.value for code in app.code[-2:])
    assert [line.split()[3] for line in commands.splitlines()] == verbs
    assert all(f"{verb} = fs.run(" in lines for verb in verbs)


@pytest.mark.parametrize("verb", ["pairs", "route-at", "cap-sweep", "reads-text", "probe", "evaluate", "worth"])
def test_the_command_of_a_stored_run_asks_for_what_the_run_was_asked(verb):
    runs = [read_run(manifest.parent) for manifest in (CACHE / "demo" / "examples").glob("*/manifest.json")]
    for run in [run for run in runs if run.verb == verb]:
        usual = {name: field.default for name, field in fields(verb).items()}
        arguments = usual | read(command_of(run))
        left = {"made", "text", "texts", "methods", "config"}
        wanted = {name: value for name, value in run.request.items() if value not in (None, "") and name not in left}
        assert arguments | wanted == arguments and arguments["verb"] == verb
        assert (arguments.get("text") or "story") in [run.request.get("text"), *sample_texts()]
        assert command_of(run, elsewhere=True).replace("TEXT", str(run.request.get("text"))) == command_of(run)


def test_a_page_ends_in_the_papers_it_rests_on(client):
    app = opened("groups", text=put(client, "a text of some length " * 4))
    app.session_state["cite"] = True
    app.run()
    (entry,) = [code.value for code in app.code if code.value.startswith("@")]
    assert entry.startswith("@misc{focus,") and entry.count("@") == 1
    assert foot.CITE not in [expander.label for expander in opened("runs").expander]


def test_every_page_leads_on_to_others_with_controls_that_there_are():
    views = {path.relative_to(ROOT / "app").as_posix() for path in (ROOT / "app" / "views").glob("*.py")}
    assert {door.view for door in DOORS.values()} == views
    for page in PAGES.values():
        assert page.leads and all(name in PAGES and name != page.name for name, *_ in page.leads)
        assert {name for _, _, *names in page.leads for name in names} <= set(state.CONTROLS)


def test_a_pair_that_nobody_chose_leads_to_its_head(client):
    text = put(client, WORDS)
    app = opened(text=text)
    arc = part(app, "read")["arcs"][0]
    links = {link.proto.label: parse_qs(link.proto.query_string) for link in app.get("page_link")}
    arc_link = {"layer": "0", "head": "0", "query": str(arc["query"]), "why_key": str(arc["key"])}
    wanted = {"at": "map", "model": "demo", "text": text, "router": "k4-top1"} | arc_link
    assert links["The head that reads this pair"] == {name: [label] for name, label in wanted.items()}
    assert links["All far pairs of this text"]["pair"] == [f"0.0.{arc['query']}.{arc['key']}"]
    assert "layer" not in app.query_params, "a link is no choice"


@pytest.mark.parametrize("link, offered", [({}, True), ({"classroom": "yes"}, False)])
def test_a_class_makes_no_zip(client, link, offered):
    assert ("Make the zip" in [button.label for button in opened("worth", **link).button]) == offered


def test_classroom_mode_has_large_charts_and_no_tables_and_every_link_keeps_it(client):
    text = put(client, WORDS)
    for link, size, in_link in (({}, None, None), ({"classroom": "yes"}, {"size": charts.PROJECTED}, ["yes"])):
        app = opened("links", text=text, distance=16, pairs_more="yes", **link)
        fonts = [json.loads(chart.proto.spec)["layout"].get("font") for chart in app.get("plotly_chart")]
        assert fonts and all(letters == size for letters in fonts) and not app.error
        names = [element.proto.component_name for element in app.get("bidi_component")]
        assert ("focuscope_table" in names) == (in_link is None) == ("scroll-snap-type" not in markup(app))
        links = [parse_qs(link.proto.query_string) for link in app.main.get("page_link")]
        assert links and all(link.get("classroom") == in_link for link in links)
        assert ("classroom" in app.query_params) == (in_link is not None)

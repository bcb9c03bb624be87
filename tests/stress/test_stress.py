"""The parts of `stress` in small: faults and kills with quick studies, those of memory and of a model with real ones
too, a reader without a browser, and a few hostile inputs into what judges them, into pages and in Chromium."""

import asyncio
import contextlib
import html
import io
import json
import random
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest

from analysis.commands.runs import Stress
from analysis.errors import AnalysisError, BadSetting
from analysis.runs import RunStore
from tests.conftest import all_of_them
from tests.made.clock import Clock
from tests.stress import chromium, faults, in_tabs, inputs, kills, load, rows, server, validators
from tests.stress.hostile import MARKUP, hostile_bundle
from tests.stress.parts import stress
from tests.stress.scene import Broken, Scene
from tests.stress.session import Session

FAKES = "tests.made.fake_studies:STUDIES"
HERE = [name for name in faults.FAULTS if "model" not in name]
REAL = ("worker out of memory", "truncated safetensors of a model")


def apart(work) -> None:
    """Run a coroutine in a thread of its own: a browser of an earlier test leaves this one with a running loop."""
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, work).result()


def scene(folder):
    """Quick studies in the place of real ones: the long one waits in its middle until it is resumed."""
    return Scene(
        folder,
        FAKES,
        long=("count", {"steps": 30, "wait_at": 20}),
        quick=("echo", {"value": 1}),
        other=("echo", {"value": 2}),
        greedy=("greedy", {}),
        waits=lambda status: status.stage == "holding",
    )


def own_disk():
    """Whether this machine lets us make a small file system of our own."""
    words = ["unshare", "--map-root-user", "--mount", "sh", "-c", "mount -t tmpfs -o size=1m tmpfs /mnt"]
    return shutil.which("unshare") and subprocess.run(words, capture_output=True).returncode == 0


# What the tests of jobs and runs try every time is tried here with `--all`.
@pytest.mark.slow
@pytest.mark.parametrize("name", HERE)
def test_nothing_is_lost_and_the_reader_is_told(name, tmp_path):
    if name == "full disk" and not own_disk():
        pytest.skip("this machine lets nobody mount a small file system")
    (row,) = faults.broken(lambda _: scene(tmp_path), [name])
    assert row.held == 1, row.said


@pytest.mark.slow
@pytest.mark.timeout(900)  # seconds, beside whatever else runs
@pytest.mark.parametrize(("module", "ends"), [("stores", 200), ("fits", 60)])
def test_whatever_is_killed_at_a_write_loses_nothing(module, ends, tmp_path):
    lines = list(kills.tried(module, tmp_path))
    assert len(lines) > 3 and all(row.tried for row in lines)
    assert not (wrong := [row for row in lines if row.held < row.tried]), wrong
    assert sum(row.tried for row in lines) >= ends


@pytest.mark.slow
def test_no_hostile_input_gets_past_the_validators(tmp_path):
    before = rows.prepared(tmp_path)
    lines = validators.tried(20 * len(validators.JUDGES), tmp_path, seed=7)
    assert len(lines) == len(validators.JUDGES) and all(row.held == row.tried for row in lines), lines
    assert rows.untouched(tmp_path, before, "validators", 240).held == 240


@pytest.mark.parametrize("name", ["secret.txt", "home/pwned", "x", "models/inside/x"])
def test_a_file_outside_the_store_is_found(name, tmp_path):
    before = rows.prepared(tmp_path)
    for path in ("state/texts/x", "server.log", "home/.streamlit/config.toml"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("its own")
    assert rows.untouched(tmp_path, before, "this", 3).plain()["holds"]
    (tmp_path / name).write_text("pwned")
    row = rows.untouched(tmp_path, before, "this", 3)
    assert (row.tried, row.held) == (3, 0) and row.said.endswith(name)


def test_a_judge_holds_when_it_answers_or_refuses_in_a_sentence(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(rows, "now", clock)

    def refuses(words):
        def judge(dice):
            raise BadSetting(words)

        return judge

    def waits(dice):
        clock.seconds += rows.SLOW

    judges = {"answers": lambda dice: dice.random(), "refuses": refuses("This is no text: give another one.")}
    judges |= {"reads": lambda dice: f"it is {rows.SECRET}", "mumbles": refuses("no"), "breaks": lambda dice: 1 / 0}
    judged = rows.judged(judges | {"waits": waits}, 14, 0)
    assert [(row.tried, row.held) for row in judged] == [(3, 3), (3, 3), (2, 0), (2, 0), (2, 0), (2, 0)]
    assert [row.said.split()[1] for row in judged[2:]] == ["what", "the", "division", "it"]


@pytest.mark.slow
def test_hostile_bundles_are_sound_ones_full_of_markup_and_damaged_ones(tmp_path):
    store, dice, brought, refused = RunStore(tmp_path / "state"), random.Random(4), [], set()
    for _ in range(25):
        try:
            brought += store.unbundle(io.BytesIO(hostile_bundle(dice))).new
        except AnalysisError as error:
            refused.add(str(error))
    assert len(brought) > 2 and "<" in json.dumps([store.open(run).numbers for run in brought]) and len(refused) > 5


def test_the_table_says_what_held_and_nonsense_is_refused(tmp_path):
    request = Stress(parts=["validators"], validators=30, output=str(tmp_path / "table.json"))
    answer = stress(request)
    stored = json.loads((tmp_path / "table.json").read_text())
    assert stored["rows"] == answer.numbers["rows"] and stored["sentence"] == f"All {len(stored['rows'])} cases hold."
    cases = [row["case"] for row in stored["rows"]]
    assert {"validator: URL parameters", "validator: run bundles"} <= set(cases) and "outside the root" in cases[-1]
    assert (tmp_path / "table.md").read_text().count("\n") == len(cases) + 2
    earlier = {"case": "tried once", "tried": 1, "held": 1, "holds": True, "said": ""}
    (tmp_path / "table.json").write_text(json.dumps(stored | {"rows": [earlier, *stored["rows"]]}))
    again = stress(request).numbers
    assert [row["case"] for row in again["rows"]] == ["tried once", *cases]
    assert again["rows"][0]["date"] == stored["protocol"]["date"] and again["earlier"] == [stored["protocol"]]
    for wrong in ({"parts": ["nothing"]}, {"sessions": 0}, {"every": 0}, {"after": -1}, {"chromium": 10**9}):
        with pytest.raises(BadSetting):
            Stress(**wrong)


def test_a_part_that_cannot_be_tried_says_why(tmp_path, monkeypatch):
    running = server.Server("127.0.0.1:1", None, tmp_path)
    monkeypatch.setattr(server, "served", lambda folder: contextlib.nullcontext(running))
    monkeypatch.setattr(chromium.shutil, "which", lambda name: None)
    (row,) = stress(Stress(parts=["chromium"], chromium=1)).numbers["rows"]
    assert not row["holds"] and "install it" in row["said"]


@pytest.mark.slow
@pytest.mark.parametrize("way", inputs.WAYS)
def test_no_hostile_input_breaks_a_page(client, way, pytestconfig):
    dice = random.Random(11)
    for _ in range(2 if all_of_them(pytestconfig) else 1):
        inputs.sound(inputs.drawn(inputs.WAYS[way], dice))


@pytest.mark.parametrize("live", [*MARKUP[:4], "<p ONCLICK='x'>", "<a href=' java\nscript:x'>", "<base href=//x>"])
def test_live_markup_is_seen_and_words_about_it_are_none(live):
    assert inputs.Live(f"<p>{live}</p>").found
    words = html.escape(f"{live} javascript:x onload=x")
    assert not inputs.Live(f"<style>p {{}}</style><p class='fs-lead'>{words}</p>").found


@pytest.mark.slow
def test_a_reader_without_a_browser_speaks_as_a_page_does(app_server):
    async def reads():
        async with Session(app_server.removeprefix("http://")) as reader:
            await reader.open()
            assert {"", "token-groups", "kv-budgets"} <= set(reader.pages) and "text=" in reader.query
            await reader.visit("token-groups")
            layers = reader.options()["layer_pick"]
            await reader.choose("layer_pick", layers[-1])
            last = layers[-1].removeprefix("Layer ")
            assert f"layer={last}" in reader.query and reader.failures == [] and reader.received > 100_000
            assert not reader.timers, "the page asks again and again for what nobody looks at"

    apart(reads())


def test_a_page_that_never_comes_counts_as_stuck(monkeypatch):
    monkeypatch.setattr(load, "STUCK", 0.5)
    waits = load.Waits()

    async def reads():
        await waits.timed(asyncio.sleep(0, 3.0))
        await waits.timed(asyncio.sleep(0, 1.0), "routing")
        await waits.timed(asyncio.Event().wait(), "routing")

    apart(reads())
    assert (waits.opened, waits.taken, waits.stuck) == ([3.0], [1.0], 1)
    assert [load.at(range(100), share) for share in (0.5, 0.95, 1)] == [50, 95, 99]
    assert load.at([], 0.95) > load.FIRST, "a page that nobody got is no quick one"


@pytest.mark.browser
def test_input_that_does_not_arrive_does_not_hold(page):
    page.set_content("<h1>Silent</h1><div data-testid='stAlert'>The text is empty.</div>")
    say = "document.body.insertAdjacentHTML('beforeend', '<p data-testid=stAlert>{}</p>')"
    for expected in ({}, {"sentence": "The text is empty."}, {"choice": "0123"}):
        with pytest.raises(Broken, match="did not arrive"):
            in_tabs.arrived(page, "text", lambda: None, wait=0.5, **expected)
    with pytest.raises(Broken, match="did not arrive"):
        in_tabs.arrived(page, "text", lambda: page.evaluate(say.format("No.")), sentence="Another sentence.", wait=0.5)
    in_tabs.arrived(page, "text", lambda: page.evaluate(say.format("No *text*.")), sentence="No text.", wait=0.5)


@pytest.mark.browser
@pytest.mark.parametrize(
    "html",
    [
        "<h1>x</h1><script>window.pwned=1</script>",
        "<h1>x</h1><iframe srcdoc='<script>window.pwned=1</script>'></iframe>",
        "<h1>x</h1><div data-testid='stException'>x</div>",
        "<h1>x</h1><p>Traceback (most recent call last)</p>",
        f"<h1>x</h1><p>{inputs.FAILED} with KeyError</p>",
        "<p>all is gone</p>",
    ],
)
def test_what_hostile_input_must_not_do_is_seen(page, html):
    page.set_content("<h1>x</h1><p>a text of somebody</p>")
    in_tabs.sound_in_tab(page)
    page.set_content(html)
    with pytest.raises(Broken):
        in_tabs.sound_in_tab(page)


def all_hold(part, **counts):
    """A part of the verb itself, with the project's own studies."""
    outcomes = stress(Stress(parts=[part], **counts)).numbers["rows"]
    assert outcomes and not (bad := [f"{row['case']}: {row['said']}" for row in outcomes if not row["holds"]]), bad


@pytest.mark.slow
@pytest.mark.parametrize("name", REAL)  # of torch
def test_a_fault_with_real_studies(name, monkeypatch):
    monkeypatch.setattr(faults, "FAULTS", {name: faults.FAULTS[name]})
    all_hold("faults")


@pytest.mark.slow
@pytest.mark.alone
def test_load_in_small():
    all_hold("load", sessions=5, arrive=2, seconds=12, every=4, after=0)

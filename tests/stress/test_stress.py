"""The parts of `stress` in small: every fault with quick studies, those of a worker and of a model with real ones too,
a few hostile inputs. Those of the app stand in test_app.py."""

import io
import json
import random
import shutil
import subprocess

import pytest

from analysis.errors import AnalysisError, BadSetting
from analysis.runs import RunStore
from tests.made.clock import Clock
from tests.stress import deal, faults, outside, validators
from tests.stress.bundles import hostile_bundle
from tests.stress.parts import stress
from tests.stress.scene import Scene
from tests.stress.ways import WAYS

FAKES = "tests.made.fake_studies:STUDIES"


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
    if not shutil.which("unshare"):
        return False
    words = ["unshare", "--map-root-user", "--mount", "sh", "-c", "mount -t tmpfs -o size=1m tmpfs /mnt"]
    return subprocess.run(words, capture_output=True).returncode == 0


ALSO = {  # what is tried every time there; here with `--all`
    "worker killed in mid-job": "test_jobs.py",
    "app killed in mid-job": "test_jobs.py",
    "corrupt run folder": "test_run_damage.py",
    "worker out of memory": "test_memory.py",
}
HERE = [name for name in faults.FAULTS if "model" not in name]


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in ALSO)) for name in HERE])
def test_nothing_is_lost_and_the_reader_is_told(name, tmp_path):
    if name == "full disk" and not own_disk():
        pytest.skip("this machine lets nobody mount a small file system")
    (row,) = faults.broken(lambda _: scene(tmp_path), [name])
    assert row.held == 1, row.said


def test_no_hostile_input_gets_past_the_validators(tmp_path):
    before = outside.prepared(tmp_path)
    rows = validators.tried(20 * len(validators.JUDGES), tmp_path, seed=7)
    assert len(rows) == len(validators.JUDGES) and all(row.held == row.tried for row in rows), rows
    assert outside.untouched(tmp_path, before, "validators", 240).held == 240


@pytest.mark.parametrize("name", ["secret.txt", "home/pwned", "x", "models/inside/x"])
def test_a_file_outside_the_store_is_found(name, tmp_path):
    before = outside.prepared(tmp_path)
    for own in ("state/texts/x", "server.log", "home/.streamlit/config.toml"):
        (tmp_path / own).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / own).write_text("its own")
    assert outside.untouched(tmp_path, before, "this", 3).plain()["holds"]
    (tmp_path / name).write_text("pwned")
    row = outside.untouched(tmp_path, before, "this", 3)
    assert (row.tried, row.held) == (3, 0) and row.said.endswith(name)


def refuses(words):
    def judge(dice):
        raise BadSetting(words)

    return judge


def test_a_judge_holds_when_it_answers_or_refuses_in_a_sentence(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(deal, "now", clock)

    def waits(dice):
        clock.seconds += deal.SLOW

    good = {"answers": lambda dice: dice.random(), "refuses": refuses("This is no text: give another one.")}
    bad = {"reads": lambda dice: f"it is {deal.SECRET}", "mumbles": refuses("no"), "breaks": lambda dice: 1 / 0}
    rows = {row.case: row for row in deal.judged({**good, **bad, "waits": waits}, 14, 0)}
    assert [rows[f"validator: {name}"].tried for name in (*good, *bad, "waits")] == [3, 3, 2, 2, 2, 2]
    assert all(rows[f"validator: {name}"].plain()["holds"] for name in good)
    said = [rows[f"validator: {name}"].said for name in (*bad, "waits")]
    assert [row.held for row in rows.values()] == [3, 3, 0, 0, 0, 0]
    assert [words.split()[1] for words in said] == ["what", "the", "division", "it"], said


def test_hostile_bundles_are_sound_ones_full_of_markup_and_damaged_ones(tmp_path):
    store, dice, taken, refused = RunStore(tmp_path / "state"), random.Random(4), [], []
    for _ in range(25):
        try:
            taken += store.unbundle(io.BytesIO(hostile_bundle(dice))).new
        except AnalysisError as error:
            refused.append(str(error))
    words = json.dumps([store.open(run).numbers for run in taken])
    store.close()
    assert len(taken) > 2 and "<" in words and len(set(refused)) > 5
    assert all(said.endswith(".") for said in refused)


def test_the_table_says_what_held_and_nonsense_is_refused(tmp_path):
    made = stress(["validators"], validators=30, output=str(tmp_path / "table.json"))
    stored = json.loads((tmp_path / "table.json").read_text())
    assert stored["rows"] == made.numbers["rows"] and stored["sentence"] == f"All {len(stored['rows'])} cases hold."
    cases = [row["case"] for row in stored["rows"]]
    assert {"validator: URL parameters", "validator: run bundles"} <= set(cases) and "outside the root" in cases[-1]
    assert (tmp_path / "table.md").read_text().count("\n") == len(stored["rows"]) + 2
    fewer = stored | {
        "rows": [{"case": "tried once", "tried": 1, "held": 1, "holds": True, "said": ""}, *stored["rows"]]
    }
    (tmp_path / "table.json").write_text(json.dumps(fewer))
    again = stress(["validators"], validators=30, output=str(tmp_path / "table.json")).numbers
    assert [row["case"] for row in again["rows"]] == ["tried once", *cases] and again["sentence"].startswith(
        f"All {len(cases) + 1}"
    )
    assert again["rows"][0]["date"] == stored["protocol"]["date"] and again["earlier"] == [stored["protocol"]]
    for wrong in ({"parts": ["nothing"]}, {"sessions": 0}, {"every": 0}, {"after": -1}, {"chromium": 10**9}):
        with pytest.raises(BadSetting):
            stress(**wrong)


def all_hold(part, **counts):
    """A part of the verb itself, with the project's own studies."""
    rows = stress([part], **counts).numbers["rows"]
    assert rows and not (bad := [f"{row['case']}: {row['said']}" for row in rows if not row["holds"]]), bad


REAL = (
    "worker killed in mid-job",
    "worker out of memory",
    "truncated safetensors of a model",
)  # of torch, of a training


@pytest.mark.slow
@pytest.mark.parametrize("name", REAL)
def test_a_fault_with_real_studies(name, monkeypatch):
    monkeypatch.setattr(faults, "FAULTS", {name: faults.FAULTS[name]})
    all_hold("faults")


@pytest.mark.slow
@pytest.mark.alone
def test_load_in_small():
    all_hold("load", sessions=5, arrive=2, seconds=12, every=4, after=0)


@pytest.mark.slow
@pytest.mark.browser
def test_hostile_input_in_a_browser_in_small():
    all_hold("chromium", chromium=len(WAYS))

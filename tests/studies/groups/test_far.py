"""One reading of a text serves Start, Token groups and Long-range pairs: no page makes a pass that another one made."""

import pandas as pd
import pytest

from analysis.runs import RunStore
from analysis.statistics import HeadReading, inputs
from analysis.studies import STUDIES
from analysis.studies.context import Context
from analysis.studies.groups import far
from analysis.studies.groups.far import SHUFFLED
from analysis.studies.text import kept
from tests.made.asking import SHORT
from tests.made.tiny_tokenizer import save_model

FAR = {"start": {"min_distance": 20}, "pairs": {"min_distance": 20, "top": 30}, "groups": {}}
ONE = {"min_distance": 20, "layer": 1, "content": False}


@pytest.fixture
def passes(monkeypatch) -> list[int]:
    """The lengths of the windows that were read so far."""
    read, forward = [], inputs.forward

    def counted(model, ids):
        read.append(len(ids))
        forward(model, ids)

    for place in (inputs, far):
        monkeypatch.setattr(place, "forward", counted)
    together = HeadReading.read
    monkeypatch.setattr(
        HeadReading,
        "read",
        lambda reading, model, ids, **arguments: (read.append(len(ids)), together(reading, model, ids, **arguments)),
    )
    return read


@pytest.fixture
def answer_of(tmp_path):
    """`answer_of(verb, arguments, anew)` -> Result of the tiny model; anew: by a worker that has just started."""
    model = str(save_model(tmp_path / "tiny"))
    runs = None

    def ask(verb, arguments, store=None):
        nonlocal runs
        if store is not None:
            runs = RunStore(tmp_path / store, tmp_path / "none")
        context = Context(runs, state=tmp_path / "fitted", browser=False)
        return STUDIES[verb](model=model, text=context.add_text("a text", SHORT), **arguments, context=context)

    return ask


@pytest.mark.slow
def test_the_next_page_makes_no_pass_of_its_own(answer_of, passes):
    answer_of("groups", {})  # fits the router
    passes.clear()
    first = answer_of("start", FAR["start"], "one")
    windows = len(passes)
    assert windows > 1 and len(set(passes)) <= 2, "each window is read once"
    heads = answer_of("statistics", {})
    assert len(passes) == windows, "Start left the statistics of all heads"
    part = answer_of("pairs", FAR["pairs"] | {"shuffled": False}).tables["controls"]
    sorted_alone = answer_of("groups", {"shuffled": False}).tables
    assert len(passes) == windows, "nor do pairs and groups read it anew without the shuffled text"
    pairs = answer_of("pairs", FAR["pairs"])
    assert part.equals(pairs.tables["controls"].head(len(part))) and SHUFFLED not in set(part["arm"])
    assert len(passes) == 3 * windows, "the shuffled text, which Start has no use for"
    groups = answer_of("groups", {})
    columns = [name for name in groups.tables["groups"] if not name.endswith("_shuffled")]
    assert sorted_alone["groups"][columns].equals(groups.tables["groups"][columns])
    assert sorted_alone["groups"]["share_shuffled"].isna().all()
    assert answer_of("group-controls", {}).numbers["rows"] and len(passes) == 3 * windows
    narrow = answer_of("pairs", ONE)
    assert len(passes) == 4 * windows, "another list of pairs: its own pass, and no other"
    alone = answer_of("statistics", {}, "heads")
    for name, table in alone.tables.items():
        pd.testing.assert_frame_equal(table, heads.tables[name], rtol=1e-4, atol=1e-6)
    for verb, arguments, first_answer in (
        ("groups", {}, groups),
        ("pairs", FAR["pairs"], pairs),
        ("pairs", ONE, narrow),
    ):
        again = answer_of(verb, arguments, f"{verb} {len(arguments)}")
        assert again.numbers["sentence"] == first_answer.numbers["sentence"]
        for name, table in again.tables.items():  # alone, a page may run another exact kernel: float32 in another order
            pd.testing.assert_frame_equal(table, first_answer.tables[name], rtol=1e-5, atol=1e-6)
    assert len(first.tables["pairs"]) == 40 and pairs.tables["pairs"]["attention"].is_monotonic_decreasing
    assert (pairs.tables["pairs"]["attention"] == first.tables["pairs"]["attention"].head(30)).all()


@pytest.mark.slow
def test_window_by_window_each_is_read_once_and_the_numbers_are_those_of_one_pass(answer_of, passes):
    answer_of("groups", {})  # fits the router
    passes.clear()
    at_once, heads = answer_of("start", FAR["start"], "at once"), answer_of("statistics", {})
    windows = list(passes)
    passes.clear()
    parts = [answer_of("start", FAR["start"] | {"windows": n + 1}, None if n else "parts") for n in range(len(windows))]
    last = answer_of("start", FAR["start"])
    assert passes == windows and len(windows) > 2
    assert [len(part.tables["tokens"]) for part in parts] == [sum(windows[: n + 1]) for n in range(len(windows))]
    assert [part.numbers["protocol"]["fresh"] for part in parts] == windows, "what the time of each is of"
    for name, table in at_once.tables.items():
        pd.testing.assert_frame_equal(last.tables[name], table, check_exact=True)
    assert all((last.arrays[name] == array).all() for name, array in at_once.arrays.items())
    assert last.numbers["sentences"] == at_once.numbers["sentences"]
    for name, table in answer_of("statistics", {}).tables.items():
        pd.testing.assert_frame_equal(table, heads.tables[name], check_exact=True)
    assert passes == windows, "the statistics of all heads were added up on the way"
    pairs = answer_of("pairs", FAR["pairs"] | {"shuffled": False})
    assert pairs.tables["controls"].equals(
        answer_of("pairs", FAR["pairs"] | {"shuffled": False}, "at once").tables["controls"]
    )


def test_readings_are_bounded_and_the_one_used_last_stays(answer_of, passes, tmp_path, monkeypatch):
    folder = tmp_path / "one" / kept.FOLDER
    answer_of("groups", {}, "one")
    sizes = {path: path.stat().st_size for path in folder.glob("*")}
    assert len(sizes) == 2 and all(path.suffix == ".safetensors" for path in sizes)
    monkeypatch.setattr(kept, "KEPT_BYTES", max(sizes.values()) + 1)
    answer_of("groups", {"seed": 1})
    left = set(folder.glob("*"))
    assert len(left) == 1 and not left & set(sizes), "the newest, the shuffled text of seed 1"
    next(iter(left)).write_bytes(b"damaged")
    passes.clear()
    assert answer_of("groups", {"seed": 1}).tables and passes, "a damaged reading is made anew"

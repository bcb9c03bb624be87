"""The stored study `rehearsal`: what it holds at most, and a part of it computed again."""

import pytest

from analysis.files import read_json
from analysis.places import CACHE
from lab.rehearsal.rehearsal import SAMPLED, rehearsed

SHAPE, LENGTH = "qwen", 4096


@pytest.fixture(scope="module")
def rows():
    numbers = read_json(CACHE / "demo" / "studies" / "rehearsal.json")
    return [row for row in numbers["rows"] if not row["refused"]]


def test_a_prompt_waits_once_a_layer_and_a_token_never(rows):
    assert max(row["asked_in_prompt"] for row in rows) <= 1
    assert max(row["asked_in_step"] for row in rows) == 0


def test_the_memory_said_before_is_near_the_peak(rows):
    short = [row for row in rows if row["length"] == LENGTH]
    far_off = {
        (row["shape"], row["method"]) for row in short if not 0.75 < row["peak_bytes"] / row["said_bytes"] < 1.25
    }
    assert far_off <= {(shape, "kvzip_plus") for shape in ("qwen", "llama", "gpt_oss")}, "it reads the text twice"


@pytest.mark.slow
def test_rows_come_again(rows):
    stored = {row["method"]: row for row in rows if (row["shape"], row["length"]) == (SHAPE, LENGTH)}
    for row in rehearsed(SHAPE, LENGTH, SAMPLED)["rows"]:
        before = stored[row["method"]]
        assert row["peak_bytes"] == pytest.approx(before["peak_bytes"], rel=1e-3)
        assert {key: row[key] for key in ("kernel", "asked_in_prompt", "asked_in_step")}.items() <= before.items()

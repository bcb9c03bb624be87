"""`bench model`: every page's verb once on a tiny model, beside a plain pass, with what was predicted."""

import json

import pytest

from analysis.__main__ import main
from analysis.errors import BadSetting
from analysis.studies.context import Context
from analysis.studies.speed import bench_model as study
from tests.made.tiny_tokenizer import save_model

COLUMNS = "page verb tokens seconds target peak_bytes predicted_seconds predicted_bytes times met".split()


def test_every_page_is_run_priced_and_held_against_its_target(tmp_path, capsys, state):
    model = save_model(tmp_path / "tiny", max_position_embeddings=256)
    asked = ["bench", "model", "--model", str(model), "--lengths", "300,200", "--json"]
    assert main(asked) == 0
    out, err = capsys.readouterr()
    told = json.loads(out.splitlines()[-1])
    assert [row["page"] for row in told["rows"]] == [page for page, *_ in study.PAGES] * 2
    assert {row["tokens"] for row in told["rows"]} == {200, 300} == {one["tokens"] for one in told["plain"]}
    plain = {one["tokens"]: one["seconds"] for one in told["plain"]}
    for row in told["rows"]:
        assert list(row) == COLUMNS and row["seconds"] > 0 and row["predicted_seconds"] > 0
        assert row["times"] == pytest.approx(row["seconds"] / plain[row["tokens"]])
        assert row["met"] == (row["times"] <= row["target"])
        assert row["predicted_bytes"] > 0, "the model's card is known, so memory is predicted"
    assert told["protocol"]["what"] == "model" and "of 14 within their target" in told["sentence"]
    assert "Start, 200 tokens" in err
    assert not list(state.rglob("*.safetensors")), "it leaves nothing in the state of this installation"


def test_a_text_of_no_length_is_refused(tmp_path):
    model = str(save_model(tmp_path / "tiny"))
    with pytest.raises(BadSetting, match="shortest length is 2 tokens"):
        study.bench_model(model, "", [2, 100], Context(browser=False))

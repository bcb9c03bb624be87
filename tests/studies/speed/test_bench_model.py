"""`bench model`: every page's verb once on a tiny model, beside a plain pass, with what was predicted."""

import json
from pathlib import Path

import pytest

from analysis.__main__ import main
from analysis.costs import KNOWN
from analysis.errors import BadSetting
from analysis.runs import Result
from analysis.runs.stored import Column
from analysis.studies import NAMED
from analysis.studies.context import Context
from analysis.studies.speed import bench_model as study, longer
from lab.harness import documented
from tests.made.tiny_tokenizer import save_model

COLUMNS = "page verb tokens seconds times target met peak_bytes predicted_seconds predicted_bytes".split()
COLUMNS += ["memory_ratio", "refused"]


@pytest.mark.slow
def test_every_page_is_run_priced_and_held_against_its_target(tmp_path, capsys, state, monkeypatch):
    monkeypatch.setattr(longer, "LONGEST", 600)  # what it times at longer prompts: test_launch.py
    model = save_model(tmp_path / "tiny", max_position_embeddings=256)
    words = ["bench", "model", "--model", str(model), "--lengths", "300", "--json"]
    assert main(words) == 0
    out, err = capsys.readouterr()
    reported = json.loads(out.splitlines()[-1])
    pages = study.pages("", [""], 0, 0)
    assert [row["page"] for row in reported["rows"]] == [page for page, *_ in pages]
    assert {row["tokens"] for row in reported["rows"]} == {300} == {entry["tokens"] for entry in reported["plain"]}
    plain = {entry["tokens"]: entry["seconds"] for entry in reported["plain"]}
    for row in reported["rows"]:
        assert list(row) == COLUMNS and not row["refused"], row
        assert row["seconds"] > 0 and row["predicted_seconds"] > 0
        assert row["times"] == pytest.approx(row["seconds"] / plain[row["tokens"]])
        assert row["met"] == (None if row["target"] is None else row["times"] <= row["target"])
        assert row["predicted_bytes"] > 0, "the model's card is known, so memory is predicted"
    assert reported["protocol"]["what"] == "model" and "of 8 within their target" in reported["sentence"]
    assert "Start, 300 tokens" in err
    assert not list(state.rglob("*.safetensors")), "it leaves nothing in the state of this installation"


def test_a_stored_study_says_what_pages_cost_on_a_shape(tmp_path, monkeypatch):
    """On a made-up shape of two tiny layers; the bench itself is the one above."""
    tiny = {"hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4, "num_key_value_heads": 2}
    shapes = {"Owner/Tiny": dict(KNOWN["Qwen/Qwen2.5-0.5B"]) | tiny | {"vocab_size": 5000, "num_hidden_layers": 4}}
    monkeypatch.setattr("lab.speed.pages.KNOWN", shapes)
    row = {"page": "Start", "verb": "start", "tokens": 8, "seconds": 2.0, "times": 2.5, "target": 3.0, "met": True}
    row |= {"peak_bytes": 400, "predicted_bytes": 200, "memory_ratio": 0.5}
    observed = []

    def bench(model, text, lengths, context):
        observed.append((context.model(model).num_layers, lengths))
        numbers = {"rows": [row | {"refused": ""}], "plain": [{"tokens": 8, "seconds": 0.8}], "parameters": 7}
        reported = {"dtype": "float32", "device": "cpu", "processor": "a chip", "text": None, "window": 8}
        return Result(numbers | {"sentence": "1 of 1 within their target.", "protocol": reported})

    monkeypatch.setattr("lab.speed.pages.bench_model", bench)
    context = Context(browser=False, state=tmp_path)
    result = NAMED["pages"](shape="tiny", layers="2", length=8, context=context)
    assert observed == [(2, [8])] and Path(result.numbers["path"]).name == "pages-tiny-2-8.json"
    words = result.numbers["sentence"]
    assert words.startswith(
        "tiny with 2 of its layers: 1 of 1 within their target; the farthest from it is Start with 2.50"
    )
    assert words.endswith("1 of 1 took more memory than predicted, at most 2.0 times as much (Start).")
    columns = [Column(**about) for about in result.numbers["columns"]]
    assert documented.table(columns, result.numbers["rows"]).splitlines()[2].startswith("| Start | 8 |")
    for wrong in ({"shape": "nothing"}, {"shape": "tiny", "layers": "5"}, {"shape": "tiny", "length": 3}):
        with pytest.raises(BadSetting):
            NAMED["pages"](**wrong, context=context)


def test_a_text_of_no_length_is_refused(tmp_path):
    model = str(save_model(tmp_path / "tiny"))
    with pytest.raises(BadSetting, match="shortest length is 2 tokens"):
        study.bench_model(model, "", [2, 100], Context(browser=False))

"""Copies of a model that read on with and without recall documents: what is trained, asked, paired and said."""

import json
import shutil
from dataclasses import asdict

import pytest

from analysis.errors import BadSetting
from analysis.places import CACHE
from analysis.studies import NAMED
from analysis.studies.context import Context
from analysis.training.pretrain import build_model
from lab.far.asked import AFTER, Asked
from lab.far.recipe import FarRecipe
from lab.tuning.recall_documents import KEY, sentence
from tests.made.studied import asker, part_again, studied_home

TINY = FarRecipe(
    layers=2,
    width=32,
    heads=2,
    kv_heads=1,
    intermediate=48,
    context=256,
    tokens_per_step=8192,
    tokens=65_536,
    decay=8192,
    warm_up=2,
    marks=((None, 256, 8192, 0.25, 0.02, 1.0, 1.0),),
    heads_asked=(Asked(1, 0, AFTER),),
)
SIZES = {"length": 256, "windows": 6, "items": 2, "tokens": 32_768, "shares": [0.5]}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """With a model that was trained here, as its `pretrain.json` says."""
    home = studied_home(tmp_path_factory.mktemp("recall"))
    build_model(TINY, 4096).save_pretrained(home / "far")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(CACHE / "demo" / name, home / "far")
    (home / "far" / "pretrain.json").write_text(json.dumps({"recipe": asdict(TINY)}))
    return home


@pytest.fixture
def ask(home, tmp_path):
    given = {"model": str(home / "far"), "corpus": str(home / "corpus"), "seeds": 1}
    return asker(NAMED["recall-documents"], home, output=str(tmp_path / "r.json"), **given, **SIZES)


def test_copies_read_on_and_differ_in_their_recall_documents_alone(ask, home, tmp_path):
    numbers = ask().numbers
    stored = json.loads((tmp_path / "r.json").read_text(), parse_constant=pytest.fail)
    models = ["as it is", "without recall documents", "with 50% recall documents"]
    assert [row["model"] for row in stored["texts"]] == models
    assert [row["share"] for row in stored["texts"]] == [None, 0, 0.5]
    own, none, half = stored["texts"]
    assert none[KEY] == 0 != half[KEY] and none["perplexity"] != own["perplexity"]
    assert stored["recipe"]["last_share"] == 0 and stored["recipe"]["tokens"] == SIZES["tokens"]
    tasks = {row["task"] for row in stored["rows"]}
    assert "Needle" in tasks and len(stored["rows"]) == 3 * len(tasks)
    assert all(row["items"] == 2 and row["chance"] == 0.25 for row in stored["rows"])
    assert stored["panels"][0]["x_values"] == [0, 0.5]
    assert {column["name"] for column in stored["columns"]} <= set(stored["rows"][0])
    assert "not of the method" in numbers["sentence"], "one training of each"
    assert part_again(NAMED["recall-documents"], stored, home)
    again = NAMED["recall-documents"].recheck(stored, context=Context(state=home / "state", browser=False))
    assert again and all(now == pytest.approx(kept) for kept, now in again.values())


@pytest.mark.parametrize(
    "given, said",
    [
        ({"tokens": 100}, "tokens that each copy reads is 100"),
        ({"shares": [1.0]}, "share of recall documents is 1"),
        ({"items": 1}, "number of questions is 1"),
    ],
)
def test_what_cannot_be_read_is_refused(ask, given, said):
    with pytest.raises(BadSetting, match=said):
        ask(**given)


def test_a_model_that_was_not_trained_here_is_refused(ask, home):
    with pytest.raises(BadSetting, match="was not trained by `lab.far.run`"):
        ask(model=str(home / "tiny"), length=32)


def test_what_is_told_apart_is_said_and_the_rest_is_not():
    def row(model, apart, ends, **more):
        return {"model": model, KEY: apart, f"{KEY}_low": ends[0], f"{KEY}_high": ends[1], **more}

    none, half = "without recall documents", "with 50% recall documents"
    rows = [row(half, 0.2, (0.1, 0.3), task="Needle"), row(half, -0.02, (-0.1, 0.06), task="Labels")]
    rows += [row(none, 0.0, (0, 0), task="Needle")]
    texts = [row("as it is", 0.1, (0, 0.2), share=None), row(none, 0, (0, 0), share=0.0)]
    texts.append(row(half, 0.03, (0.02, 0.04), share=0.5))
    asked = {"read": 819_200, "seeds": 3}
    said = sentence(rows, texts, asked)
    assert said.startswith("Read on for 0.8 M tokens, beside reading on without recall documents: with 50% recall")
    assert "it finds more in Needle (+20.0 points, 95% interval +10.0 to +30.0); the loss" in said
    assert (
        "Labels" not in said
        and "finds less" not in said
        and "the loss of held-out texts is higher (+0.0300 nats per token" in said
    )
    assert f"{half} no task differs significantly; the loss" in sentence([rows[1], rows[2]], texts, asked)

"""Fine-tuning with groups against full attention and its controls, on a tiny model: arms, domains, stopping."""

import json
import math
from dataclasses import replace

import pytest
import torch

from analysis.attention import apply
from analysis.corpus import sample_texts
from analysis.errors import BadSetting, BadText, Cancelled
from analysis.models import load_model
from analysis.studies import NAMED
from analysis.studies.context import Context
from analysis.training import run
from analysis.training.focus import finetune
from analysis.training.mitigations import Control, method_of
from lab.focus.table5 import AGAINST, ARMS
from tests.made.studied import asker, part_again, studied_home
from tests.made.tiny import LAYERS, tiny, token_ids
from tests.studies.training.test_finetune import SECOND, start
from tests.training.test_training import IDS

SIZES = {
    "length": 32,
    "windows": 9,
    "window": 4,
    "n_sink": 1,
    "groups": 4,
    "steps": 3,
    "tokens_per_step": 64,
    "seeds": 1,
}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """With a folder of three domains beside the folder of texts."""
    home = studied_home(tmp_path_factory.mktemp("finetuning"))
    texts = [text for _, text in sample_texts().values()]
    for folder, ending in (("books", "txt"), ("python", "py")):
        for split, text in zip(("train", "valid"), texts, strict=False):
            (home / "three" / folder / split).mkdir(parents=True)
            (home / "three" / folder / split / f"a.{ending}").write_text(text[:3000])
    (home / "three" / "wikitext2").mkdir()
    for split in ("train", "valid"):
        written = "".join(f" = Title {split} {n} = \n\n the cat sat on the mat . \n" * 9 for n in range(9))
        (home / "three" / "wikitext2" / f"wiki.{split}.tokens").write_text(written)
    return home


@pytest.fixture
def ask(home, tmp_path):
    given = {"corpus": str(home / "corpus"), "output": str(tmp_path / "f.json"), "base_rate": 1e-3}
    return asker(NAMED["finetuning"], home, **given, **SIZES)


# --- the controls of phase 2 ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("reading", ["drawn", "alone"])
def test_a_control_trains_the_base_and_leaves_the_router(reading, tmp_path):
    model, given = load_model(tiny("llama")), start()
    plan = replace(SECOND, reading=reading, steps=6, check_windows=2)
    own, router, _, log = finetune(model, given, IDS, plan, tmp_path / "c")
    assert torch.equal(router.projection, given.projection) and torch.equal(router.centroids, given.centroids)
    assert log[-1]["loss"] < log[0]["loss"] and math.isfinite(log[-1]["hard"])
    weights = zip(own.lm.parameters(), model.lm.parameters(), strict=True)
    assert not any(torch.equal(ours, theirs) for ours, theirs in weights)


@pytest.mark.parametrize("reading", ["drawn", "alone"])
def test_a_stopped_control_ends_as_an_unbroken_one_bit_for_bit(reading, tmp_path, monkeypatch):
    monkeypatch.setattr(run, "KEEP_EVERY", 3)
    model, plan = load_model(tiny("llama")), replace(SECOND, reading=reading)

    def stop(fraction, stage):
        if fraction >= 5 / 8:
            raise Cancelled("enough")

    whole, _, _, log = finetune(model, start(), IDS, plan, tmp_path / "whole")
    with pytest.raises(Cancelled):
        finetune(model, start(), IDS, plan, tmp_path / "stopped", stop)
    own, _, _, rows = finetune(model, start(), IDS, plan, tmp_path / "stopped")
    assert rows == log
    assert all(torch.equal(a, b) for a, b in zip(own.lm.parameters(), whole.lm.parameters(), strict=True))


def test_what_the_controls_read():
    """A window as long as the text is full attention, with its gradient; groups are drawn anew for every turn."""
    model, router, ids = load_model(tiny("llama")), start(), token_ids(1, 24)

    def read(method):
        with apply(model, method, kernels=True):
            return model.lm(ids, use_cache=False).logits

    model.lm.requires_grad_(True)
    try:
        full = method_of(replace(SECOND, reading="alone"), router.variant(window=24))
        assert torch.allclose(read(full), model.lm(ids, use_cache=False).logits, atol=1e-4)
    finally:
        model.lm.requires_grad_(False)
    drawn = method_of(replace(SECOND, reading="drawn"), router)
    assert isinstance(drawn, Control) and drawn.plan.groups == 4
    hidden, groups = torch.zeros(2, 400, 32), {}
    for turn in ((), (1, 0), (1, 1), (2, 0)):
        drawn.begin(*turn)
        groups[turn] = [drawn.observe(layer, hidden, None) for layer in range(LAYERS)]
        assert all((g.sum(-1) == 1).all() and g.shape == (2, 400, 4) for g in groups[turn])
        assert all(torch.equal(a, drawn.observe(i, hidden, None)) for i, a in enumerate(groups[turn]))
    firsts = [one[0] for one in groups.values()] + [groups[1, 0][1]]
    assert not any(torch.equal(a, b) for i, a in enumerate(firsts) for b in firsts[:i])


def test_a_control_belongs_to_phase_2():
    for reading in ("drawn", "alone"):
        with pytest.raises(BadSetting, match="gives the router no gradient"):
            replace(SECOND, reading=reading, phase=1)


# --- the study ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_every_arm_in_every_domain(ask, home, tmp_path):
    result = ask(corpus=str(home / "three"), windows=3, steps=2)
    numbers, stored = result.numbers, json.loads((tmp_path / "f.json").read_text(), parse_constant=pytest.fail)
    assert {c["name"] for c in numbers["columns"]} <= set().union(*numbers["rows"])
    rows = {(row["domain"], row["arm"]): row for row in numbers["rows"]}
    assert list(rows) == [(domain, arm) for domain in ("novels", "python", "wikitext") for arm in ARMS]
    for (domain, arm), row in rows.items():
        assert row["learned"] == pytest.approx(row["loss"] - math.log(row["before"]), abs=1e-5) and row["learned"] < 0
        assert row["gap"] == pytest.approx(row["loss"] - row["train"], abs=1e-6)
        assert (row["pairs_share"] == 1.0) == (arm == "full attention")
        for key, other in AGAINST.items():
            if other != arm:
                assert row[key] == pytest.approx(row["loss"] - rows[domain, other]["loss"], abs=1e-6)
                assert row[f"{key}_low"] is None, "three windows are one unit"
    assert numbers["sentence"].count("Focus, hard: ") == 3 and len(numbers["panels"]) == 5
    assert str(tmp_path) not in (tmp_path / "f.json").read_text()
    assert part_again(NAMED["finetuning"], stored, home, corpus=str(home / "three"))
    again = NAMED["finetuning"].recheck(stored, context=Context(state=home / "state", browser=False))
    assert list(again) == ["router", *ARMS] and all(now == kept for kept, now in again.values())
    assert len({tuple(kept) for kept, _ in again.values()}) == 6, "every arm is trained in its own way"


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ({"corpus": "absent"}, BadText, "absent is no folder"),
        ({"rows": "novels"}, BadSetting, "There is no domain 'novels': the domains are corpus."),
        ({"steps": 0}, BadSetting, "got 0 steps"),
        ({"window": 32}, BadSetting, "always read is 32"),
        ({"groups": 33}, BadSetting, "33 groups are balanced over the tokens of a step, and it has 32"),
    ],
)
def test_what_cannot_be_studied_is_refused(given, error, said, ask):
    with pytest.raises(error, match=said):
        ask(**given)

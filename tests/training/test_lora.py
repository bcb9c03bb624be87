"""Training baselines: LoRA by hand and against the papers' counts, and the study on a tiny model."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, GPT2Config, MistralConfig

from analysis import places
from analysis.__main__ import main
from analysis.benchmarks import TASKS as BENCHMARKS
from analysis.corpus import sample_texts
from analysis.errors import BadSetting, Cancelled
from analysis.groups.router import FocusRouter
from analysis.metrics.quality import token_losses
from analysis.models import load_model
from analysis.papers import find
from analysis.probes.pieces import Item
from analysis.studies import NAMED, STUDIES
from analysis.studies.benchmarks.scores import Coded
from analysis.studies.training.finetune_rows import row_of, sentence
from analysis.studies.training.finetune_tasks import PRINTED, chances, within
from analysis.studies.training.finetune_ways import READ, READERS
from analysis.training import run
from analysis.training.focus import finetune, inject, lora_copy, trainable
from tests.made.benchmarks import every as benchmark_files
from tests.made.studied import asker, part_again, studied_home
from tests.made.tiny import LAYERS, tiny, token_ids
from tests.made.tuning import IDS, SECOND, equal_numbers, same, start, state, stop_at

UNIT = {"K": 1e3, "M": 1e6}
SIZES = {"length": 32, "windows": 9, "window": 4, "n_sink": 1, "groups": 4, "steps": 3, "tokens_per_step": 64}


def lora_parameters(config, rank: int) -> int:
    """How many parameters LoRA of this rank trains in a model of this configuration; no weights are made."""
    with torch.device("meta"):
        lm = AutoModelForCausalLM.from_config(config)
    inject(lm, rank, low_cpu_mem_usage=True)
    return trainable(lm)


@pytest.mark.slow
def test_parameter_counts_are_the_papers():
    gpt2, mistral = GPT2Config(), MistralConfig()
    counts = {
        ("table 3", "LoRA (r=4)"): lora_parameters(gpt2, 4),
        ("table 3", "LoRA (r=16)"): lora_parameters(gpt2, 16),
        ("table 3", "Centroids (d_s=16)"): FocusRouter(gpt2.n_layer, gpt2.n_embd, groups=4).size,
        ("table 4", "+ LoRA (r=4, lr=1e-5)"): lora_parameters(mistral, 4),
        ("table 4", "+ Centroids (K=2)"): FocusRouter(mistral.num_hidden_layers, mistral.hidden_size, groups=2).size,
    }
    for place, count in counts.items():
        (cell,) = find("focus", *place, "Params")
        # Half of the last digit that is printed.
        half = 0.5 if cell.value >= 100 else 0.05
        assert abs(count / UNIT[cell.unit] - cell.value) <= half, place
    assert counts["table 3", "LoRA (r=4)"] == 12 * 4 * (768 + 3 * 768), "by hand: one projection of 768 to 2,304"
    assert counts["table 4", "+ LoRA (r=4, lr=1e-5)"] == 32 * 4 * (4096 + 4096 + 4096 + 1024)


@pytest.mark.slow
@pytest.mark.parametrize("family, dora", [("llama", False), ("gpt2", False), ("gpt_neox", False), ("llama", True)])
def test_lora_begins_as_nothing_and_learns_alone(family, dora, tmp_path):
    model, ids = load_model(tiny(family)), token_ids(1, 24)
    before, adapted_copy = state(model), lora_copy(model, 2, dora=dora)
    with torch.no_grad():
        torch.testing.assert_close(adapted_copy.lm(ids).logits, model.lm(ids).logits, rtol=0, atol=1e-5 * dora)
    plan = replace(SECOND, reading="alone", steps=20, base_rate=1e-1, check_windows=0)
    # One sequence, to be learned by heart.
    adapted, *_ = finetune(model, start(), IDS[:33], plan, tmp_path / "c", rank=2, dora=dora)
    learned = torch.as_tensor(IDS[:32])[None]
    assert token_losses(adapted, learned).mean() < token_losses(model, learned).mean() - 0.05
    at_first = dict(adapted_copy.lm.named_parameters())
    moved = {name for name, p in adapted.lm.named_parameters() if not torch.equal(p, at_first[name])}
    assert moved == {name for name in at_first if "lora_" in name}, "every addition, and nothing else"
    lengths = {name: p.numel() for name, p in at_first.items() if "magnitude" in name}
    # Of DoRA a length for each output of queries and values, in every layer.
    assert sum(lengths.values()) == (dora and sum(p.numel() // 2 for name, p in at_first.items() if "lora_B" in name))
    assert trainable(adapted_copy.lm) == sum(at_first[name].numel() for name in moved) and same(before, model)
    with pytest.raises(BadSetting, match="none of the projections"):
        lora_copy(replace(model, lm=torch.nn.Linear(2, 2)), 2)


@pytest.mark.slow
def test_a_stopped_lora_ends_as_an_unbroken_one(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "KEEP_EVERY", 2)
    model, plan = load_model(tiny("llama")), replace(SECOND, reading="alone", steps=4)
    unbroken = finetune(model, start(), IDS, plan, tmp_path / "whole", rank=2)
    with pytest.raises(Cancelled):
        finetune(model, start(), IDS, plan, tmp_path / "stopped", stop_at(0.5), rank=2)
    again = finetune(model, start(), IDS, plan, tmp_path / "stopped", rank=2)
    assert again[3] == unbroken[3] and equal_numbers(again[0].lm, unbroken[0].lm)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """With a corpus of two domains."""
    home = studied_home(tmp_path_factory.mktemp("baselines"))
    texts = [text for _, text in sample_texts().values()]
    for folder, ending in (("books", "txt"), ("python", "py")):
        for split, text in zip(("train", "valid"), texts, strict=False):
            (home / "two" / folder / split).mkdir(parents=True)
            (home / "two" / folder / split / f"a.{ending}").write_text(text[:3000])
    return home


@pytest.mark.slow
def test_every_arm_is_paired_with_the_base(home, tmp_path, monkeypatch):
    monkeypatch.setattr("analysis.studies.training.finetune.ITEMS", 2)
    options = {"corpus": str(home / "two"), "output": str(tmp_path / "b.json"), "rates": [1e-3, 1e-2], "seeds": 1}
    ask = asker(NAMED["baselines"], home, **options, **SIZES)

    def stop(fraction, stage):
        if stage.startswith("full"):
            raise Cancelled("enough")

    with pytest.raises(Cancelled):
        ask(stop)
    stages = []
    ask(lambda fraction, stage: stages.append(stage))
    assert not any(stage.startswith(("LoRA", "Focus")) for stage in stages), "what is trained is kept"
    stored = json.loads((tmp_path / "b.json").read_text(), parse_constant=pytest.fail)
    lines = [
        *(f"{name} r={rank}" for name in ("LoRA", "DoRA") for rank in (4, 16)),
        *(f"Focus K={k}, {read}" for k in (4, 2) for read in READ.values()),
    ]
    assert "--rates 0.001,0.01" in stored["protocol"]["command"]
    rows = {(row["line"], row["rate"]): row for row in stored["rows"]}
    readers = [f"{title}, fine-tuned" for title in READERS.values()]
    trained = {(line, rate) for line in [*lines, "full fine-tuning", *readers] for rate in (1e-3, 1e-2)}
    assert set(rows) == trained | {(f"{title}, as pretrained", None) for title in READERS.values()} | {("base", None)}
    for title in READERS.values():
        before, after = rows[f"{title}, as pretrained", None], rows[f"{title}, fine-tuned", 1e-2]
        assert before["trained_parameters"] == 0 < after["trained_parameters"] and before["read"] == title
        assert before["new"] != 0 and after["new"] < before["new"], "read another way, and learned so"
    base = rows["base", None]
    assert base["new"] == base["old"] == base["trained_parameters"] == 0
    for row in stored["rows"]:
        assert row["new"] == pytest.approx(math.log(row["new_domain"] / base["new_domain"]), abs=1e-5)
        assert row["old"] == pytest.approx(math.log(row["old_domain"] / base["old_domain"]), abs=1e-5)
        assert row["new_domain"] == row["perplexities"]["python"]
        assert row["tasks"] is None or row["tasks"] == pytest.approx(row["task_score"] - base["task_score"])
    assert rows["LoRA r=4", 1e-3]["trained_parameters"] * 4 == rows["LoRA r=16", 1e-3]["trained_parameters"]
    assert rows["Focus K=2, hard groups", 1e-3]["trained_parameters"] == FocusRouter(LAYERS, 32, groups=2).size
    assert rows["full fine-tuning", 1e-2]["new"] < 0 and len(stored["panels"]) == 4
    assert {c["name"] for c in stored["columns"]} <= set(base)
    assert part_again(NAMED["baselines"], stored, home, corpus=str(home / "two"))
    assert list(stored["check"]) == ["Focus K=4, 0.01", "Focus K=2, 0.01"]


@pytest.mark.slow
def test_only_the_rate_that_is_chosen_is_trained_from_every_seed(home, tmp_path, monkeypatch):
    monkeypatch.setattr("analysis.studies.training.finetune.ITEMS", 2)
    options = {"corpus": str(home / "two"), "output": str(tmp_path / "b.json"), "method": "full,focus"}
    asker(NAMED["baselines"], home, **options, **SIZES)(rates=[1e-3, 1e-2], seeds=3)
    stored = json.loads((tmp_path / "b.json").read_text())
    rows = [row for row in stored["rows"] if row["rate"]]
    for line in {row["line"] for row in rows}:
        best = min((row for row in rows if row["line"] == line), key=lambda row: row["choosing"])
        assert best["seeds"] == 3
    assert min(row["seeds"] for row in rows) == 1
    assert "Trainings at a rate that no reading chose: 1, with intervals over documents alone." in stored["notes"]
    (edge,) = [note for note in stored["notes"] if note.startswith("At an end of the rates")]
    assert all(f"{line} (" in edge for line in {row["line"] for row in rows}), "of two rates both are an end"
    trainings = {(point["training"], point["seed"]) for point in stored["curves"]}
    full = {row["rate"]: row["seeds"] for row in rows if row["line"] == "full fine-tuning"}
    for rate, seeds in full.items():
        assert {seed for name, seed in trainings if name == f"full fine-tuning, {rate:g}"} == set(range(seeds))
    steps = [point["step"] for point in stored["curves"] if point["training"] == "full fine-tuning, 0.01"]
    assert max(steps) == SIZES["steps"]


@pytest.mark.slow
def test_copies_stay_as_models_that_can_be_asked(home, tmp_path, monkeypatch):
    monkeypatch.setattr("analysis.studies.training.finetune.ITEMS", 2)
    monkeypatch.setattr(places, "CACHE", tmp_path / "cache")
    options = {"corpus": str(home / "two"), "output": str(tmp_path / "b.json"), "rates": [1e-2], "seeds": 1}
    pytest.importorskip("lm_eval", reason="lm-evaluation-harness is an optional extra (requirements-benchmarks.txt)")
    monkeypatch.setattr("analysis.studies.training.finetune_tasks.FOLDER", tmp_path / "none")
    tune = asker(NAMED["baselines"], home, **options, **SIZES)
    with pytest.raises(BadSetting, match="a folder for each of hellaswag, arc_easy"):
        tune(method="lora", benchmarks=True)
    benchmark_files(tmp_path / "none")
    tune(method="lora,dora,full,longformer", keep=True, benchmarks=True)
    stored = {row["line"]: row for row in json.loads((tmp_path / "b.json").read_text())["rows"]}
    about = {}
    for folder in (tmp_path / "cache" / "finetuned").iterdir():
        about_copy = json.loads((folder / "about.json").read_text())
        about[about_copy["way"]] = about_copy["read_by"], load_model(f"finetuned/{folder.name}")
        assert (folder / "adapter_model.safetensors").exists() == ("RA r=" in about_copy["way"])
    assert set(about) == {
        "LoRA r=4",
        "LoRA r=16",
        "DoRA r=4",
        "DoRA r=16",
        "full fine-tuning",
        "Longformer, fine-tuned",
    }
    assert [reads for reads, _ in about.values()].count("longformer") == 1
    for way, (_, model) in about.items():
        assert stored[way]["new"] != 0 and model.num_layers == LAYERS
    plain = stored["base"]["benchmarks"]
    assert set(plain) == {"arc_easy", "piqa", "lambada", "hellaswag"} < set(PRINTED), "what fits 64 tokens"
    assert stored["base"]["hellaswag"] == 0
    for scored in stored.values():
        assert all(scored[task] == pytest.approx(share - plain[task]) for task, share in scored["benchmarks"].items())
    # The copy that stayed answers the command for benchmarks in the same way.
    copy_name = about["full fine-tuning"][1].name
    about_copy = {"model": copy_name, "tasks": list(plain), "methods": [], "data": str(tmp_path / "none")}
    rows = asker(STUDIES["benchmark"], home)(**about_copy).numbers["rows"]
    values = {row["task"]: row["value"] for row in rows if row["metric"] == BENCHMARKS[row["task"]].metric}
    assert values == stored["full fine-tuning"]["benchmarks"]


def row(base: dict, units: dict, *means: list[float], line: str = "LoRA r=4", rate: float = 1e-3, **tasks) -> dict:
    """A row of an arm whose trainings have these losses on Python."""
    parts = [{"means": base["means"] | {"python": list(of_seed)}, "tasks": tasks or base["tasks"]} for of_seed in means]
    return row_of({"line": line, "rate": rate}, parts, base, "python", units)


def test_the_windows_that_choose_a_rate_are_not_those_that_are_told():
    base = {"means": {"python": [2.0] * 4, "novels": [3.0, 3.0]}, "tasks": {}}
    units = {"python": np.array([0, 0, 1, 1]), "novels": np.arange(2)}
    rows = [
        row(base, units, losses, rate=rate)
        for rate, losses in ((1e-4, [1.0, 1.0, 1.9, 1.9]), (1e-3, [1.5, 1.5, 1.2, 1.2]))
    ]
    assert [tuned["choosing"] for tuned in rows] == [1.0, 1.5]
    assert [tuned["new"] for tuned in rows] == pytest.approx([-0.1, -0.8])
    assert rows[0]["new_domain"] == pytest.approx(math.exp(1.9)) and rows[0]["old"] == 0
    assert "not judged, in too few texts: LoRA r=4 (rate 0.0001) −0.1000." in sentence(rows, 1)


def test_questions_within_the_window_and_chance_are_counted():
    item = Item(np.arange(6), np.array([[1], [2]]), 0, None, 0)
    coded = {
        "truthfulqa": [Coded(((1,) * 7, (1,) * 9), (2, 4), 0, 1), Coded(((1,) * 3,) * 4, (1,) * 4, 0, 1)],
        "lambada": [Coded(((1,) * 8,), (1,), 0, 1)],
    }
    assert within(7, {"needle": [(item, item)]}, coded) == {"needle": 1.0, "truthfulqa": 0.5, "lambada": 0.0}
    assert within(6, {"needle": [(item, item)]}, {}) == {"needle": 0.0}, "the answer counts too"
    assert chances(coded) == {"truthfulqa": (1 / 2 + 1 / 4) / 2}


def test_arms_are_told_with_what_is_sure_and_trainings_that_disagree_decide_nothing():
    units = dict.fromkeys(("python", "novels"), np.arange(64) // 4)
    base = {"means": {"python": [2.0] * 64, "novels": [3.0] * 64}, "tasks": {"needle": [0.0] * 16}}
    lines = {"LoRA r=4": -0.1, "full fine-tuning": -0.2, "Focus K=2, soft gate": 0.1}
    words = sentence([row(base, units, [2.0 + apart] * 64, line=line) for line, apart in lines.items()], 1)
    order = "lower: full fine-tuning (rate 0.001) −0.2000, LoRA r=4 (rate 0.001) −0.1000; higher: Focus K=2, soft"
    assert order in words
    assert "On the old one, in nats against the base, the same: LoRA r=4 (rate 0.001) 0.0000" in words
    assert "Tasks right: no change is significant; the smallest effect this sample could detect is " in words
    right = row(base, units, [2.0] * 64, needle=[1.0] * 16)
    assert "Tasks right: LoRA r=4 (+100.0 points)." in sentence([right], 1)
    # Benchmarks are a family of their own, and what the base gets right stands beside chance.
    asked = base | {"benchmarks": {"hellaswag": [0.0] * 16, "lambada": [1.0] * 16}}
    rows = [row_of({"line": "base", "rate": None}, [asked], asked, "python", units)]
    for line, scores in {"LoRA r=4": [1.0] * 16, "full fine-tuning": [0.0] * 15 + [1.0]}.items():
        part = asked | {"benchmarks": {"hellaswag": scores, "lambada": [1.0] * 16}}
        rows.append(row_of({"line": line, "rate": 1e-3}, [part], asked, "python", units))
    words = sentence(rows, 3, chance={"hellaswag": 0.25})
    assert "the base gets right HellaSwag 0% (chance 25%), LAMBADA 100%. Of 4 changes" in words
    assert "significant: LoRA r=4 on HellaSwag (+100.0 points); the smallest effect" in words
    assert "Of 2 changes, each judged after Holm's correction for all of them, significant: none" in sentence(
        [rows[0], rows[2]], 3
    )
    # Each text is 0.1 nats lower with two trainings and 0.2 higher with the third: over texts alone that is sure.
    base, units = {"means": {"python": [2.0] * 16}, "tasks": {"needle": [0.0] * 16}}, {"python": np.arange(16)}
    apart = {"agree": (-0.1, -0.11, -0.12), "differ": (-0.3, -0.3, 0.2)}
    rows = {name: row(base, units, *([2.0 + by] * 16 for by in seeds)) for name, seeds in apart.items()}
    assert rows["agree"]["new_high"] < 0 < rows["differ"]["new_high"] and rows["differ"]["new"] < 0
    assert (rows["differ"]["new_lowest"], rows["differ"]["new_highest"]) == pytest.approx((-0.3, 0.2))
    assert "not of the method" not in sentence([rows["agree"]], 3)


def test_the_verb_and_bad_input(home, capsys):
    place = ["--corpus", str(home / "two"), "--model", str(home / "tiny"), "--state", str(home / "state")]
    for words, about in (
        (["--method", "magic"], "no method"),
        (["--rates", "2"], "learning rates"),
        (["--groups", "1"], "number of groups"),
    ):
        assert main(["finetune", *place, *words, "--length", "32", "--windows-count", "4"]) == 2
        assert about in capsys.readouterr().err
    assert STUDIES["finetune"] is NAMED["baselines"]

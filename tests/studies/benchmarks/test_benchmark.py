"""The verb `benchmark` on hand-made files: scores worked out by hand, answers as tokens, formats, what does not fit,
both set-ups."""

import json
import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from analysis.__main__ import main
from analysis.benchmarks import SET_UPS, TASKS, documents, here
from analysis.errors import BadSetting, BadText, TooLarge
from analysis.methods import METHODS
from analysis.models import load_model
from analysis.seam.attention import apply
from analysis.studies.benchmarks import tasks as benchmark_tasks
from analysis.studies.benchmarks.scores import code
from analysis.studies.benchmarks.tasks import Item
from tests.made.benchmarks import PIQA, every, lines, piqa
from tests.made.models import save_models

pytest.importorskip("lm_eval", reason="lm-evaluation-harness is an optional extra (requirements-benchmarks.txt)")
NEAR = {"name": "streaming_llm", "settings": {"window": 8}}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A random model that reads 256 tokens, `wide`, which reads more, and `even`, which finds every token alike."""
    return save_models(tmp_path_factory.mktemp("models"), random=256, even=256, wide=2048)


@pytest.fixture
def run(context, home):
    from analysis.studies import STUDIES

    def ask(data, *tasks, model="even", **arguments):
        where = {"model": str(home / model), "data": str(data)}
        return STUDIES["benchmark"](tasks=list(tasks), **where, context=context, **arguments)

    return ask


def by_metric(result, name="dense") -> dict:
    return {row["metric"]: row for row in result.numbers["rows"] if row["name"] == name}


def test_two_questions_give_scores_worked_out_by_hand(run, context, home, tmp_path):
    """All tokens alike: an answer of n tokens has log-probability -n log V. " 7" has 2 and " 777777" has 7, so plain
    probability takes the short answer and per character (1 and 6) the long one. Right: the short, then the long."""
    result = run(piqa(tmp_path), "piqa")
    lm = load_model(str(home / "even"))
    size = lm.lm.config.vocab_size
    assert [
        len(lm.tokenizer(f"Answer:{text}").input_ids) - len(lm.tokenizer("Answer:").input_ids)
        for text in (" 7", " 777777")
    ] == [2, 7]
    rows = by_metric(result)
    assert (rows["acc"]["value"], rows["acc_norm"]["value"]) == (0.5, 0.5)
    table = result.tables["items"]
    assert table["acc"].tolist() == [1.0, 0.0] and table["acc_norm"].tolist() == [0.0, 1.0]
    assert table["gold"].tolist() == pytest.approx([-2 * math.log(size), -7 * math.log(size)])
    assert rows["acc"]["stderr"] == pytest.approx(0.5) and rows["acc"]["gold"] == pytest.approx(-4.5 * math.log(size))
    z = 1.959963984540054  # Wilson, one right of two
    half = z * math.sqrt(0.25 / 2 + z * z / 16) / (1 + z * z / 2)
    assert rows["acc"]["value_low"] == pytest.approx(0.5 - half) and rows["acc"]["items"] == 2
    assert rows["acc"]["difference"] is None and rows["acc"]["longer_than_window"] is None


def test_a_method_is_held_against_dense_item_by_item(run, tmp_path):
    result = run(piqa(tmp_path), "piqa", model="random", methods=[NEAR, {"name": "streaming_llm"}])
    near, far = (row for row in result.numbers["rows"] if row["name"] != "dense" and row["metric"] == "acc")
    assert near["longer_than_window"] == 1.0 and near["window"] == 12 and near["gold_difference"] != 0
    assert far["longer_than_window"] == 0.0 and far["difference"] == 0.0
    assert far["gold_difference"] == pytest.approx(0.0, abs=1e-5), "shorter than the window is dense attention"
    table = result.tables["items"]
    dense, method_golds = (table[table["method"] == name]["gold"].to_numpy() for name in ("Dense", near["method"]))
    assert near["gold_difference"] == pytest.approx(float((method_golds - dense).mean()))
    assert any(
        "100% of the items are longer than the 12 tokens" in sentence for sentence in result.numbers["sentences"]
    )
    json.dumps(result.numbers, allow_nan=False)


def test_answers_are_those_of_the_stock_model(run, home, tmp_path):
    gold = run(piqa(tmp_path), "piqa", model="random").tables["items"]["gold"]
    lm = load_model(str(home / "random"))
    ids = torch.tensor([lm.tokenizer("Question: Count.\nAnswer: 7").input_ids])
    logs = torch.log_softmax(lm.lm(ids).logits[0, :-1].float(), -1)
    assert gold[0] == pytest.approx(float(logs[torch.arange(len(logs))[-2:], ids[0, -2:]].sum().detach()), abs=1e-4)


def test_the_question_reads_all_in_set_up_b(run, tmp_path):
    lines(tmp_path / "lambada" / "test.jsonl", [{"text": f"{'the sea was calm and wide ' * 3}x{n}"} for n in (1, 2)])
    runs = {how: run(tmp_path, "lambada", model="random", methods=[NEAR], question=how) for how in ("sparse", "dense")}
    golds = {
        how: [result.tables["items"].query("method == @name")["gold"].to_numpy() for name in ("Dense", NAMED)]
        for how, result in runs.items()
    }
    assert np.abs(golds["sparse"][0] - golds["sparse"][1]).max() > 1e-3
    assert np.allclose(golds["sparse"][0], golds["dense"][0], atol=1e-5)
    assert not np.allclose(golds["dense"][1], golds["sparse"][1], atol=1e-3)
    assert runs["dense"].numbers["protocol"]["set_up"] == "B"
    assert runs["dense"].numbers["notes"][0] == f"Set-up B: {SET_UPS['dense'].means}"


NAMED = "StreamingLLM, window 8"


@pytest.mark.parametrize(
    "inner", [METHODS["streaming_llm"](window=8), METHODS["focal"](t=0.3), METHODS["oracle_topk"](k=2)]
)
def test_a_dense_question_is_the_stock_model_up_to_its_end(home, inner):
    from analysis.studies.benchmarks.scores import DenseQuestion

    lm = load_model(str(home / "random"))
    ids = torch.arange(3, 63)[None]
    with torch.no_grad():
        stock = lm.lm(ids).logits[0]
        with apply(lm, DenseQuestion(inner, 0, 50)):
            mixed = lm.lm(ids).logits[0]
        with apply(lm, inner):
            sparse = lm.lm(ids).logits[0]
    assert torch.allclose(mixed[:50], stock[:50], atol=1e-4)
    assert not torch.allclose(mixed[50:], stock[50:], atol=1e-3) and not torch.allclose(mixed, sparse, atol=1e-3)


@pytest.mark.slow
def test_every_task_runs_on_files_in_its_published_format(run, tmp_path):
    result = run(every(tmp_path), *TASKS, model="wide", methods=[{"name": "streaming_llm"}], shots=1)
    assert here(tmp_path) == list(TASKS)
    rows = [row for row in result.numbers["rows"] if row["metric"] == TASKS[row["task"]].metric]
    assert {row["task"] for row in rows} == set(TASKS) and all(row["shots"] == 1 for row in rows)
    assert {(row["of"], row["items"]) for row in rows} == {(2, 2)}
    assert all(row["gold"] < 0 and 0 <= row["value"] <= 1 for row in rows)


def test_examples_are_of_other_items_or_of_another_split_where_there_is_one(tmp_path):
    sampled = benchmark_tasks.asked("piqa", piqa(tmp_path), 1, 1, 0)
    (item,) = sampled.items
    assert item.prompts[0] == "Question: Count on.\nAnswer: 777777\n\nQuestion: Count.\nAnswer:"
    assert item.prompts[0][-item.question :] == "Question: Count.\nAnswer:" and item.answers == (" 7", " 777777")
    questions, examples, files = documents(TASKS["gsm8k"], "gsm8k", every(tmp_path))
    assert (len(questions), len(examples), files) == (2, 3, ["test.jsonl", "train.jsonl"])
    questions, examples, files = documents(TASKS["truthfulqa"], "truthfulqa", tmp_path)
    assert questions is examples
    assert questions[0]["mc1_targets"] == {"choices": ["No", "Yes", "Always"], "labels": [1, 0, 0]}


def test_what_does_not_fit_is_counted_and_a_task_that_cannot_is_refused(run, tmp_path):
    long = PIQA[0] | {"goal": "7" * 400}
    result = run(piqa(tmp_path / "some", records=[PIQA[0], long]), "piqa")
    row = by_metric(result)["acc"]
    assert (row["items"], row["of"], row["does_not_fit"]) == (1, 2, 1) and row["stderr"] is None
    assert "1 of 2 prompts with 0 examples are longer than the 256 tokens" in result.numbers["notes"][0]
    with pytest.raises(TooLarge, match=r"its 2 prompts have \d+ to \d+ tokens and 256 are read at once"):
        run(piqa(tmp_path / "none", records=[long, long]), "piqa")


def test_refusals_are_one_sentence(run, tmp_path, monkeypatch):
    with pytest.raises(BadSetting, match="HellaSwag needs its files in a folder called hellaswag"):
        run(tmp_path, "hellaswag")
    lines(tmp_path / "hellaswag" / "val.jsonl", [{"other": 1}])
    with pytest.raises(BadSetting, match="No file in .* has the fields of HellaSwag"):
        run(tmp_path, "hellaswag")
    (tmp_path / "hellaswag" / "val.jsonl").write_text("{")
    with pytest.raises(BadSetting, match="val.jsonl is damaged"):
        run(tmp_path, "hellaswag")
    with pytest.raises(BadSetting, match="PIQA has 2 documents to draw examples from and 2 were asked for"):
        run(piqa(tmp_path), "piqa", shots=2)
    with pytest.raises(BadSetting, match="must be one of sparse, dense"):
        run(tmp_path, "piqa", question="half")
    with pytest.raises(BadSetting, match="items of benchmark is 0"):
        run(tmp_path, "piqa", items=0)

    def nothing():
        raise BadSetting(benchmark_tasks.NEEDED)

    monkeypatch.setattr(benchmark_tasks, "_harness", nothing)
    with pytest.raises(BadSetting, match="pip install -r requirements-benchmarks.txt"):
        run(tmp_path, "piqa")


def test_one_command_runs_it_offline(home, tmp_path, capsys):
    words = ["benchmark", "piqa", "--data", str(piqa(tmp_path)), "--model", str(home / "even"), "--shots", "1"]
    assert main([*words, "--methods", "streaming_llm", "--set", "streaming_llm.window=8", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out.splitlines()[-1])
    keys = {"task", "method", "metric", "value", "stderr", "items", "longer_than_window"}
    assert keys <= set(printed["rows"][0]) and printed["protocol"]["harness"]
    command = printed["protocol"]["command"]
    assert "--set streaming_llm.window=8" in command and "--shots 1" in command and "--data DIR" in command
    assert main(["benchmark", "piqa", "--data", str(tmp_path / "none"), "--model", str(home / "even")]) == 2


@pytest.mark.slow
def test_all_nine_tasks_run_on_the_bundled_model_from_one_command(tmp_path, capsys, monkeypatch):
    def refuse(*_, **__):
        raise OSError("no network")

    monkeypatch.setattr("socket.socket.connect", refuse)
    words = ["benchmark", *TASKS, "--data", str(every(tmp_path)), "--shots", "1", "--items", "1", "--json"]
    assert main([*words, "--methods", "focus"]) == 0
    rows = json.loads(capsys.readouterr().out.splitlines()[-1])["rows"]
    wanted = {(task, name) for task in TASKS for name in ("dense", "focus")}
    assert {(row["task"], row["name"]) for row in rows} == wanted
    assert all(row["items"] == 1 and row["gold"] < 0 for row in rows)


def test_an_answer_without_tokens_is_refused_in_a_sentence():
    """A tokenizer may merge an answer into the prompt's last token: nothing is left whose probability could be read."""

    def merging(text, verbose=False):
        return SimpleNamespace(input_ids=list(range(len(text.split()))))

    item = Item({}, ("What is it? A",), 0, ("n", " dog"), 0)
    with pytest.raises(BadText, match="The answer 'n' adds no token to its prompt"):
        code(merging, item)
    assert code(merging, replace(item, answers=(" dog", " big cat"))).answers == (1, 2)

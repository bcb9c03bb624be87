"""The study `worth` and its command line: rows, sentences, where a config may come from, and what is refused."""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from analysis.__main__ import main
from analysis.costs import KNOWN
from analysis.errors import BadSetting
from analysis.runs import RunStore
from analysis.studies.worth.worth import worth
from tests.cli.test_cli import strict
from tests.models.test_costs import LLAMA, PYTHIA

ROOT = Path(__file__).resolve().parents[3]
KEYS = "context batch prefill_share decode_share kv_bytes gain_bound".split()


def test_the_study_says_yes_no_and_where_the_limits_lie(tmp_path):
    made = worth("meta-llama/Llama-3.1-8B", contexts=[1024, 131072, 1 << 20], batches=[1, 64]).numbers
    assert len(made["rows"]) == 6 and all(set(KEYS) <= set(row) for row in made["rows"])
    assert made["sentence"].startswith("It can be: with 131,072 tokens and 1 sequence"), "the longest it was made for"
    assert "1.5 times begins at about 31,000 tokens" in made["further"]
    small = worth("meta-llama/Llama-3.1-8B", contexts=[1024]).numbers
    assert small["sentence"].startswith("No: with 1,024 tokens") and "would need about" in small["further"]
    assert (
        "no context gets to 1.5 times: its layers read windows" in worth("mistralai/Mistral-7B-v0.1").numbers["further"]
    )
    table = worth("openai-community/gpt2", contexts=[4096]).tables["said"]
    assert "The model was made for 1,024 tokens." in table["further"][0]


def test_the_study_reads_the_bundled_model_a_text_and_a_stored_text(tmp_path):
    demo = worth().numbers
    assert demo["shape"]["layers"] == 6 and demo["protocol"]["model"] == "demo" and demo["protocol"]["window"] == 2048
    assert worth(config=json.dumps(LLAMA)).numbers["shape"]["vocabulary"] == 10
    store = RunStore(tmp_path)
    key = store.put_text(json.dumps(LLAMA), "config.json: mine")
    made = worth(config=key, context=SimpleNamespace(text=store.text, browser=True))
    assert made.numbers["name"] == "config.json: mine" and made.numbers["shape"]["width"] == 8
    run = store.put("worth", {"config": key}, made, made.numbers["protocol"], 0.1)
    assert store.find("worth", {"config": key}).columns("rows")["batch"] == run.columns("rows")["batch"]
    assert store.key("worth", {"config": key}) == run.id
    store.close()


@pytest.mark.parametrize(
    "given", [{"contexts": []}, {"batches": []}, {"contexts": list(range(1, 400))}, {"keep": float("nan")}]
)
def test_the_study_refuses_what_makes_no_rows(given):
    with pytest.raises(BadSetting):
        worth(**given)


def call(capsys, *arguments):
    try:
        status = main(["worth", *map(str, arguments)])
    except SystemExit as stop:
        status = stop.code
    return status, *capsys.readouterr()


def test_the_command_line_reproduces_csas_table(capsys, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(KNOWN[PYTHIA]))
    common = ["--contexts", "1024,2048", "--batches", "1", "--keep", "0.1", "--json"]
    for place in (tmp_path / "config.json", tmp_path, PYTHIA):
        status, out, err = call(capsys, place, *common, "--no-projections")
        told = strict(out)
        assert status == 0 and err == "" and [set(KEYS) <= set(row) for row in told["rows"]] == [True, True]
        assert [round(row["decode_share"], 2) for row in told["rows"]] == [0.2, 0.33]
        assert [round(row["decode_gain"], 2) for row in told["rows"]] == [1.22, 1.43]
    ours = strict(call(capsys, PYTHIA, *common)[1])
    assert [round(row["share"], 2) for row in ours["accounting"]] == [0.33, 0.25, 0.22], "shown beside"
    assert call(capsys)[1].startswith("\nrows\n") and call(capsys, "--model", PYTHIA)[0] == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["no-such/model"], "no-such/model is not on this machine"),
        (["a b"], "no folder here and no Hugging Face id"),
        (["{tmp}"], "has no config.json"),
        (["{tmp}/bad.json"], "bad.json is not valid JSON (line 1, column 2)"),
        (["--keep", "2"], "2.0 and must lie above 0"),
        (["--contexts", "4096,many"], "no list of whole numbers"),
        (["--contexts", "-1"], "must lie between 1"),
        (["--set", "focus.top=2"], "sets nothing"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_bad_input_is_one_sentence_and_status_2(capsys, tmp_path, arguments, said):
    (tmp_path / "bad.json").write_text("{]")
    status, out, err = call(capsys, *(word.replace("{tmp}", str(tmp_path)) for word in arguments))
    assert status == 2 and out == "" and said in err and err.count("\n") == 1


def test_it_takes_a_second_and_no_torch():
    script = "import sys; from analysis.__main__ import main; main(['worth']); "
    script += "print(*(name for name in ('torch', 'transformers') if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.endswith("\n\n"), done.stdout[-200:]

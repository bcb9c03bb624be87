"""The study `worth` and its command line: rows, sentences, where a config may come from, and what is refused."""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from analysis.__main__ import main
from analysis.commands.speed import Worth
from analysis.costs import KNOWN
from analysis.errors import BadSetting
from analysis.runs import RunStore
from analysis.studies.worth.worth import short, worth
from app.papers import paper_words
from tests.cli.test_cli import strict
from tests.models.test_costs import LLAMA, PYTHIA

ROOT = Path(__file__).resolve().parents[3]
KEYS = {"context", "batch", "prefill_share", "decode_share", "kv_bytes", "gain_bound"}
LLAMA_8B = "meta-llama/Llama-3.1-8B"


def test_the_study_says_yes_no_and_where_the_limits_lie():
    built = worth(Worth(model=LLAMA_8B, contexts=[1024, 131072, 1 << 20], batches=[1, 64])).numbers
    assert len(built["rows"]) == 6 and all(set(row) >= KEYS for row in built["rows"])
    assert built["sentence"] == "Yes. At 128k, reading 10%: prefill up to 2.8x, each token up to 1.9x."
    assert "1.5 times begins at about 31,000 tokens" in built["further"] and "Attention is 71%" in built["further"]
    small = worth(Worth(model=LLAMA_8B, contexts=[1024])).numbers
    assert small["sentence"].startswith("Only from 31k tokens. At 1k: ") and "would need about" in small["further"]
    windows = worth(Worth(model="mistralai/Mistral-7B-v0.1")).numbers
    assert "no context gets to 1.5 times: its layers read windows" in windows["further"]
    table = worth(Worth(model="openai-community/gpt2", contexts=[4096])).tables["said"]
    assert "The model was made for 1,024 tokens." in table["further"][0]
    short_lived = worth(Worth(model="openai-community/gpt2", contexts=[1024])).numbers["sentence"]
    assert windows["sentence"].startswith("No. ") and short_lived.startswith("No. "), "its gain begins beyond its reach"
    assert all(len(sentence.split()) <= 15 for sentence in (built["sentence"], small["sentence"], short_lived))


def test_the_size_of_a_router_is_the_papers():
    """Focus, section 3.2: 0.015% of a model of 70 billion parameters."""
    router = worth(Worth(model="meta-llama/Llama-2-70b-hf", contexts=[4096], batches=[1])).numbers["router"]
    assert router["parameters"] == 80 * (8192 * 16 + 4 * 16) and paper_words.value(router["share"], "share") == "0.015%"


@pytest.mark.parametrize(
    ("tokens", "spoken"),
    [(131072, "128k"), (31000, "31k"), (1 << 20, "1M"), (1_200_000, "1.2M"), (999, "999"), (1536, "1.54k")],
)
def test_tokens_are_said_as_a_person_says_them(tokens, spoken):
    assert short(tokens) == spoken


def test_the_study_reads_the_bundled_model_a_text_and_a_stored_text(tmp_path):
    demo = worth(Worth()).numbers
    assert demo["shape"]["layers"] == 6 and demo["protocol"]["model"] == "demo" and demo["protocol"]["window"] == 2048
    assert worth(Worth(config=json.dumps(LLAMA))).numbers["shape"]["vocabulary"] == 10
    store = RunStore(tmp_path)
    key = store.put_text(json.dumps(LLAMA), "config.json: mine")
    built = worth(Worth(config=key), context=SimpleNamespace(text=store.text, browser=True))
    assert built.numbers["name"] == "config.json: mine" and built.numbers["shape"]["width"] == 8


@pytest.mark.parametrize(
    "arguments", [{"contexts": []}, {"batches": []}, {"contexts": list(range(1, 400))}, {"keep": float("nan")}], ids=str
)
def test_the_study_refuses_what_makes_no_rows(arguments):
    with pytest.raises(BadSetting):
        worth(Worth(**arguments))


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
        rows = strict(out)["rows"]
        assert status == 0 and err == "" and all(set(row) >= KEYS for row in rows)
        assert [round(row["decode_share"], 2) for row in rows] == [0.2, 0.33]
        assert [round(row["decode_gain"], 2) for row in rows] == [1.22, 1.43]
    ours = strict(call(capsys, PYTHIA, *common)[1])
    assert [round(row["share"], 2) for row in ours["accounting"]] == [0.33, 0.25, 0.22], "shown beside"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["no-such/model"], "no-such/model is not on this machine"),
        (["{tmp}"], "has no config.json"),
        (["{tmp}/bad.json"], "bad.json is not valid JSON (line 1, column 2)"),
        (["--keep", "2"], "2.0 and must lie above 0"),
        (["--contexts", "-1"], "must lie between 1"),
    ],
    ids=str,
)
def test_bad_input_is_one_sentence_and_status_2(capsys, tmp_path, arguments, message):
    (tmp_path / "bad.json").write_text("{]")
    status, out, err = call(capsys, *(word.replace("{tmp}", str(tmp_path)) for word in arguments))
    assert status == 2 and out == "" and message in err and err.count("\n") == 1


def test_it_takes_a_second_and_no_torch():
    script = "import sys; from analysis.__main__ import main; main(['worth']); "
    script += "print(*(name for name in ('torch', 'transformers') if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.endswith("\n\n"), done.stdout[-200:]

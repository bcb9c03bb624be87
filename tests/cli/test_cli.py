"""The command line: strict JSON with the promised keys, progress apart from it, and one sentence for bad input."""

import io
import json
import os
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from analysis.__main__ import main
from analysis.cli.options import parser
from analysis.cli.shown import schema_of
from analysis.commands import COMMANDS
from analysis.corpus import sample_texts
from analysis.package import version
from tests.made.asking import SHORT
from tests.made.tiny_tokenizer import save_model

ROOT = Path(__file__).resolve().parents[2]
PROTOCOL = "model revision text window seed dtype device kernel versions".split()
GROUP = "group share label purity top_tokens".split()
PAIR = "layer group query key query_position key_position distance affinity attention".split()
TRAINED = "dominance perplexity_dense perplexity_literal perplexity_causal path".split()


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    """A folder with a tiny model, a state folder, a text and a corpus."""
    home = tmp_path_factory.mktemp("home")
    save_model(home / "tiny")
    (home / "text.txt").write_text(SHORT)
    (home / "corpus").mkdir()
    for name, (_, text) in sample_texts().items():
        (home / "corpus" / f"{name}.txt").write_text(text[:2000])
    return home


@pytest.fixture
def call(home, capsys):
    """`call(verb, *arguments)` in this process on the tiny model: (exit status, standard output, standard error)."""

    def run(*arguments, tiny=True):
        place = ["--model", str(home / "tiny"), "--state", str(home / "state")] if tiny else []
        try:
            status = main([*map(str, arguments), *place])
        except SystemExit as stop:
            status = stop.code
        return status, *capsys.readouterr()

    return run


def strict(text: str) -> dict:
    """The last line as JSON that every parser takes, no NaN, no Infinity, and as the verb's schema has it."""

    def refuse(constant):
        raise ValueError(f"{constant} is no JSON")

    reply = json.loads(text.splitlines()[-1], parse_constant=refuse)
    assert set(PROTOCOL) <= set(reply["protocol"])
    Draft202012Validator(schema_of(reply["protocol"]["verb"])).validate(reply)
    return reply


def test_groups(call, home):
    status, out, err = call("groups", home / "text.txt", "--json")
    reply = strict(out)
    assert status == 0 and len(out.splitlines()) == 1 and "reading the groups" in err and "\r" not in err
    assert [row["layer"] for row in reply["layers"]] == [0, 1, 2]
    for row in reply["layers"]:
        assert {"dominance", "confidence"} <= set(row) and len(row["groups"]) == 8
        assert all(set(GROUP) <= set(group) for group in row["groups"])
        assert sum(group["share"] for group in row["groups"]) == pytest.approx(1)
        assert row["dominance"] == pytest.approx(max(group["share"] for group in row["groups"]))
    assert reply["protocol"]["model"] == str(home / "tiny") and reply["protocol"]["seed"] == 0


def test_numbers_that_do_not_exist_are_null(call, home):
    (home / "short.txt").write_text("the cat")
    empty = strict(call("groups", home / "short.txt", "--json")[1])["layers"][0]["groups"]
    assert [group["purity"] for group in empty if group["tokens"] == 0].count(None) >= 5
    reply = strict(call("pairs", home / "short.txt", "--min-distance", 5, "--json")[1])
    assert reply["pairs"] == [] and {row["lift"] for row in reply["controls"]} == {None}


def test_pairs(call, home):
    status, out, err = call("pairs", home / "text.txt", "--min-distance", 8, "--top", 5, "--layer", 1, "--json")
    reply = strict(out)
    assert status == 0 and len(reply["pairs"]) == 5 and "reading window 1" in err
    assert all(set(PAIR) <= set(pair) for pair in reply["pairs"])
    assert {pair["layer"] for pair in reply["pairs"]} == {1} and all(pair["distance"] >= 8 for pair in reply["pairs"])
    assert reply["protocol"]["min_distance"] == 8 and len(reply["controls"]) == 4 * 3


@pytest.mark.slow
def test_inspect_model_and_fit_router(call, home):
    reply = strict(call("inspect", home / "text.txt", "--json")[1])
    assert reply["characters"] == len(SHORT) and reply["windows"] > 1 and reply["notes"]
    reply = strict(call("fit-router", "--groups", 2, "--seed", 3, "--json")[1])
    assert Path(reply["path"]) == home / "state" / "focus" / "k2-top1.safetensors" and Path(reply["path"]).is_file()
    assert "perplexity_dense" not in reply, "measured on request only"
    assert reply["protocol"]["seed"] == 3
    reply = strict(call("fit-router", "--groups", 2, "--measure", "--json")[1])
    assert min(reply[f"perplexity_{name}"] for name in ("dense", "fitted", "random")) > 1
    reply = strict(call("model", "--json")[1])
    assert reply["parity"]["same"] is True and "k2-top1" in [router["name"] for router in reply["routers"]]


@pytest.mark.slow
def test_train_router_stops_resumes_and_reports(call, home, monkeypatch):
    arguments = ["train-router", "--corpus", home / "corpus", "--steps", 3, "--groups", 4, "-o", home / "out", "--json"]
    arguments += ["--tokens-per-step", 256]
    status, out, err = call(*arguments)
    reply = strict(out)
    assert status == 0 and set(TRAINED) <= set(reply) and "router, step 3 of 3" in err
    assert len(reply["dominance"]) == 3 and all(0.25 <= share <= 1 for share in reply["dominance"])
    assert Path(reply["path"]) == home / "out" / "k4-top1.safetensors"
    files = {path.name for path in (home / "out").iterdir()}
    assert files == {f"{name}.{kind}" for name in ("k4-top1", "random-k4-top1") for kind in ("json", "safetensors")}
    about = json.loads((home / "out" / "k4-top1.json").read_text())["about"]
    assert about["kind"] == "trained" and about["steps"] == 3 and about["evaluated_on"] == "1 held-out documents"
    again = vars(parser("x").parse_args(shlex.split(about["protocol"]["command"])[3:]))
    settings = {"steps": 3, "groups": 4, "rate": 1e-3, "base_rate": 1e-4, "phase": 1, "gate": "log", "d_s": 16}
    assert settings.items() <= again.items(), "the recorded command gives every argument"
    trained = Path(reply["path"]).read_bytes()

    def interrupt(*args):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("analysis.studies.training.train_router.random_centroids", interrupt)
        status, out, err = call(*arguments)
    assert status == 130 and out == "" and "Stopped" in err and (home / "out" / "k4-top1.checkpoint").is_file()
    status, out, err = call(*arguments)
    assert status == 0 and "router, step" not in err, "all steps were in the checkpoint"
    assert Path(reply["path"]).read_bytes() == trained
    assert call(*arguments[:4], 2, *arguments[5:])[0] == 0, "a finished run does not stand in the way of another"


@pytest.mark.slow
def test_report_and_plain_output(call, home):
    status, out, _ = call("report", home / "text.txt", "-o", home / "page.html", "--min-distance", 8, "--json")
    assert status == 0 and strict(out)["path"] == str(home / "page.html") and (home / "page.html").stat().st_size > 9000
    for arguments, words in (
        (["groups", home / "text.txt"], ("purity", "sentence: ")),
        (["pairs", home / "text.txt", "--min-distance", 8], ("affinity", "lift")),
        (["model"], ("parity", "parameters: ")),
        (["inspect", home / "text.txt"], ("tokens: ", "notes: ")),
    ):
        status, out, _ = call(*arguments)
        assert status == 0 and all(word in out for word in words)


REFUSED = {
    "no verb": ([], "required: VERB"),
    "an unknown verb": (["divine"], "invalid choice: 'divine'"),
    "no text": (["groups"], "required: TEXT"),
    "a number that is none": (["pairs", "story", "--min-distance", "nan"], "invalid int value: 'nan'"),
    "an unknown option": (["groups", "story", "--fast"], "unrecognized arguments: --fast"),
    "a text that is not there": (["groups", "absent.txt"], "There is no file 'absent.txt'"),
    "a directory as text": (["groups", "{home}"], "is a folder and one text is needed here"),
    "a name too long for a file": (["groups", "x" * 5000], "cannot be used: File name too long"),
    "a binary file": (["inspect", "{home}/tiny/model.safetensors"], "looks like a binary file"),
    "a method's setting": (["groups", "story", "--set", "focus.top=2"], "'focus.top=2' sets nothing"),
    "an unknown device": (["inspect", "story", "--device", "abacus"], "device 'abacus' cannot be used"),
    "a model that is not there": (["inspect", "story", "--model", "no-such/model"], "no-such/model is not on this"),
    "a negative seed": (["groups", "story", "--seed", "-1"], "seed"),
    "a rate that is no number": (["train-router", "--corpus", "{home}", "--rate", "nan"], "nan"),
    "no steps": (["train-router", "--corpus", "{home}", "--steps", "0"], "steps of train-router is 0 and must lie"),
    "more memberships than groups": (["fit-router", "--groups", "2", "--top", "3"], "3 of 2 groups"),
    "hundreds of groups": (["fit-router", "--groups", "999"], "999"),
    "a corpus that is not there": (["train-router", "--corpus", "absent"], "absent is no folder with"),
    "no corpus": (["train-router", "--corpus", ""], "Training needs a corpus"),
    "a corpus too short": (["train-router", "--corpus", "{home}/little"], "held-out text"),
    "a file as output folder": (["train-router", "--corpus", "{home}/corpus", "-o", "{home}/text.txt"], "File exists"),
    "a page nowhere": (["report", "story", "-o", "absent/page.html"], "cannot be written"),
    "a distance beyond the context": (["pairs", "story", "--min-distance", "64"], "must lie between 1 and 63"),
    "a head that is not there": (["pairs", "story", "--min-distance", "8", "--head", "4"], "Heads run from 0 to 3"),
    "another router": (["groups", "story", "--router", "k8"], "'k8' names no router"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_input_is_one_sentence_and_status_2(case, call, home):
    (home / "little").mkdir(exist_ok=True)
    (home / "little" / "a.txt").write_text("too little to train on")
    arguments, reason = REFUSED[case]
    status, out, err = call(
        *(word.replace("{home}", str(home)) for word in arguments),
        "--json",
        tiny=bool(arguments) and "--model" not in arguments,
    )
    assert status == 2 and out == "" and reason in err.splitlines()[-1] and "Traceback" not in err
    assert err.splitlines()[-1].endswith(".") and len(err.splitlines()[-1]) < 600


@pytest.mark.parametrize(
    ("data", "why"), [(b"\0\1\2", "zero byte at offset 0"), (b"", "empty"), (b" \n", "only spaces"), (b"\xff", "0xFF")]
)
def test_what_is_no_text_on_standard_input(data, why, call, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    status, out, err = call("inspect", "-")
    assert status == 2 and out == "" and err.startswith("inspect: standard input ") and why in err


def test_endless_standard_input_is_not_read_to_its_end(call, monkeypatch):
    class Endless(io.BytesIO):
        def read(self, size=-1):
            assert 0 < size < 10_000_000
            return b"a" * size

    monkeypatch.setattr(sys, "stdin", type("Stdin", (), {"buffer": Endless()}))
    assert "the limit is 5 MB" in call("inspect", "-")[2]


def test_every_verb_has_help_and_the_program_a_version(capsys):
    with pytest.raises(SystemExit):
        main(["--version"])
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert capsys.readouterr().out == f"focuscope {project}\n" and version() == project
    for verb in COMMANDS:
        with pytest.raises(SystemExit) as stop:
            main([verb, "--help"])
        assert stop.value.code == 0 and ("baselines" if verb == "study" else "--json") in capsys.readouterr().out


def test_the_bundled_model_from_a_shell(home):
    command = [sys.executable, "-m", "analysis", "inspect", "-", "--json", "--state", str(home / "other")]
    done = subprocess.run(command, cwd=ROOT, input=SHORT.encode(), capture_output=True)
    reply = strict(done.stdout.decode())
    assert done.returncode == 0 and reply["protocol"]["model"] == "demo" and reply["characters"] == len(SHORT)
    assert done.stderr == b"", "nothing is loaded to count tokens"
    done = subprocess.run([*command[:4], "absent.txt"], cwd=ROOT, capture_output=True)
    assert done.returncode == 2 and done.stdout == b"" and done.stderr.decode().count("\n") == 1


def test_a_terminal_without_a_character_gets_its_number(tmp_path):
    """In latin-1, and in ASCII, where what is printed would otherwise end in a UnicodeEncodeError."""
    (tmp_path / "漢é.txt").write_text(SHORT)
    for encoding in ("latin-1", "ascii"):
        place = os.environ | {"PYTHONIOENCODING": encoding, "FOCUSCOPE_STATE": str(tmp_path / "state")}
        command = [sys.executable, "-m", "analysis", "inspect", str(tmp_path / "漢é.txt")]
        done = subprocess.run(command, capture_output=True, env=place, timeout=120)
        assert done.returncode == 0, done.stderr
        assert b"\\u6f22" in done.stdout and ("é".encode("latin-1") in done.stdout) == (encoding == "latin-1")

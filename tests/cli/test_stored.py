"""What a command computed is a run: its protocol names it, pages find it, and `take` works from it."""

import json
import subprocess
import sys
import zipfile

import pytest

from analysis.__main__ import main
from analysis.cli.asked import asked
from analysis.cli.options import parser
from analysis.commands import COMMANDS
from analysis.corpus import text_hash
from analysis.errors import BadSetting
from analysis.runs import RunStore
from tests.conftest import all_of_them
from tests.made.asking import SHORT
from tests.made.tiny_tokenizer import save_model

SHOW = "\nprint(model.dtype, model.config.num_hidden_layers, model.config._attn_implementation)"


@pytest.fixture
def home(tmp_path, monkeypatch):
    """An installation of its own, with a tiny model and a text."""
    monkeypatch.setenv("FOCUSCOPE_STATE", str(tmp_path / "installation"))
    save_model(tmp_path / "tiny")
    (tmp_path / "text.txt").write_text(SHORT)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_text_that_is_stored_goes_by_its_key(home):
    key = RunStore().put_text(SHORT, "mine.txt")
    words = ["inspect", key, "--model", str(home / "tiny")]
    question = asked(vars(parser("").parse_args(words)))
    assert question.request.text == key and question.texts == {key: ("mine.txt", SHORT)}
    with pytest.raises(BadSetting, match="is not stored here"):
        asked(vars(parser("").parse_args(["inspect", "0" * 12])))


@pytest.fixture
def protocol(home, capsys):
    """`protocol(words...)` -> what a command's answer says of itself."""

    def ask(*words) -> dict:
        assert main([*map(str, words), "--json"]) == 0, capsys.readouterr().err
        return json.loads(capsys.readouterr().out.splitlines()[-1])["protocol"]

    return ask


@pytest.mark.slow
def test_take_works_from_the_run_that_a_command_names(home, protocol, capsys, pytestconfig):
    """On the bundled model, whose weights lie in another type than it is measured in here. With `--all` the lines of
    its README run outside; those of the page do in tests/studies/take each time."""
    run = protocol("evaluate", "text.txt", "--methods", "dense,streaming_llm", "--window", 48)["run"]
    store = RunStore()
    stored = store.open(run)
    assert stored.verb == "evaluate" and store.text(text_hash(SHORT)) == ("text.txt", SHORT)
    assert [row["method"] for row in stored.numbers["rows"]] == ["dense", "streaming_llm"]
    assert main(["take", run, "-o", "window.zip"]) == 0, capsys.readouterr().err
    zipfile.ZipFile("window.zip").extractall("taken")
    written = (home / "taken" / "README.md").read_text()
    code = "\n".join(line.strip() for line in written.splitlines() if line.startswith("    "))
    assert compile(code + SHOW, "README.md", "exec")
    if not all_of_them(pytestconfig):
        return
    done = subprocess.run(
        [sys.executable, "-c", code + SHOW], cwd=home / "taken", capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split() == [f"torch.{stored.protocol['dtype']}", "6", "focuscope"]


def test_a_method_is_taken_along_without_a_run(home, capsys):
    words = ["take", "snapkv", "--set", "snapkv.ratio=0.25", "--model", "tiny", "-o", "snapkv.zip"]
    assert main(words) == 0, capsys.readouterr().err
    with zipfile.ZipFile("snapkv.zip") as file:
        policy = json.loads(file.read("policy.json"))
    assert policy["method"] == "snapkv" and policy["settings"]["ratio"] == 0.25 and policy["quality"] is None
    assert main([*words[:3], "tova.ratio=0.25", *words[4:-1], "other.zip"]) == 2
    assert "name one method" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "stored"),
    [
        (["statistics", "text.txt", "--model", "tiny"], True),
        (["ablate", "text.txt", "--heads", "0.1", "--model", "tiny"], True),
        (["inspect", "text.txt", "--model", "tiny"], True),
        (["runs", "anything"], False),
        (["schema", "inspect"], False),
    ],
)
def test_every_protocol_holds_the_run_or_none_and_the_same_command_the_same(protocol, capsys, words, stored):
    run = protocol(*words)["run"]
    assert (run is not None) == stored == bool(COMMANDS[words[0]].page)
    if stored:
        assert RunStore().open(run).verb == words[0] and protocol(*words)["run"] == run
        assert main([*words, "--plan", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["stored"] == run


def test_what_cannot_be_stored_is_printed_all_the_same(home, protocol):
    (home / "installation").write_text("a file where the folder would be")
    assert protocol("inspect", "text.txt", "--model", "tiny")["run"] is None


def test_a_run_with_fitted_state_elsewhere_is_another_and_is_taken_with_it(home, protocol, capsys):
    words = ["evaluate", "text.txt", "--methods", "dense,streaming_llm", "--window", 48, "--model", "tiny"]
    usual, fitted = protocol(*words)["run"], protocol(*words, "--state", "fitted")["run"]
    assert usual != fitted
    store = RunStore()
    assert store.open(fitted).request["state"] == str(home / "fitted")
    assert store.open(fitted).request["model"] == str(home / "tiny")
    assert main(["take", fitted, "-o", "other.zip"]) == 0, capsys.readouterr().err


def test_times_are_measured_again_and_the_printed_ones_are_the_runs(home, protocol, capsys):
    words = ["time-method", "text.txt", "--method", "streaming_llm", "--length", 32, "--new-tokens", 2]
    words = [*map(str, words), "--repeats", "2", "--model", "tiny", "--json"]
    for _ in range(2):
        assert main(words) == 0, capsys.readouterr().err
        answer = json.loads(capsys.readouterr().out.splitlines()[-1])
    store = RunStore()
    stored = store.open(answer["protocol"]["run"]).numbers
    assert {name: stored[name] for name in answer if name != "protocol"} == {
        name: value for name, value in answer.items() if name != "protocol"
    }

"""Every command of the README really runs: here in small, on a tiny model, or in the test that is named."""

import re
import shlex
from pathlib import Path

import pytest

from analysis.__main__ import main
from analysis.studies import NAMED
from tests.made.asking import SHORT
from tests.made.tiny_tokenizer import save_model

ROOT = Path(__file__).resolve().parents[2]
SMALL = {  # verb, or study and its name -> what makes it small; of an option given twice the last one counts
    "train-router": "--steps 2 --tokens-per-step 128 --window 8",
    "pairs": "--min-distance 8",
    "report": "--min-distance 8",
    "temperature-curve": "--t 0.5,1",
    "calibrate": "--window 48 --tokens 96 --caps 8",
    "reads-text": "--shares 0.5",
    "topk-cost": "--lengths 64 --keys 8 --heads 1 --repeats 1",
    "route": "--length 48 --prompts 3 --min-distance 4 --no-mlp",
    "route-time": "--length 32 --new-tokens 2 --repeats 1",
    "time-method": "--length 32 --new-tokens 2 --repeats 1",
    "finetune": "--length 32 --steps 1 --tokens-per-step 64 --windows-count 2 --rates 1e-4",
    "bench attention": "--lengths 64 --groups 2 --top 1 --heads 1 --window 8 --repeats 1 --dtype float32",
    "bench statistics": "--lengths 16 --repeats 1",
    "bench decode": "--lengths 64 --heads 1 --window 8 --repeats 1",
    "bench inference": "--lengths 32 --new-tokens 2 --repeats 1",
    "study step-cost": "--length 32 --tokens-per-step 64 --repeats 1",
}
ELSEWHERE = {  # verb, or study and its name -> the tests that run in small what is behind it
    "launch": "test_launch.py",
    "pretrain": "test_pretrain.py",
    "route-at": "test_route_live.py",
    "study groups": "test_arms.py",
    "study temperature": "test_temperature.py",
    "study focal-temperatures": "test_focal_studies.py",
    "study focal-limits": "test_focal_studies.py",
    "study focal-scaling": "test_focal_studies.py",
    "study length-extension": "test_length_extension.py",
    "study baselines": "test_lora.py",
    "study dominance": "test_dominance.py",
    "study causality": "test_causality.py",
    "study top": "test_top.py",
    "study lengths": "test_lengths.py",
    "study finetuning": "test_finetuning.py",
    "study ablations": "test_ablations.py",
    "study pretraining": "test_pretraining.py",
    "study pruned": "test_pruned.py",
    "study calibration": "test_calibration_table.py",
    "study query-router": "test_query_router.py",
    "study equal-budget": "test_equal_budget_table.py",
    "study routing": "test_route_study.py",
    "stress": "test_stress.py",
    "spread": "test_cluster_far.py",
    "benchmark": "test_benchmark.py",
    "study benchmarks": "test_benchmark_table.py",
    "pitfalls": "test_pitfalls.py",
    "examples": "test_examples.py",
    "runs": "test_bundles.py",
    "bundle-out": "test_bundles.py",
    "bundle-in": "test_bundles.py",
}


def commands() -> list[str]:
    """Every line of the README's code blocks that calls Python."""
    text = "".join(re.findall(r"^```\w*\n(.*?)^```", (ROOT / "README.md").read_text("utf-8"), flags=re.M | re.S))
    lines = text.replace("\\\n", " ").splitlines()
    return sorted({line.split("  #")[0].strip() for line in lines if line.strip().startswith("python ")})


def verb_of(words: list[str]) -> str:
    """The verb, with the name of what `study` and `bench` run."""
    return " ".join(words[:2]) if words[0] in ("study", "bench") else words[0]


def run_here() -> list[str]:
    """The commands of the analysis that this file runs."""
    ours = [line for line in commands() if line.startswith("python -m analysis ")]
    return [line for line in ours if verb_of(shlex.split(line)[3:]) not in ELSEWHERE]


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    """A folder with a tiny model whose routers are fitted, six texts and a corpus."""
    home = tmp_path_factory.mktemp("home")
    save_model(home / "tiny")
    (home / "story.txt").write_text(SHORT.replace("lamp", "candle") * 8)
    (home / "corpus").mkdir()
    for number in range(8):
        (home / "corpus" / f"{number}.txt").write_text(SHORT.replace("lamp", f"lamp {number}") * 8)
    for words in ("--groups 8 --top 1", "--groups 8 --top 2", "--groups 4 --top 1"):
        assert main(["fit-router", *words.split(), *place(home)]) == 0
    return home


def place(home: Path) -> list[str]:
    return ["--model", str(home / "tiny"), "--state", str(home / "state")]


def filled(words: list[str], home: Path) -> list[str]:
    """A command with files of ours where the README names somebody's, and made small."""
    made, texts = [], iter(sorted((home / "corpus").iterdir()))
    for before, word in zip(["", *words], words, strict=False):
        if word in ("TEXT", "story"):
            word = str(next(texts) if word == "TEXT" else home / "story.txt")
        elif before == "-o":
            word = str(home / "out" / Path(word).name)
        elif before in ("--corpus", "--data"):
            word = str(home / "corpus")
        elif re.match(r"(meta-llama|EleutherAI)/", word):
            word = str(home / "tiny")
        made.append(word)
    return [*made, *place(home), *SMALL.get(verb_of(words), "").split()]


@pytest.mark.parametrize("command", run_here())
def test_a_command_of_the_readme_runs_in_small(command, home, capsys, state):
    (home / "out").mkdir(exist_ok=True)
    status = main(filled(shlex.split(command)[3:], home))
    said = capsys.readouterr()
    assert status == 0 and said.out.strip(), said.err[-400:]


def test_what_runs_elsewhere_is_in_the_readme_and_in_that_test():
    ours = [line for line in commands() if line.startswith("python -m analysis ")]
    listed = {verb_of(shlex.split(line)[3:]) for line in ours}
    assert set(ELSEWHERE) | set(SMALL) <= listed, "a line above whose command the README no longer shows"
    for verb, name in ELSEWHERE.items():
        study = NAMED[verb.split()[1]].__name__ if " " in verb else verb
        assert re.search(rf"\b{study}\b", (ROOT / "tests" / name).read_text("utf-8")), f"{name} does not run {study}"


def test_the_commands_of_run_py_name_tests_that_exist():
    """`python run.py` and `python run.py test` themselves: tests/test_house.py and tests/test_install.py."""
    lines = [shlex.split(line)[2:] for line in commands() if line.startswith("python run.py")]
    assert [] in lines and ["test"] in lines
    for words in lines:
        if words[1:]:
            tests = re.findall(r"^def (test_\w+)", (ROOT / words[1]).read_text("utf-8"), flags=re.M)
            wanted = words[words.index("-k") + 1].split(" or ")
            assert all(any(word in name for name in tests) for word in wanted), words

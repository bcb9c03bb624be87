"""Every command of the README and of docs/log.md really runs: here in small, on a tiny model, or in the test that is
named."""

import re
import shlex
from pathlib import Path

import pytest

from analysis.__main__ import main
from tests.made.asking import SHORT
from tests.made.tiny_tokenizer import save_model

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]
SMALL = {  # verb, or study and its name -> what makes it small; of an option given twice the last one counts
    "train-router": "--steps 2 --tokens-per-step 128 --window 32",
    "pairs": "--min-distance 8",
    "report": "--min-distance 8",
    "temperature-curve": "--t 0.5,1",
    "calibrate": "--window 48 --tokens 96 --caps 8",
    "reads-text": "--shares 0.5",
    "topk-cost": "--lengths 64 --keys 8 --heads 1 --repeats 1",
    "route": "--length 48 --prompts 3 --min-distance 4 --no-mlp",
    "route-time": "--length 32 --new-tokens 2 --repeats 1",
    "generate": "--new-tokens 4",
    "export-eviction": "--prefix 32 --continuation 12 --cuts 2 --anchors 2",
    "search": "--prefix 32 --continuation 12 --cuts 4 --methods snapkv --set snapkv.window=4",
    "time-method": "--length 32 --new-tokens 2 --repeats 1",
    "finetune": "--length 32 --steps 1 --tokens-per-step 64 --windows-count 2 --rates 1e-4",
    "bench attention": "--lengths 64 --groups 2 --top 1 --heads 1 --window 8 --repeats 1 --dtype float32",
    "bench decode": "--lengths 64 --heads 1 --window 8 --repeats 1",
    "bench inference": "--lengths 32 --new-tokens 2 --repeats 1",
    "study step-cost": "--length 32 --repeats 1",
    "study statistics-cost": "--lengths 16 --repeats 1",
}
ELSEWHERE = {  # verb -> the tests that run in small what is behind it
    "launch": "test_launch.py",
    "stress": "test_stress.py",
    "study sliders": "test_sliders_study.py",
    "examples": "test_examples.py",
    "make-shape": "test_shapes.py",
    "take": "test_take.py",
    "sparse-config": "test_sparse_config.py",
}


def commands() -> list[str]:
    """Every line that calls Python in the code blocks of the documents."""
    text = "".join((ROOT / name).read_text("utf-8") for name in ("README.md", "docs/log.md"))
    text = "".join(re.findall(r"^```\w*\n(.*?)^```", text, flags=re.M | re.S))
    lines = text.replace("\\\n", " ").splitlines()
    return sorted({line.split("  #")[0].strip() for line in lines if line.strip().startswith("python ")})


def verb_of(words: list[str]) -> str:
    """The verb, with the name of what `study` and `bench` run."""
    return " ".join(words[:2]) if words[0] in ("study", "bench") else words[0]


def run_here() -> list[str]:
    """The commands of the analysis that this file runs; of those that are one command in small, the first."""
    ours: dict[str, str] = {}
    for line in filter(lambda line: line.startswith("python -m analysis "), commands()):
        if (verb := verb_of(shlex.split(line)[3:])) not in ELSEWHERE:
            replaced = "|".join(word for word in SMALL.get(verb, "").split() if word.startswith("--"))
            ours.setdefault(re.sub(rf" ({replaced}) \S+", "", line) if replaced else line, line)
    return list(ours.values())


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
    argv, texts = [], iter(sorted((home / "corpus").iterdir()))
    for before, word in zip(["", *words], words, strict=False):
        if word in ("TEXT", "story"):
            word = str(next(texts) if word == "TEXT" else home / "story.txt")
        elif before == "-o":
            word = str(home / "out" / Path(word).name)
        elif before in ("--corpus", "--data") or word == "DIR":
            word = str(home / "corpus")
        elif re.match(r"(meta-llama|EleutherAI)/", word):
            word = str(home / "tiny")
        argv.append(word)
    return [*argv, *place(home), *SMALL.get(verb_of(words), "").split()]


@pytest.mark.parametrize("command", run_here())
def test_a_command_of_the_readme_runs_in_small(command, home, capsys, state):
    (home / "out").mkdir(exist_ok=True)
    status = main(filled(shlex.split(command)[3:], home))
    said = capsys.readouterr()
    assert status == 0 and said.out.strip(), said.err[-400:]

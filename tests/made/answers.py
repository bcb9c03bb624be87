"""Answers of the verbs of which the bundled model keeps none, about a tiny model. The schemas of those that return no
record stand in `analysis/cli/answers.json`.

Run as `python -m tests.made.answers` it makes that file anew, in a few minutes.
"""

import json
import shlex
import tempfile
import time
from pathlib import Path

from analysis.answer import returned
from analysis.cli.answers import KEPT, read_off
from analysis.cli.asked import asked
from analysis.cli.options import parser
from analysis.cli.shown import answer, dumped
from analysis.commands import COMMANDS
from analysis.corpus import sample_texts
from analysis.files import write_json
from analysis.places import CACHE
from tests.made.asking import SHORT
from tests.made.tiny_tokenizer import save_model

LONG = "story essay program register"
# Verb -> its words on the tiny model, in an order in which each finds what it needs; {home} is a folder of one's own.
ASKED = {
    "read": "{home}/text.txt",
    "report": "{home}/text.txt -o {home}/page.html --min-distance 8",
    "head-texts": "--tokens 400 --queries 100",
    "head-tokens": "{home}/text.txt",
    "alike": "{home}/text.txt",
    "readers": "{home}/text.txt --token 3 --min-distance 8",
    "ablate": "{home}/text.txt --exact 2",
    "names": "--sequences 5 --confirm 1",
    "fit-router": "--groups 4",
    "umap": "{home}/text.txt --router k4-top1",
    "compare": "{home}/text.txt --other k4-top1",
    "group-controls": "{home}/text.txt --router k4-top1",
    "balance": "{home}/text.txt --router k4-top1",
    "train-router": "--corpus {home}/corpus --steps 2 --groups 4 --tokens-per-step 128 --label two",
    "temperature-curve": "{home}/text.txt --t 0.5,1",
    "equal-budget": "{home}/text.txt --methods streaming_llm,oracle_topk",
    "search": f"{LONG} --methods keydiff,tova --prefix 32 --continuation 16 --cuts 8",
    "calibrate": f"{LONG} --tokens 512 --caps 8,16",
    "reads-sweep": "program --shares 1,0.5 --tokens 256",
    "lost-keys": "story --window 32 --first",
    "sparse-config": f"{LONG} --block 8 --decode 0.1 --lengths 64",
    "fit-method": "routing_transformer story --clusters 4",
    "export-heads": "-o {home}/heads.json --sinks 2 --window 8",
    "head-split": "{home}/text.txt",
    "import-heads": "{home}/heads.json",
    "topk-cost": "--lengths 256 --heads 2 --head-dim 16 --keys 16 --repeats 1",
    "route": "--corpus {home}/corpus --length 64 --prompts 4 --min-distance 8 --buckets 8 --visited 2 --store",
    "route-time": "story --length 32 --new-tokens 4 --repeats 2",
    "launch": "story --router k4-top1 --length 32 --new-tokens 4 --repeats 2",
    "time-method": "story --method streaming_llm --length 32 --new-tokens 4 --repeats 2",
    "bench": "--lengths 256 --heads 2 --head-dim 16 --repeats 1 --dtype float32",
    "make-shape": f"{CACHE / 'demo' / 'config.json'} -o {{home}}/shape",
    "runs": "story",
    "remeasure": "--minutes 0",
    "measured": "-o {home}/measured.md",
    "commands": "-o {home}/commands.md",
    "schema": "inspect",
}


def home(folder: Path) -> Path:
    """`folder` with a tiny model, a text and a corpus of eight documents."""
    save_model(folder / "tiny")
    (folder / "text.txt").write_text(SHORT)
    (folder / "corpus").mkdir()
    for name, (_, text) in sample_texts().items():
        for part in range(3):
            (folder / "corpus" / f"{name}-{part}.txt").write_text(text[2000 * part : 2000 * (part + 1)])
    return folder


def printed(verb: str, home: Path) -> dict:
    """What `verb` prints with `--json` when it is asked with its words."""
    words = shlex.split(ASKED[verb].replace("{home}", str(home)))
    place = ["--model", str(home / "tiny"), "--state", str(home / "state")]
    given = vars(parser("x").parse_args([verb, *words, *place]))
    return json.loads(dumped(answer(verb, asked(given).run(lambda fraction, stage: None))))


def main() -> None:
    """Ask all, and write the schemas of their answers."""
    made = {}
    with tempfile.TemporaryDirectory() as place:
        where = home(Path(place))
        for verb in ASKED:
            began = time.monotonic()
            found = printed(verb, where)
            del found["protocol"]  # the same of all verbs, read off the answers that are kept
            if not returned(COMMANDS[verb].function()):
                made[verb] = read_off([found])
            print(f"{verb}: {time.monotonic() - began:.1f} s", flush=True)
    write_json(KEPT, made)


if __name__ == "__main__":
    main()

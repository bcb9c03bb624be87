"""`python -m analysis.training.circuit_run FOLDER`: which small models learn to look back, and after how many steps.

Arms: without (`llama_plain`) and with (`llama`) normalised queries and keys, each with AdamW and with Muon, several
seeds. One JSON per run in FOLDER; a run that is there already is not repeated.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import json
import os
import shlex
import sys
import time
from dataclasses import asdict
from pathlib import Path

import torch
import transformers

from analysis.training.circuit import OPTIMISERS, Circuit, run

FAMILIES = ("llama_plain", "llama")
RATES = {"adamw": (2e-3,), "muon": (1e-2,)}  # Muon's updates are scaled to AdamW's: 0.2 of its rate


def main() -> None:
    """Run what is asked for and not there yet, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--families", nargs="+", default=FAMILIES)
    parser.add_argument("--optimisers", nargs="+", default=OPTIMISERS)
    parser.add_argument("--rates", nargs="+", type=float, help="instead of each optimiser's own")
    parser.add_argument("--seeds", nargs="+", type=int, default=(0, 1, 2))
    parser.add_argument("--steps", type=int, default=Circuit.steps)
    parser.add_argument("--threads", type=int, default=1)
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    for seed, optimiser, family in itertools.product(asked.seeds, asked.optimisers, asked.families):
        for rate in asked.rates or RATES[optimiser]:
            plan = Circuit(family=family, rate=rate, seed=seed, optimiser=optimiser, steps=asked.steps)
            store(plan, asked.folder / f"{family}-{optimiser}-{rate:g}-{seed}.json")


def store(plan: Circuit, place: Path) -> None:
    """Run one plan and write its curve, unless it is there."""
    if place.exists():
        return
    began = time.process_time()
    curve = run(plan, lambda entry: print(place.stem, json.dumps(entry), flush=True))
    formed = [entry["step"] for entry in curve if entry["second"] < 1]
    made = {
        "plan": asdict(plan),
        "curve": curve,
        "formed_at": min(formed, default=None),
        "cpu_seconds": round(time.process_time() - began, 1),
        "command": shlex.join([Path(sys.executable).name, "-m", "analysis.training.circuit_run", *sys.argv[1:]]),
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }
    place.parent.mkdir(parents=True, exist_ok=True)
    part = place.with_suffix(".part")
    part.write_text(json.dumps(made, indent=1) + "\n")
    os.replace(part, place)


if __name__ == "__main__":
    main()

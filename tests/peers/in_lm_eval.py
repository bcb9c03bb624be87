"""`python -I in_lm_eval.py FOLDER`: the log-likelihoods that lm-evaluation-harness' own model gives to answers."""

import json
import sys
from pathlib import Path

from lm_eval.api.instance import Instance
from lm_eval.models.huggingface import HFLM


def main(folder: Path) -> None:
    """[log-likelihood, whether it is the greedy answer] of every pair of context and continuation."""
    request = json.loads((folder / "asked.json").read_text())
    model = HFLM(pretrained=request["model"], dtype="float32", device="cpu", batch_size=1)
    pairs = [Instance("loglikelihood", {}, tuple(pair), number) for number, pair in enumerate(request["pairs"])]
    (folder / "answered.json").write_text(json.dumps(model.loglikelihood(pairs, disable_tqdm=True)))


if __name__ == "__main__":
    main(Path(sys.argv[1]))

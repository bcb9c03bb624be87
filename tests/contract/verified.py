"""What a model's family was tried for, on a tiny random model of it: the rows of `docs/models.md`.

`python -m tests.contract.verified` writes the page, and what comes with the bundled model; a test holds
them equal to fresh ones.
"""

from dataclasses import asdict
from pathlib import Path

import torch
from transformers import CONFIG_MAPPING, AutoConfig

from analysis.errors import AnalysisError
from analysis.files import write_json, write_whole
from analysis.methods import METHODS
from analysis.models import load_model, refuse_family
from analysis.seam import parity
from analysis.seam.attention import apply, ran
from tests.contract.test_contract import AllKeys, logits, router
from tests.made.full_tables import agree, few, materialised, read
from tests.made.tiny import CONFIGS, VERIFIED, tiny, token_ids

PLACE = Path(__file__).parents[2] / "docs" / "models.md"
REFUSED = (
    *("stablelm", "falcon_h1", "gpt_oss", "falcon", "bloom", "mpt", "gptj", "gpt_neo", "codegen", "mamba", "t5"),
    *("deepseek_v3", "glm_moe_dsa", "doge"),
)
TEXT = """# Verified models

Each family is tried on a tiny model of it with random weights, made from a configuration. A trained model of the family
runs the same code. When a model is loaded, the first comparison is made on a small copy of it: the same classes and
kinds of layers, random weights, a text that is longer than every window, chunk, block and top-k, in one pass and token
by token with the KV cache. What differs by more than rounding, or cannot be tried, is refused. Then the first two are
repeated on its own weights, in the precision that was chosen; *Start* shows both results as a badge, and
`python -m analysis model NAME --full` compares at a length beyond every window of the model itself.

- *Same logits*: Focuscope's attention against the model's own, both reading every key.
- *Future*: the largest change of any logit when later tokens change.
- *Statistics*: entropies, ranks, distances and masses of every head against fully made attention tables in float64.
- *Kernels*: what runs a method that skips keys (Focus), checked against the masked pass. Families whose layers have
  windows or caps of their own keep the masked pass: exact, and no faster.
- *Generation*: 12 tokens with a KV cache, against the model's own `generate`.

| family | same logits | future | statistics | kernels | generation |
|---|---|---|---|---|---|
{rows}

## Refused

These are refused when they are loaded, with this sentence.

| family | sentence |
|---|---|
{refused}

Written by `python -m tests.contract.verified`.
"""


def same_logits(lm) -> str:
    """Whether dense attention through the seam gives the stock model's logits."""
    ids = token_ids()
    load_model(lm)
    stock = logits(lm, input_ids=ids)
    with apply(lm, AllKeys()):
        if torch.equal(logits(lm, input_ids=ids), stock):
            return "bit for bit"
    return "differ"


def future(lm) -> str:
    """How much logits change when later tokens do."""
    ids = token_ids()
    changed = ids.clone()
    changed[:, 24:] = ids[:, 24:].flip(1)
    with apply(lm, METHODS["dense"]()):
        moved = (logits(lm, input_ids=ids) - logits(lm, input_ids=changed))[:, :24].abs().max()
    return "0" if moved == 0 else "below 1e-5" if moved < 1e-5 else "leaks"


def statistics(lm) -> str:
    """Whether the streamed statistics are those of the full tables."""
    try:
        agree(read(lm, few(batch=1)), materialised(lm, few(batch=1)))
    except AssertionError:
        return "differ"
    return "exact"


def kernels(lm) -> str:
    """What runs Focus with hard groups, and whether it computes what the masked pass does."""
    ids, method = token_ids(2, 40), METHODS["focus"].build(router())
    with apply(lm, method):
        wanted = logits(lm, input_ids=ids)
    with apply(lm, method, kernels=True):
        same = (logits(lm, input_ids=ids) - wanted).abs().max() < 1e-5
        used = {entry.kernel for entry in ran(lm)}
    return ("masked pass" if used == {"masked blocks"} else "own kernel") if same else "differ"


def generation(lm) -> str:
    """Whether text is generated as the stock model generates it."""
    options = dict(max_new_tokens=12, do_sample=False, eos_token_id=None)
    stock = lm.generate(token_ids(2, 20), **options)
    with apply(lm, METHODS["dense"](), kernels=True):
        return "same tokens" if torch.equal(lm.generate(token_ids(2, 20), **options), stock) else "differ"


COLUMNS = (same_logits, future, statistics, kernels, generation)
CHEAP = COLUMNS[:2]  # what the test of the page repeats for every family; the others are repeated with --all


def row(family: str, columns=COLUMNS) -> list[str]:
    """The cells of a family."""
    return [check(tiny(family)) for check in columns]


def refusal(family: str) -> str:
    """The sentence with which a family is refused. AssertionError for one that is taken."""
    try:
        refuse_family(CONFIG_MAPPING[family]())
        parity.check(CONFIG_MAPPING[family]())
    except AnalysisError as error:
        return str(error)
    raise AssertionError(f"{family} is taken")


def written(rows: dict[str, list[str]]) -> str:
    """The page, from the rows of all families."""
    lines = [f"| {family} | {' | '.join(cells)} |" for family, cells in rows.items()]
    refused = [f"| {family} | {refusal(family)} |" for family in REFUSED]
    return TEXT.format(rows="\n".join(lines), refused="\n".join(refused))


def bundled() -> dict:
    """What comes with the bundled model: that its kind was tried with these versions."""
    small = parity.small_config(AutoConfig.from_pretrained(parity.KEPT.parent))
    tried = parity.of_random_weights(small)
    return {"versions": parity.versions(), "kind": parity.kind(small), "parity": asdict(tried)}


if __name__ == "__main__":
    write_json(parity.KEPT, bundled())
    with write_whole(PLACE) as place:
        place.write_text(written({family: row(family) for family in [*CONFIGS, *VERIFIED]}), encoding="utf-8")

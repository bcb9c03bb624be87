"""What a model's family was tried for, on a small random model of it: the rows of `docs/models.md`.

`python -m tests.contract.verified` writes the page, and what comes with the bundled model; a test computes some of its
rows again. With names of families it prints their rows and writes nothing.
"""

import inspect
import re
import sys
from dataclasses import asdict
from pathlib import Path

import torch
import transformers
from transformers import CONFIG_MAPPING, AutoConfig

from analysis.errors import AnalysisError
from analysis.files import write_json, write_whole
from analysis.groups.router import FocusRouter
from analysis.methods import METHODS
from analysis.models import load_model, refuse_family
from analysis.places import explain
from analysis.seam import parity
from analysis.seam.attention import apply, ran
from analysis.seam.layers import attention_modules, causal_class
from tests.contract.test_contract import AllKeys, logits
from tests.made import families
from tests.made.full_tables import agree, few, materialised, read
from tests.made.tiny import CONFIGS, VERIFIED, tiny, token_ids

PLACE = Path(__file__).parents[2] / "docs" / "models.md"
TEXT = """# Families that load

Every family of transformers {version} with a causal language model was tried on a small model of it with random
weights, made from its own configuration. A trained model of the family runs the same code. When a model is loaded, the
first comparison is made on a small copy of it: the same classes and kinds of layers, random weights, a text that is
longer than every window, chunk, block and top-k, in one pass and token by token with the KV cache. What differs by more
than rounding, or cannot be tried, is refused. Then the first two are repeated on its own weights, in the precision that
was chosen; its model card shows both results, and `python -m analysis model NAME --full` compares at a length beyond
every window of the model itself.

- *Layers*: those of softmax attention, of all layers of the small model. The others of a hybrid are left as they are.
- *Same logits*: Focuscope's attention against the model's own, both reading every key that the model lets be read.
- *Future*: the largest change of any logit when later tokens change.
- *Statistics*: entropies, ranks, distances and masses of every head against fully made attention tables in float64,
  among tokens. What a learned sink takes beside them, and what compressed entries do (DeepSeek-V4: keys that stand for
  several tokens), has a column of its own; methods choose among tokens, and the entries always stay.
- *Kernels*: what runs a method that skips keys (Focus), checked against the masked pass to 1e-5 of the largest logit.
  Layers with a window, a cap, values of another size than keys, an indexer of their own or compressed entries keep the
  masked pass: exact, and no faster. Learned sinks are one more term of a kernel's sum.
- *Generation*: 12 tokens with a KV cache, against the model's own `generate`. RecurrentGemma keeps its state in its
  modules and takes several tokens for the beginning of a text: it is read on token by token.

None of these small models is trained, and no trained hybrid or model with an indexer comes with Focuscope: whether
the code is right does not depend on the weights, and what a gate or an indexer of a few million weights learns from a
few novels says nothing of the models that people run. Load one of those by its id.

{loaded} load, newest first by the year in which transformers took them in.

| family | year | layers | same logits | future | statistics | kernels | generation |
|---|---|---|---|---|---|---|---|
{rows}

## Refused

{refused_count} are refused when they are loaded, with this sentence.

| family | sentence |
|---|---|
{refused}

Written by `python -m tests.contract.verified`.
"""


def tried() -> list[str]:
    """The families with a causal language model, one name for each class: that which tests name, where one does. And
    those of which transformers has none, though they are built like others."""
    names: dict[type, str] = {}
    without = [name for name in families.WITHOUT_CLASS if name in CONFIG_MAPPING]
    named = [name for name in (*CONFIGS, *VERIFIED, *families.MODERN) if name in CONFIG_MAPPING]
    for name in (*named, *CONFIG_MAPPING):
        try:
            model_class = causal_class(CONFIG_MAPPING[name]())
        # some cannot be made of their defaults
        except Exception:
            continue
        if model_class is not None:
            names.setdefault(model_class, name)
    return [*names.values(), *without]


def model_of(family: str):
    """The small random model of a family."""
    return tiny(family) if family in CONFIGS or family in VERIFIED else families.small(family)


def year(family: str) -> str:
    """When transformers took a family in, by the first line of its source."""
    source = inspect.getsource(sys.modules[causal_class(CONFIG_MAPPING[family]()).__module__])
    match = re.search(r"Copyright.*?(20\d\d)", source[:2_000])
    return match[1] if match else ""


def layers(lm) -> str:
    """How many of the layers read by softmax."""
    return f"{len(attention_modules(lm))} of {lm.config.get_text_config().num_hidden_layers}"


def same_logits(lm) -> str:
    """How near dense attention through the seam comes to the stock model's logits."""
    ids = token_ids()
    load_model(lm)
    stock = logits(lm, input_ids=ids)
    with apply(lm, AllKeys()):
        dense = logits(lm, input_ids=ids)
    if torch.equal(dense, stock):
        return "bit for bit"
    return "to 1e-5" if near(dense, stock) else "differ"


def near(computed, wanted) -> bool:
    """Whether logits differ by 1e-5 of the largest one at most: float32 rounds to a share of what it adds, and streams
    of many layers add up. (Of gemma3n's 20 layers the kernels' logits differ from the masked pass's by 5e-6 of the
    largest, and both from the same pass in float64 by 4e-5.)"""
    return bool((computed - wanted).abs().max() < 1e-5 * wanted.abs().max())


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
        truth = materialised(lm, few(batch=1))
    except (IndexError, TypeError, ValueError):
        return "no tables to compare"
    try:
        agree(read(lm, few(batch=1)), truth)
    except AssertionError:
        return "differ"
    return "exact"


def kernels(lm) -> str:
    """What runs Focus with hard groups, and whether it computes what the masked pass does."""
    ids, model = token_ids(2, 40), load_model(lm)
    router = FocusRouter(model.num_layers, model.width, groups=4, top=1, window=8, seed=0)
    draw = torch.Generator().manual_seed(1)
    router.scale_to([torch.randn(256, model.width, generator=draw) for _ in range(model.num_layers)])
    method = METHODS["focus"].build(router)
    with apply(lm, method):
        wanted = logits(lm, input_ids=ids)
    with apply(lm, method, kernels=True):
        agrees = near(logits(lm, input_ids=ids), wanted)
        used = {entry.kernel for entry in ran(lm)}
    if used == {"masked blocks"}:
        return "masked pass" if agrees else "differ"
    return ("own kernel" if "masked blocks" not in used else "own kernel, masked pass") if agrees else "differ"


def generation(lm) -> str:
    """Whether text is generated as the stock model generates it."""
    options = dict(max_new_tokens=12, do_sample=False, eos_token_id=None)
    stock = lm.generate(token_ids(2, 20), **options)
    with apply(lm, METHODS["dense"](), kernels=True):
        return "same tokens" if torch.equal(lm.generate(token_ids(2, 20), **options), stock) else "differ"


COLUMNS = (layers, same_logits, future, statistics, kernels, generation)
# What the test of the page repeats for every family; the others are repeated with --all.
CHEAP = COLUMNS[:3]


def row(family: str, columns=COLUMNS) -> list[str]:
    """The cells of a family."""
    return [check(model_of(family)) for check in columns]


def refusal(family: str) -> str | None:
    """The sentence with which a family is refused; None for one that is taken."""
    try:
        config = families.configured(family)
        refuse_family(config)
        parity.check(config)
    except AnalysisError as error:
        return str(error)
    return None


def written(rows: dict[str, list[str]], refused: dict[str, str]) -> str:
    """The page, from the rows of all families and the sentences of those that are refused."""
    newest = sorted(rows, key=lambda family: (-int(rows[family][0] or 0), family))
    return TEXT.format(
        version=transformers.__version__,
        loaded=len(rows),
        rows="\n".join(f"| {family} | {' | '.join(rows[family])} |" for family in newest),
        refused_count=len(refused),
        refused="\n".join(f"| {family} | {sentence} |" for family, sentence in refused.items()),
    )


def bundled() -> dict:
    """What comes with the bundled model: that its kind was tried with these versions."""
    small = parity.small_config(AutoConfig.from_pretrained(parity.KEPT.parent))
    result = parity.of_random_weights(small)
    return {"versions": parity.versions(), "kind": parity.kind(small), "parity": asdict(result)}


def main(names: list[str]) -> None:
    """Try families, all of them without names, and write the page."""
    rows, refused = {}, {}
    for family in names or tried():
        try:
            if sentence := refusal(family):
                refused[family] = sentence
            else:
                rows[family] = [year(family), *row(family)]
        except Exception as error:
            sentence = explain(family, family, error)
            refused[family] = str(error) if isinstance(error, AnalysisError) else sentence
        print(family, *rows.get(family, [refused.get(family)]), sep=" | ", flush=True)
    if not names:
        write_json(parity.KEPT, bundled())
        with write_whole(PLACE) as place:
            place.write_text(written(rows, refused), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])

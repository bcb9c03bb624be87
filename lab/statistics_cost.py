"""What do exact statistics of every head cost beside a plain forward pass, and beside the way that keeps all tables?"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch

from analysis.errors import BadSetting
from analysis.models import Model, load_model
from analysis.models.weights import free_bytes
from analysis.seam.layers import attention_as
from analysis.statistics import CORE, HeadReading, forward, top_p_rank
from analysis.studies.stored.runner import TIMES, Setting, Study, option
from analysis.timing import Progress, clock, processor
from analysis.timing.memory import peak_bytes
from analysis.training.pretrain import build_model
from analysis.training.recipe import Recipe

SHAPE = {"layers": 12, "width": 768, "heads": 12, "kv_heads": 12, "intermediate": 3072}  # GPT-2 small
# From here on one layer is measured.
LONG = 8192
# Times the first weights of queries and keys: at random ones attention is all but even.
SHARPER = 4.0
WINDOW, MASS = 128, 0.9
# Tables of one layer that are alive at once while its numbers are taken.
PEAKED = 3
SAMPLE = 48  # tokens


class StatisticsCost(Study):
    """A GPT-2-small shape with random weights, float32, without its vocabulary's logits: a plain pass with torch's own
    attention, with the six core statistics, with all of them, and `output_attentions` with the same six from its tables
    by the same rank routine, in turns. From 8,192 tokens on one layer is measured; null where tables do not fit memory.
    """

    whole = TIMES

    lengths: str = option("1024,4096,16384", "lengths in tokens, multiples of 8")
    repeats: int = option(5, "number of rounds, all ways in alternation", low=1, high=1000)

    def check(self, lm: Model) -> None:
        if any(length < 8 or length % 8 for length in self.every_length):
            raise BadSetting(f"Lengths are multiples of 8 from 8 on, not {self.lengths[:40]}.")

    @property
    def every_length(self) -> list[int]:
        """The lengths in order. Errors: BadSetting."""
        try:
            return sorted({int(length) for length in self.lengths.split(",")})
        except ValueError:
            raise BadSetting(f"{self.lengths[:40]!r} is no list of lengths, such as 1024,4096.") from None

    def measure(self, run: Setting) -> dict:
        lengths, device, rows = self.every_length, str(run.lm.device), []
        for index, length in enumerate(lengths):
            report = run.context.within(index / len(lengths), 1 / len(lengths), f"{length:,} tokens").progress
            report(0.0, "making the model")
            rows.append(_row(made_model(length, device, self.seed), length, self.repeats, report))
        about: dict[str, Any] = {"text": None, "tokens": lengths[-1], "window": WINDOW, "repeats": self.repeats}
        about |= {"dtype": "float32", "kernel": "streamed statistics", "shape": SHAPE, "processor": processor(device)}
        return {"rows": rows, "protocol": about}

    def sample(self, run: Setting, numbers: dict) -> dict:
        """Whether the numbers of both ways are the same, which unlike their times comes again."""
        model, ids = made_model(SAMPLE, "cpu", 0), torch.arange(SAMPLE) * 7 % 1000
        reading = HeadReading(model.num_layers, model.num_heads, MASS, WINDOW, more=False)
        reading.read(model, ids)
        return {"same": float(np.allclose(reading.means()[:, :-1], of_tables(model, ids), atol=1e-4))}

    @staticmethod
    def shown(numbers: dict) -> dict:
        parts = []
        for row in numbers["rows"]:
            tables = (
                f"{row['of_tables']:.2f} of the time of the kept tables" if row["of_tables"] else "tables do not fit"
            )
            layers = "1 layer" if row["layers"] == 1 else f"{row['layers']} layers"
            times = f"{row['core_times']:.2f} times a plain pass (all statistics {row['all_times']:.2f})"
            parts.append(f"{row['length']:,} tokens, {layers}: {times}, {tables}")
        return {"sentence": "; ".join(parts) + "."}


def made_model(length: int, device: str, seed: int) -> Model:
    """The shape with random weights, of one layer where a text is long."""
    shape: dict[str, Any] = SHAPE | {"layers": SHAPE["layers"] if length < LONG else 1}
    lm: Any = build_model(Recipe(family="gpt2", context=length, tokens_per_step=length, seed=seed, **shape), 1000)
    with torch.no_grad():
        for name, weight in lm.named_parameters():
            if "c_attn.weight" in name:
                weight.mul_(SHARPER)
    return load_model(lm.to(device).eval())


def _row(model: Model, length: int, repeats: int, report: Progress) -> dict:
    ids = torch.from_numpy(np.random.default_rng(0).integers(0, 1000, length)).to(model.device)

    def statistics(more: bool) -> None:
        HeadReading(model.num_layers, model.num_heads, MASS, WINDOW, more=more).read(model, ids)

    runs: dict[str, Callable[[], object]] = {
        "plain": partial(forward, model, ids),
        "core": partial(statistics, False),
        "all": partial(statistics, True),
    }
    tables = (model.num_layers + PEAKED) * model.num_heads * length**2 * 4
    if tables < 0.8 * free_bytes(model.device):
        runs["tables"] = partial(of_tables, model, ids)
    timed = clock(runs, repeats, lambda done, name: report(0.8 * done, name))
    report(0.8, "memory")
    peaks = {name: peak_bytes(run, model.device) for name, run in runs.items()}
    row = {"length": length, "layers": model.num_layers}
    row |= {f"{name}_ms": timed[name].median * 1e3 if name in timed else None for name in (*runs, "tables")}
    row |= {f"{name}_times": timed[name].over(timed["plain"]).median for name in ("core", "all")}
    row["of_tables"] = timed["core"].over(timed["tables"]).median if "tables" in timed else None
    row |= {f"{name}_bytes": peaks.get(name) for name in ("core", "all", "tables")}
    measured = None not in (row["tables_bytes"], row["core_bytes"])
    return row | {"bytes_times": row["tables_bytes"] / max(1, row["core_bytes"]) if measured else None}


@torch.no_grad()
def of_tables(model: Model, ids: torch.Tensor) -> np.ndarray:
    """The six core statistics from the tables that `output_attentions` keeps, [L, H, 6], with the same rank routine."""
    numbers_by_layer = []
    with attention_as(model.lm, "eager"):
        tables = model.lm.base_model(ids[None], use_cache=False, output_attentions=True).attentions
    place = torch.arange(len(ids), device=ids.device)
    back = place[:, None] - place
    for (p,) in tables:  # [H, T, T]
        numbers = [torch.special.entr(p).sum(-1), p.amax(-1), top_p_rank(p, MASS).to(p), p[..., 0]]
        numbers += [(p * (back < WINDOW)).sum(-1), (p * back).sum(-1)]
        numbers_by_layer.append(torch.stack([number.mean(-1) for number in numbers], -1))
    assert len(CORE) == numbers_by_layer[0].shape[-1]
    return torch.stack(numbers_by_layer).double().cpu().numpy()

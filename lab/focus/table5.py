"""Does fine-tuning with groups beat fine-tuning with full attention? Focus, table 5, with the controls it lacks."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from analysis.claims import Claim, Comparison
from analysis.studies.stored.comparisons import (
    difference,
    holm_corrected,
    interval_caveat,
    multiplicity_note,
    scope_of_claim,
)
from analysis.studies.stored.measured import DENSE, KERNELS, dense_of, hard_arms, window_arm
from analysis.studies.stored.panels import of_rows, panel, paper_lines, presented, printed
from analysis.studies.stored.runner import Setting, Study
from analysis.studies.stored.trained import (
    PhaseTrainer,
    Read,
    Training,
    by_seed,
    chance_arms,
    phase_2,
    plain,
    sample,
)
from analysis.studies.text.held_out import domains, held_out_windows, ids_hash, make_folder
from analysis.training.settings import RouterTraining
from lab.harness.pairs import equal_pairs_window

NONE = "not judged against"  # where there are too few texts
ARMS = {  # what the base is fine-tuned with -> how the training reads
    "full attention": "alone",  # a window as long as the text
    "Focus, soft": "soft",
    "Focus, hard": "hard",
    "random groups": "drawn",
    "window of equal pairs": "alone",
}
AGAINST = {
    "against_full": "full attention",
    "against_random": "random groups",
    "against_window": "window of equal pairs",
}
PAPER = {"PG-19": "PG-19 (books)", "WikiText-103": "WikiText-103 (Wikipedia)", "OpenWebText": "OpenWebText (web)"}
SEEN = "The bundled model was pretrained on texts of these kinds, so there is less to learn than on a new domain."


def measure(at: Setting) -> dict:
    """Copies of the model fine-tuned with full attention, Focus (soft and hard), random groups and a window of equal
    pairs, on each domain, held against each other on texts held out.

    A corpus with the folders `books`, `python`, `wikitext2` has three domains, any other is one; `rows` of the sizes
    names some of them.
    `rows`: per domain and arm `domain arm loss perplexity before pairs_share largest_share train gap gap_before`,
    losses in nats; `before` and `gap_before` of the base model read the same way, `gap` held out minus trained on;
    `against_full`, `against_random`, `against_window`, `learned` (fine-tuned minus before), with `_low` and `_high`,
    paired. Errors: BadSetting, BadText.
    """
    sizes, plan = at.sizes, at.sizes.plan()
    texts = domains(sizes.corpus, sizes.rows, at.context)
    found, told, plans = [], {}, {}
    for index, (name, (train, held_out)) in enumerate(texts.items()):
        place = at.work / name
        make_folder(place)
        ids, units = held_out_windows(at.lm, held_out, sizes.length, sizes.windows)
        more = {"documents": train, "windows": ids, "units": units, "work": place}
        more["context"] = at.context.within(index / len(texts), 1 / len(texts), name)
        trainer = PhaseTrainer.of(at, n_sink=plan.n_sink, expected=9 * sizes.seeds, **more)
        seeds = [replace(plan, seed=seed) for seed in sizes.every_seed]
        parts = [_trained(trainer, one, sizes) for one in seeds]
        found += [_row(name, arm, parts, sizes.length, units) for arm in ARMS]
        plans = parts[0]["plans"]
        told[name] = {"training_text": trainer.texts, "text": ids_hash(ids), "documents": [len(train), len(held_out)]}
        told[name] |= {"units": len(np.unique(units))}
    return {
        "rows": found,
        "window": plan.window,
        "n_sink": plan.n_sink,
        "windows": len(ids),
        "plans": plain(plans),
        "protocol": {
            "tokens": sizes.windows * sizes.length,
            "window": sizes.length,
            "kernel": KERNELS,
            "steps": sizes.steps,
            "seeds": sizes.seeds,
            "rate": sizes.rate,
            "base_rate": sizes.base_rate,
            "domains": told,
            "unit": "documents",
            "units": min(one["units"] for one in told.values()),
            "corpus": f"{Path(sizes.corpus).name}: {', '.join(texts)}",
        },
    }


def shown(numbers: dict) -> dict:
    """How the study is told and drawn."""
    rows, seen = numbers["rows"], [SEEN] if numbers["protocol"]["model"] == "demo" else []
    said = sentence(rows, numbers["protocol"].get("seeds", 1))
    return presented("finetuning", said, panels(rows), interval_caveat(numbers["protocol"]), *seen)


def _trained(trainer: PhaseTrainer, plan: RouterTraining, sizes: Training) -> dict:
    """All arms of one domain trained from one seed: `tuned` and `first`, of the fine-tuned copies and of the base read
    the same way, arm -> where -> what it read; `literal`, arm -> held out with literal groups, if it has groups; the
    `plans` of the trainings."""
    length, window = trainer.windows.shape[1], plan.window
    router, seen = trainer.router(sizes.named("phase 1", plan), plan), trainer.sample(sizes.windows)
    chance = chance_arms(router, plan)
    arms = [DENSE, *hard_arms(router, window), *chance]
    before = trainer.measure(router, arms)
    wide = equal_pairs_window(before["trained"].pairs, length, trainer.n_sink)
    alone = window_arm(wide)
    before = {"held out": before | trainer.measure(router, [alone])}
    before["trained on"] = trainer.measure(router, [*arms, alone], seen)
    read_with = {"full attention": [DENSE], "random groups": chance, "window of equal pairs": [alone]}
    windows = {"full attention": length, "window of equal pairs": wide}
    tuned, first, literal, plans = {}, {}, {}, {"router": plan}
    for arm, reading in ARMS.items():
        plans[arm], start = phase_2(plan, router, reading, windows.get(arm))
        read = trainer.tuned(
            sizes.named(arm, plan),
            plans[arm],
            start,
            lambda made, arm=arm: read_with.get(arm) or hard_arms(made, window),
            seen,
        )
        names = [one.name for one in read_with.get(arm, [])] or ["trained"]
        tuned[arm], first[arm] = (
            {where: Read.pool([reads[one] for one in names]) for where, reads in found.items()}
            for found in (read, before)
        )
        literal[arm] = read["held out"].get("trained, literal")
    return {"tuned": tuned, "first": first, "literal": literal, "plans": plans}


def _row(domain: str, arm: str, parts: list[dict], length: int, documents: np.ndarray) -> dict:
    """One arm on a domain, held against the others and against the base read the same way; a part for every seed."""

    def of(kind: str, where: str, name: str = arm) -> list[Read]:
        return [part[kind][name][where] for part in parts]

    mine, before = of("tuned", "held out"), of("first", "held out")
    now, then, learned, knew = map(Read.pool, (mine, before, of("tuned", "trained on"), of("first", "trained on")))
    literal = [part["literal"][arm] for part in parts]
    grouped = literal[0] is not None
    row = {
        "domain": domain,
        "arm": arm,
        "loss": now.loss,
        "perplexity": now.perplexity,
        "before": then.perplexity,
        "train": learned.loss,
        "gap": now.loss - learned.loss,
        "gap_before": then.loss - knew.loss,
        "pairs_share": now.pairs / (length * (length + 1) // 2),
        "largest_share": max(share for one in mine for share in one.shares) if grouped else None,
        "perplexity_literal": Read.pool(literal).perplexity if grouped else None,
    }
    row |= difference("learned", by_seed(mine), by_seed(before), documents)
    for key, other in AGAINST.items():
        if other != arm:
            row |= difference(key, by_seed(mine), by_seed(of("tuned", "held out", other)), documents)
    return row


def panels(rows: list[dict]) -> list[dict]:
    """Small multiples over the domains, and the paper's three data sets beside."""
    domains = list(dict.fromkeys(row["domain"] for row in rows))
    made = []
    for key, (title, label, arms) in {
        "perplexity": ("Perplexity after fine-tuning", "perplexity, held out", list(ARMS)),
        "against_full": ("Loss above full attention", "nats per token", list(ARMS)[1:]),
        "learned": ("What fine-tuning changes", "nats per token", list(ARMS)),
        "gap": ("Held out minus trained on", "nats per token", list(ARMS)),
    }.items():
        lines = [of_rows(arm, [row for row in rows if row["arm"] == arm], key) for arm in arms]
        made.append(panel(title, "domain", "domain", domains, label, lines))
    names = ("Full FT", "Focus FT")
    lines = paper_lines({name: [printed("section 3.4", row, name) for row in PAPER.values()] for name in names})
    return [*made, panel("Section 3.4: GPT-2 124M", "domain", "data set", list(PAPER), "perplexity", lines)]


def sentence(rows: list[dict], seeds: int) -> str:
    """What Focus' fine-tuning is worth against full attention and against its controls, whichever way it came out."""
    said = []
    focus = holm_corrected([row for row in rows if row["arm"].startswith("Focus")], *AGAINST)
    for row in focus:
        told = [Claim(Comparison.of(row, key, versus=other)).text() for key, other in AGAINST.items()]
        said.append(f"{row['domain']}, {row['arm']}: {', '.join(told)}")
    return f"{'. '.join(said)}.{multiplicity_note(focus, *AGAINST)}{scope_of_claim(seeds)}"


def part(at: Setting, numbers: dict) -> dict:
    """The model as it is, read densely on the held-out windows of every domain; what is fine-tuned is not kept."""
    rows = []
    for name, (_, held_out) in domains(at.sizes.corpus, at.sizes.rows, at.context).items():
        ids, _ = held_out_windows(at.lm, held_out, at.sizes.length, at.sizes.windows)
        before = float(np.exp(dense_of(at.lm, ids, at.context).means.mean()))
        rows.append({"domain": name, "arm": "full attention", "before": before})
    return {"rows": rows}


finetuning = Study("finetuning", __doc__, Training, measure, shown, sample, part=part)

"""Does fine-tuning with groups beat fine-tuning with full attention? Focus, table 5, with the controls it lacks."""

from pathlib import Path

import numpy as np

from analysis.studies.stored.measured import DENSE, KERNELS, drawn_arms, hard_arms, window_arm
from analysis.studies.stored.panels import (
    difference,
    how_sure,
    judged,
    nats,
    of_rows,
    of_whom,
    panel,
    paper_lines,
    presented,
    printed,
)
from analysis.studies.stored.recovery import equal_pairs_window
from analysis.studies.stored.runner import Setting, Study
from analysis.studies.stored.trained import PhaseTrainer, Read, Training, phase_2, plain, sample
from analysis.studies.text.held_out import domains, held_out_windows, ids_hash, make_folder
from analysis.training.settings import RouterTraining

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
        trainer = PhaseTrainer.of(at, n_sink=plan.n_sink, expected=9, **more)
        some, plans = _domain(trainer, name, plan, sizes.windows)
        found += some
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
    return presented("finetuning", sentence(rows), panels(rows), how_sure(numbers["protocol"]), *seen)


def _domain(trainer: PhaseTrainer, name: str, plan: RouterTraining, count: int) -> tuple[list[dict], dict]:
    """The rows of one domain, and the plans of its trainings."""
    length, window = trainer.windows.shape[1], plan.window
    router, seen = trainer.router("phase 1", plan), trainer.sample(count)
    chance = drawn_arms(router, window, plan.seed)
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
            arm, plans[arm], start, lambda made, arm=arm: read_with.get(arm) or hard_arms(made, window), seen
        )
        names = [one.name for one in read_with.get(arm, [])] or ["trained"]
        tuned[arm], first[arm] = (
            {where: Read.pool([reads[one] for one in names]) for where, reads in found.items()}
            for found in (read, before)
        )
        literal[arm] = read["held out"].get("trained, literal")
    return [_row(name, arm, tuned, first[arm], literal[arm], length, trainer.units) for arm in ARMS], plans


def _row(
    domain: str, arm: str, tuned: dict, old: dict, literal: Read | None, length: int, documents: np.ndarray
) -> dict:
    """One arm on a domain, held against the others that were `tuned` and against the base read the same way, `old`."""
    mine, before = tuned[arm]["held out"], old["held out"]
    row = {
        "domain": domain,
        "arm": arm,
        "loss": mine.loss,
        "perplexity": mine.perplexity,
        "before": before.perplexity,
        "train": tuned[arm]["trained on"].loss,
        "gap": mine.loss - tuned[arm]["trained on"].loss,
        "gap_before": before.loss - old["trained on"].loss,
        "pairs_share": mine.pairs / (length * (length + 1) // 2),
        "largest_share": max(mine.shares) if literal else None,
        "perplexity_literal": literal.perplexity if literal else None,
    }
    row |= difference("learned", mine.means, before.means, documents)
    for key, other in AGAINST.items():
        if other != arm:
            row |= difference(key, mine.means, tuned[other]["held out"].means, documents)
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


def sentence(rows: list[dict]) -> str:
    """What Focus' fine-tuning is worth against full attention and against its controls, whichever way it came out."""
    word, said = {-1: "better than", 0: "not told apart from", 1: "worse than"}, []
    for row in rows:
        if row["arm"].startswith("Focus"):
            told = [f"{judged(row, key, word, NONE)} {other} ({nats(row, key)})" for key, other in AGAINST.items()]
            said.append(f"{row['domain']}, {row['arm']}: {', '.join(told)}")
    return f"{'. '.join(said)}.{of_whom(1)}"


finetuning = Study("finetuning", __doc__, Training, measure, shown, sample)

"""Does fine-tuning with groups beat fine-tuning with full attention? Focus, table 5, with the controls it lacks."""

from collections.abc import Callable
from pathlib import Path

from analysis.groups.router import FocusRouter
from analysis.studies.stored.measured import DENSE, KERNELS, READINGS, Arm, drawn_arm, trained_arm, window_arm
from analysis.studies.stored.panels import column, decided, difference, how_sure, nats, of_rows, panel, printed, series
from analysis.studies.stored.recovery import equal_pairs_window
from analysis.studies.stored.runner import Setting, Study
from analysis.studies.stored.trained import PhaseTrainer, Read, Training, phase_2, plain, sample
from analysis.studies.text.domains import domains
from analysis.studies.text.held_out import held_out_windows, ids_hash, make_folder
from analysis.training.settings import RouterTraining

SEEDS = 3  # of random tokens, where they are read
ARMS = {  # what the base is fine-tuned with -> how the training reads
    "full attention": "alone",  # a window as long as the text
    "Focus, soft": "soft",
    "Focus, hard": "hard",
    "random groups": "drawn",
    "window of equal pairs": "alone",
}
SHOWN = ("trained", "trained, literal")  # readings of the groups
PAPER = {"PG-19": "PG-19 (books)", "WikiText-103": "WikiText-103 (Wikipedia)", "OpenWebText": "OpenWebText (web)"}
READ_AS = (
    "Every arm starts from the same base model and trains all its parameters on the same sequences in the same order, "
    "at the same rate; the state after the last step counts. Focus starts with a router that phase 1 trained on the "
    "domain, the base frozen. Full attention is read in full, Focus with hard causal groups, random groups are drawn "
    "anew for every text, in training and when read."
)
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
        ids = held_out_windows(at.lm, held_out, sizes.length, sizes.windows)
        more = {"documents": train, "windows": ids, "work": place}
        more["context"] = at.context.within(index / len(texts), 1 / len(texts), name)
        trainer = PhaseTrainer.of(at, plan.n_sink, 9, **more)
        some, plans = _domain(trainer, name, plan, sizes.windows)
        found += some
        told[name] = {"training_text": trainer.texts, "text": ids_hash(ids), "documents": [len(train), len(held_out)]}
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
            "corpus": f"{Path(sizes.corpus).name}: {', '.join(texts)}",
        },
    }


def shown(numbers: dict) -> dict:
    """How the study is told and drawn."""
    rows, model = numbers["rows"], numbers["protocol"]["model"]
    return {
        "sentence": sentence(rows),
        "columns": columns(),
        "panels": panels(rows),
        "notes": [READ_AS, how_sure(numbers["windows"]), *([SEEN] if model == "demo" else [])],
    }


def _domain(trainer: PhaseTrainer, name: str, plan: RouterTraining, windows: int) -> tuple[list[dict], dict]:
    """The rows of one domain, and the plans of its trainings."""
    length = trainer.windows.shape[1]
    router = trainer.router("phase 1", plan)
    seen = trainer.sample(windows)
    groups = [trained_arm(one, router, plan.window) for one in SHOWN]
    chance = [drawn_arm(router, plan.window, plan.seed + more) for more in range(SEEDS)]
    before = trainer.measure(router, [DENSE, *groups, *chance])
    wide = equal_pairs_window(before["trained"].pairs, length, trainer.n_sink)
    arms = [DENSE, *groups, *chance, window_arm(wide)]
    before = {"held out": before | trainer.measure(router, [window_arm(wide)])}
    before["trained on"] = trainer.measure(router, arms, seen)
    found, plans = {}, {"router": plan}
    for arm, reading in ARMS.items():
        own = {"full attention": length, "window of equal pairs": wide}.get(arm)
        plans[arm], start = phase_2(plan, router, reading, own)
        found[arm] = trainer.tuned(arm, plans[arm], start, _read_with(arm, plan, wide), seen)
    tuned = {arm: {where: _pooled(arm, reads, wide) for where, reads in one.items()} for arm, one in found.items()}
    first = {arm: {where: _pooled(arm, reads, wide) for where, reads in before.items()} for arm in ARMS}
    rows = []
    for arm in ARMS:
        mine, old = tuned[arm], first[arm]
        row = {"domain": name, "arm": arm, "loss": mine["held out"].loss, "perplexity": mine["held out"].perplexity}
        row |= {"before": old["held out"].perplexity, "train": mine["trained on"].loss}
        for key, reads in (("gap", mine), ("gap_before", old)):
            row[key] = reads["held out"].loss - reads["trained on"].loss
        row["pairs_share"] = mine["held out"].pairs / (length * (length + 1) // 2)
        row["largest_share"] = max(mine["held out"].shares) if arm.startswith("Focus") else None
        literal = found[arm]["held out"].get(SHOWN[1])
        row["perplexity_literal"] = literal.perplexity if literal else None
        row |= difference("learned", mine["held out"].means, old["held out"].means)
        for key, other in AGAINST.items():
            if other != arm:
                row |= difference(key, mine["held out"].means, tuned[other]["held out"].means)
        rows.append(row)
    return rows, plans


AGAINST = {
    "against_full": "full attention",
    "against_random": "random groups",
    "against_window": "window of equal pairs",
}


def _read_with(arm: str, plan: RouterTraining, wide: int) -> Callable[[FocusRouter], list[Arm]]:
    """How a fine-tuned model is read: as it was trained, groups hard."""

    def arms(router: FocusRouter) -> list[Arm]:
        if arm.startswith("Focus"):
            return [Arm(one, {"window": plan.window, **READINGS[one]}, router) for one in SHOWN]
        if arm == "random groups":
            return [drawn_arm(router, plan.window, plan.seed + more) for more in range(SEEDS)]
        return [DENSE if arm == "full attention" else window_arm(wide)]

    return arms


def _pooled(arm: str, reads: dict[str, Read], wide: int) -> Read:
    """What an arm is judged by, of all that was read."""
    if arm == "random groups":
        return Read.pool([read for name, read in reads.items() if name.startswith("random tokens")])
    return reads[{"full attention": "dense", "window of equal pairs": f"window {wide}"}.get(arm, "trained")]


def columns() -> list[dict]:
    """The columns of the rows, for a page."""
    return [
        *(column("domain", "domain"), column("arm", "fine-tuned with"), column("perplexity", "perplexity, held out")),
        *(column("before", "perplexity before"), column("perplexity_literal", "perplexity, literal groups")),
        *(column(key, f"above {other}", "nats per token") for key, other in AGAINST.items()),
        column("learned", "change by fine-tuning", "nats per token"),
        column("gap", "held out minus trained on", "nats per token"),
        column("gap_before", "the same before", "nats per token"),
        *(column("pairs_share", "pairs read"), column("largest_share", "largest group's share, worst layer")),
    ]


def panels(rows: list[dict]) -> list[dict]:
    """Small multiples over the domains, and the paper's three data sets beside."""
    names = list(dict.fromkeys(row["domain"] for row in rows))
    made = []
    for key, (title, label, arms) in {
        "perplexity": ("Perplexity after fine-tuning", "perplexity, held out", list(ARMS)),
        "against_full": ("Loss above full attention", "nats per token", list(ARMS)[1:]),
        "learned": ("What fine-tuning changes", "nats per token", list(ARMS)),
        "gap": ("Held out minus trained on", "nats per token", list(ARMS)),
    }.items():
        lines = [of_rows(arm, [row for row in rows if row["arm"] == arm], key) for arm in arms]
        made.append(panel(title, "domain", "domain", names, label, lines))
    lines = [
        series(name, [printed("section 3.4", row, name) for row in PAPER.values()], paper=True)
        for name in ("Full FT", "Focus FT")
    ]
    return [*made, panel("Section 3.4: GPT-2 124M", "domain", "data set", list(PAPER), "perplexity", lines)]


def sentence(rows: list[dict]) -> str:
    """What Focus' fine-tuning is worth against full attention and against its controls, whichever way it came out."""
    word, said = {-1: "better than", 0: "not told apart from", 1: "worse than"}, []
    for row in rows:
        if row["arm"].startswith("Focus"):
            told = [f"{word[decided(row, key)]} {other} ({nats(row, key)})" for key, other in AGAINST.items()]
            said.append(f"{row['domain']}, {row['arm']}: {', '.join(told)}")
    return f"{'. '.join(said)}."


finetuning = Study("finetuning", __doc__, Training, measure, shown, sample)

"""Does fine-tuning with groups beat fine-tuning with full attention? Focus, table 5, with the controls it lacks."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from analysis.studies.stored.comparisons import difference, interval_caveat
from analysis.studies.stored.measured import DENSE, KERNELS, dense_of, hard_arms, window_arm
from analysis.studies.stored.panels import of_rows, panel, paper_lines, presented, printed
from analysis.studies.stored.runner import Setting, Study
from analysis.studies.stored.trained import PhaseTrainer, Read, Training, by_seed, chance_arms, phase_2, plain, sample
from analysis.studies.text.held_out import domains, held_out_windows, ids_hash, make_folder
from analysis.training.settings import RouterTraining
from lab.harness.pairs import equal_pairs_window, pairs_share
from lab.harness.telling import concluded

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


def measure(run: Setting) -> dict:
    """Copies of the model fine-tuned with full attention, Focus (soft and hard), random groups and a window of equal
    pairs, on each domain, held against each other and against the base read the same way, on texts held out. A corpus
    with the folders `books`, `python`, `wikitext2` has three domains, any other is one. Errors: BadSetting, BadText."""
    sizes, plan = run.sizes, run.sizes.plan()
    texts = domains(sizes.corpus, sizes.rows, run.context)
    rows, about, plans = [], {}, {}
    for index, (domain, (train, held_out)) in enumerate(texts.items()):
        place = run.work / domain
        make_folder(place)
        ids, units = held_out_windows(run.lm, held_out, sizes.length, sizes.windows)
        texts_of_domain = {"documents": train, "windows": ids, "units": units, "work": place}
        texts_of_domain["context"] = run.context.within(index / len(texts), 1 / len(texts), domain)
        trainer = PhaseTrainer.of(run, n_sink=plan.n_sink, expected=9 * sizes.seeds, **texts_of_domain)
        trainings = [_train(trainer, replace(plan, seed=seed), sizes) for seed in sizes.every_seed]
        plans = trainings[0]["plans"]
        for arm in ARMS:
            tuned, base, seen, base_seen, literal = (
                [training[kind][arm] for training in trainings]
                for kind in ("tuned", "base", "tuned on", "base on", "literal")
            )
            now = Read.pool(tuned)
            row = {
                "domain": domain,
                "arm": arm,
                "loss": now.loss,
                "perplexity": now.perplexity,
                "before": Read.pool(base).perplexity,
                "train": Read.pool(seen).loss,
                "gap": now.loss - Read.pool(seen).loss,
                "gap_before": Read.pool(base).loss - Read.pool(base_seen).loss,
                "pairs_share": pairs_share(now.pairs, sizes.length),
                "largest_share": None,
                "perplexity_literal": None,
            }
            if literal[0] is not None:  # it has groups
                row["largest_share"] = max(share for read in tuned for share in read.shares)
                row["perplexity_literal"] = Read.pool(literal).perplexity
            row |= difference("learned", by_seed(tuned), by_seed(base), units)
            for key, control in AGAINST.items():
                if control != arm:
                    others = [training["tuned"][control] for training in trainings]
                    row |= difference(key, by_seed(tuned), by_seed(others), units)
            rows.append(row)
        about[domain] = {"training_text": trainer.texts, "text": ids_hash(ids)}
        about[domain] |= {"documents": [len(train), len(held_out)], "units": len(np.unique(units))}
    return {
        "rows": rows,
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
            "domains": about,
            "unit": "documents",
            "units": min(one["units"] for one in about.values()),
            "corpus": f"{Path(sizes.corpus).name}: {', '.join(texts)}",
        },
    }


def _train(trainer: PhaseTrainer, plan: RouterTraining, sizes: Training) -> dict[str, dict]:
    """All arms of one domain trained from one seed: what each reads of the held-out windows, and `on` those it was
    trained on, `tuned` and as the `base` reads the same way; `literal` with literal groups; the `plans`."""
    length, window = trainer.windows.shape[1], plan.window
    router, seen = trainer.router(sizes.named("phase 1", plan), plan), trainer.sample(sizes.windows)
    random = chance_arms(router, plan)
    arms = [DENSE, *hard_arms(router, window), *random]
    before = trainer.measure(router, arms)
    wide = equal_pairs_window(before["trained"].pairs, length, trainer.n_sink)
    alone = window_arm(wide)
    before |= trainer.measure(router, [alone])
    before_on = trainer.measure(router, [*arms, alone], seen)
    read_with = {"full attention": [DENSE], "random groups": random, "window of equal pairs": [alone]}
    windows = {"full attention": length, "window of equal pairs": wide}
    found: dict[str, dict] = {kind: {} for kind in ("tuned", "base", "tuned on", "base on", "literal")}
    found["plans"] = {"router": plan}
    for arm, reading in ARMS.items():
        tuning, start = phase_2(plan, router, reading, windows.get(arm))
        found["plans"][arm] = tuning
        name = sizes.named(arm, plan)
        read = trainer.tuned(
            name, tuning, start, lambda own, arm=arm: read_with.get(arm) or hard_arms(own, window), seen
        )
        names = [one.name for one in read_with.get(arm, [])] or ["trained"]
        reads = {"tuned": read["held out"], "base": before, "tuned on": read["trained on"], "base on": before_on}
        for kind, several in reads.items():
            found[kind][arm] = Read.pool([several[one] for one in names])
        found["literal"][arm] = read["held out"].get("trained, literal")
    return found


def part(run: Setting, numbers: dict) -> dict:
    """The model as it is, read densely on the held-out windows of every domain; what is fine-tuned is not kept."""
    rows = []
    for name, (_, held_out) in domains(run.sizes.corpus, run.sizes.rows, run.context).items():
        ids, _ = held_out_windows(run.lm, held_out, run.sizes.length, run.sizes.windows)
        before = float(np.exp(dense_of(run.lm, ids, run.context).means.mean()))
        rows.append({"domain": name, "arm": "full attention", "before": before})
    return {"rows": rows}


def shown(numbers: dict) -> dict:
    """What Focus' fine-tuning is worth against full attention and against its controls."""
    rows, protocol = numbers["rows"], numbers["protocol"]
    focus = [row for row in rows if row["arm"].startswith("Focus")]
    sentence = concluded("", focus, AGAINST, lambda row: f"{row['domain']}, {row['arm']}", protocol["seeds"])
    places, charts = list(dict.fromkeys(row["domain"] for row in rows)), []
    for key, title, label in (
        ("perplexity", "Perplexity after fine-tuning", "perplexity, held out"),
        ("against_full", "Loss above full attention", "nats per token"),
        ("learned", "What fine-tuning changes", "nats per token"),
        ("gap", "Held out minus trained on", "nats per token"),
    ):
        arms = [arm for arm in ARMS if AGAINST.get(key) != arm]
        lines = [of_rows(arm, [row for row in rows if row["arm"] == arm], key) for arm in arms]
        charts.append(panel(title, "domain", "domain", places, label, lines))
    paper = {name: [printed("section 3.4", row, name) for row in PAPER.values()] for name in ("Full FT", "Focus FT")}
    charts.append(panel("Section 3.4: GPT-2 124M", "domain", "data set", list(PAPER), "perplexity", paper_lines(paper)))
    seen = [SEEN] if protocol["model"] == "demo" else []
    return presented("finetuning", sentence, charts, interval_caveat(protocol), *seen)


finetuning = Study("finetuning", __doc__, Training, measure, shown, sample, part=part)

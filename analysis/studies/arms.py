"""Do the groups do anything? Trained groups beside windows, random groups and k-means on the same held-out windows."""

import json
import os
from pathlib import Path

import numpy as np
import pandas as pd

from analysis.corpus import read_folder, text_hash, token_stream
from analysis.errors import BadSetting, BadText
from analysis.groups.router import FocusRouter
from analysis.models import Model
from analysis.runs import Result
from analysis.studies.context import STREAMED, Context, check_seed, protocol
from analysis.studies.measured import DENSE, READINGS, Arm, Bench, drawn_arm, router_hash, trained_arm, window_arm
from analysis.studies.recovery import CHOICES, WINDOWS, choose_window, equal_pairs_window, summary
from analysis.studies.routers import router_for, stored_routers
from analysis.studies.train_router import spread_windows
from analysis.studies.untrained import untrained_routers

SEEDS = 3  # of random tokens and of random centroids
SAMPLE = 2  # first windows whose tokens are stored, so that a part can be computed again without the corpus


def arms(
    corpus: str = "",
    router: str = "k8-top1",
    model: str = "demo",
    length: int = 1024,
    windows: int = 64,
    window: int | None = None,
    n_sink: int | None = None,
    seed: int = 0,
    output: str | None = None,
    work: str | None = None,
    *,
    context: Context,
) -> Result:
    """Hold a trained router's groups against dense, windows, random tokens, random centroids and k-means.

    All arms read the same held-out `windows` of `length` tokens of `corpus` with the same window and sinks. `window`:
    by default the largest of 8, 16, 32, 64 whose perplexity alone is 3 % above dense; `n_sink`: by default the
    router's. What is measured is kept in `work`, and the study continues from there. The result goes to `output`
    (default `<state>/studies/groups-<router>.json`), with each window's loss in each arm.
    numbers: `sentence`, `claims`, `window`, `equal_pairs`, `rows` (one per arm: `loss perplexity recovery low high
    pairs pairs_share largest_share seed_losses`), `comparisons` (trained minus a control), `soft_minus_hard` and
    `literal_minus_causal` in nats, `notes`, `path`; tables: `arms`, `comparisons`. Errors: BadSetting, BadText.
    """
    check_seed(seed)
    lm = context.model(model)
    _check(lm, corpus, length, windows, window, n_sink)
    made = _trained(context, lm, router)
    n_sink = made.n_sink if n_sink is None else n_sink
    path = Path(output) if output else context.state_dirs(lm)[0] / "studies" / f"groups-{router}.json"
    work = _folders(path, Path(work) if work else path.parent / "work")
    context.progress(0.0, "reading the held-out texts")
    train, held_out = read_folder(Path(corpus))
    ids = _held_out(lm, held_out, length, windows)
    bench = Bench(lm, made, ids, n_sink, work, context)
    found = {arm.name: bench.measure(arm) for arm in (DENSE, *map(window_arm, WINDOWS))}
    alone = {one: found[f"window {one}"].means for one in CHOICES}
    chosen = window or choose_window(alone, found["dense"].means) or min(CHOICES)
    found |= {name: bench.measure(trained_arm(name, made, chosen)) for name in READINGS}
    equal = equal_pairs_window(found["trained"].mean_pairs, length, n_sink)
    seeds = [seed + more for more in range(SEEDS)]
    untrained = untrained_routers(context, lm, made, train, length, seeds, work)
    controls = [window_arm(chosen), window_arm(equal), *(drawn_arm(made, chosen, one) for one in seeds)]
    controls += [Arm(name, {"window": chosen}, fitted) for name, fitted in untrained.items()]
    found |= {arm.name: bench.measure(arm) for arm in controls if arm.name not in found}
    command = (
        f"python -m analysis study groups --corpus DIR --model {lm.name} --router {router} --windows-count {windows} "
        f"--length {length} --sinks {n_sink} --seed {seed}{f' --window {window}' if window else ''}"
    )
    about = protocol(
        "study groups", lm, bench.text, ids.size, window=length, seed=seed, kernel=STREAMED, router=router,
        router_hash=router_hash(made), corpus=f"{Path(corpus).name}, {len(held_out)} held-out documents",
        command=command,
    )  # fmt: skip
    numbers = {
        **summary(found, chosen, equal, made.K),
        "router": router,
        "n_sink": n_sink,
        "windows": len(ids),
        "length": length,
        "notes": _notes(made, train, len(ids), windows, chosen),
        "protocol": about,
    }
    losses = {name: [round(loss, 6) for loss in arm.means.tolist()] for name, arm in found.items()}
    sample = [" ".join(map(str, row)) for row in ids[:SAMPLE].tolist()]
    _write(path, numbers | {"losses": losses, "sample": sample})
    tables = {name: _table(numbers[key]) for name, key in {"arms": "rows", "comparisons": "comparisons"}.items()}
    return Result(numbers | {"path": str(path)}, tables)


def recompute(stored: dict, names: tuple[str, ...], *, context: Context) -> dict[str, list[float]]:
    """Mean losses of the first windows in some arms of a stored study, computed now; nothing is written.

    `stored`: the study's JSON; `names`: `dense`, `window N`, `random tokens SEED` and `READINGS`. They should equal
    the first entries of `stored["losses"]`.
    """
    lm = context.model(stored["protocol"]["model"])
    made, chosen = _trained(context, lm, stored["router"]), stored["window"]
    ids = np.array([row.split() for row in stored["sample"]], dtype=np.int64)
    bench = Bench(lm, made, ids, stored["n_sink"], None, context, expected=len(names))
    again = {}
    for name in names:
        kind, _, number = name.rpartition(" ")
        if kind == "window":
            arm = window_arm(int(number))
        elif kind == "random tokens":
            arm = drawn_arm(made, chosen, int(number))
        else:
            arm = DENSE if name == "dense" else trained_arm(name, made, chosen)
        again[name] = bench.measure(arm).means.tolist()
    return again


def _check(lm: Model, corpus: str, length: int, windows: int, window: int | None, n_sink: int | None) -> None:
    if not corpus:
        raise BadSetting("The study needs a corpus: name the folder of texts that the router was trained on.")
    for name, value, low, high in (
        ("A window of text", length, 16, lm.max_positions),
        ("The number of windows of text", windows, 2, 4096),
        ("The window that is always read", window, 1, length - 1),
        ("The number of sinks", n_sink, 0, 64),
    ):
        if value is not None and not low <= value <= high:
            raise BadSetting(f"{name} is {value:,} and must lie between {low} and {high:,}.")


def _trained(context: Context, lm: Model, name: str) -> FocusRouter:
    """The stored router of this name, refused when nobody trained it."""
    kinds = {facts["name"]: facts["kind"] for facts in stored_routers(context, lm)}
    if kinds.get(name) != "trained":
        raise BadSetting(
            f"The router {name[:40]!r} of {lm.name} is {kinds.get(name, 'not there')} and the study is about trained "
            f"ones: train it first, or name one of {', '.join(n for n in kinds if kinds[n] == 'trained') or 'none'}."
        )
    return router_for(context, lm, name)[0]


def _folders(path: Path, work: Path) -> Path:
    """Make the folders that are written to; returns `work`."""
    for folder in (path.parent, work):
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadSetting(f"{folder} cannot be a folder ({error.strerror}): name another one.") from error
    return work


def _held_out(lm: Model, documents: list[str], length: int, windows: int) -> np.ndarray:
    """Evenly spaced windows of the held-out documents, int64 [n, length]."""
    ids = token_stream(lm.tokenizer, documents)
    if len(ids) < 2 * length:
        raise BadText(
            f"The {len(documents)} held-out texts have {len(ids):,} tokens and two windows need {2 * length:,}: give "
            "more text."
        )
    return spread_windows(ids, length, windows).reshape(-1, length)


def _notes(router: FocusRouter, train: list[str], count: int, wanted: int, chosen: int) -> list[str]:
    said = []
    if router.about.get("corpus_hash") != text_hash("".join(text_hash(t) for t in train)):
        said.append("The router was trained on other texts than this folder's: whether it saw these is not known.")
    if count < wanted:
        said.append(f"The held-out texts give {count} windows, and {wanted} were asked for.")
    if router.window != chosen:
        said.append(f"The router was trained with a window of {router.window}, and every arm reads one of {chosen}.")
    return said


def _write(path: Path, stored: dict) -> None:
    """One line per key, put in place whole."""
    lines = ",\n".join(f" {json.dumps(key)}: {json.dumps(value, allow_nan=False)}" for key, value in stored.items())
    partial = path.with_name(f".{path.name}.{os.getpid()}.part")
    partial.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")
    os.replace(partial, path)


def _table(rows: list[dict]) -> pd.DataFrame:
    """The rows without their lists."""
    return pd.DataFrame(rows).drop(columns=["largest_share", "seed_losses"], errors="ignore")

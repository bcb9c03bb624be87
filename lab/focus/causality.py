"""Does the rule read the future, and what does that gain? Literal against causal membership, and the gate's forms."""

from dataclasses import replace

import numpy as np
import torch

from analysis.groups.gates import GATES, group_affinity
from analysis.groups.router import FocusRouter
from analysis.methods import METHODS
from analysis.methods.base import Method
from analysis.methods.focus import Focus
from analysis.metrics.intervals import Interval, over_units
from analysis.metrics.quality import same_top1
from analysis.models import Model
from analysis.seam.attention import apply
from analysis.statistics import attention_inputs
from analysis.studies.groups.routers import trained_router
from analysis.studies.stored.comparisons import compared, interval_caveat
from analysis.studies.stored.measured import DENSE, KERNELS, READINGS, Arm, Bench, always, router_hash, trained_arm
from analysis.studies.stored.panels import presented
from analysis.studies.stored.runner import Routed, Setting, Study
from analysis.studies.text.held_out import sample_windows
from analysis.training.mitigations import Learning
from lab.harness.telling import concluded

SAMPLE = 8  # first windows, on which gates, groups and logits are looked at
MOVED = 1e-4  # logits that move more than this saw what was changed
MEMBERSHIPS = ("causal", "literal")


def measure(run: Setting) -> dict:
    """A trained router with causal and with literal membership, hard and through every form of the gate, and hard with
    prefix membership, on the same held-out windows. The last half of some windows is replaced by other tokens: what
    moves before it has read the future. What is measured is shared with the study `groups`. Errors: BadSetting,
    BadText."""
    lm, sizes, ids = run.lm, run.sizes, run.windows
    router = trained_router(run.context, lm, sizes.router)
    window, n_sink = always(sizes, router)
    arms = {(None, "dense", None): DENSE, **_arms(router, window)}
    bench = Bench(lm, router, ids, n_sink, run.work, run.context, expected=len(arms) + 1)
    measured = {key: bench.measure(arm) for key, arm in arms.items()}
    rows, differences, some = [], [], ids[:SAMPLE]
    for index, ((gate, reading, membership), arm) in enumerate(arms.items()):
        run.context.progress((len(arms) + index / len(arms)) / bench.expected, f"{arm.name}, does it read the future")
        read = measured[gate, reading, membership].row(arm.name)
        row = {name: read[name] for name in ("arm", "loss", "perplexity", "pairs_share")}
        row |= {"gate": gate, "reading": reading, "membership": membership}
        method = Learning.build(arm.router, **arm.settings, n_sink=n_sink) if arm.router else METHODS["dense"]()
        rows.append(row | _gates(lm, method, some) | foresight(lm, method, some))
        if membership == "literal":
            causal, literal = (measured[gate, reading, rule].means for rule in MEMBERSHIPS)
            over, points = over_units(literal - causal, run.documents)
            about = {"reading": reading, "gate": gate, **over._asdict()}
            differences.append(about | {"points": points.tolist() if over.low is None else None})
    return {
        "rows": rows,
        "literal_minus_causal": differences,
        "group_agreement": group_agreement(router, attention_inputs(lm, list(some)), ids.shape[1]),
        "prediction_agreement": _same_predictions(lm, router, window, n_sink, some),
        "router": sizes.router,
        "trained_with": router.settings.gate,
        "window": window,
        "n_sink": n_sink,
        "windows": len(ids),
        "looked_at": len(some),
        "protocol": run.about(ids, kernel=KERNELS, router=sizes.router, router_hash=router_hash(router)),
    }


def sample(run: Setting, numbers: dict) -> dict[str, list[float]]:
    """Mean loss of two windows of the bundled samples in every arm."""
    router = trained_router(run.context, run.lm, numbers["router"])
    arms = _arms(router, numbers["window"]).values()
    ids = sample_windows(run.lm, numbers["protocol"]["window"])
    bench = Bench(run.lm, router, ids, numbers["n_sink"], None, run.context, expected=len(arms))
    return {arm.name: bench.measure(arm).means.tolist() for arm in arms}


def part(run: Setting, numbers: dict) -> dict:
    """Hard groups by the causal and by the literal rule on all held-out windows, and what the literal one gains."""
    router, rows, means = trained_router(run.context, run.lm, numbers["router"]), [], {}
    bench = Bench(run.lm, router, run.windows, numbers["n_sink"], None, run.context, expected=2)
    arms = _arms(router, numbers["window"])
    for rule in MEMBERSHIPS:
        arm = bench.measure(arms[None, "hard", rule])
        means[rule], row = arm.means, arm.row(rule)
        rows.append({"reading": "hard", "membership": rule, "loss": row["loss"], "perplexity": row["perplexity"]})
    over = over_units(means["literal"] - means["causal"], run.documents)[0]
    gained = [{"reading": "hard", "mean": over.mean, "low": over.low, "high": over.high}]
    return {"rows": rows, "literal_minus_causal": gained, "protocol": {"text": bench.text}}


def _arms(router: FocusRouter, window: int) -> dict[tuple, Arm]:
    """(gate, reading, membership) -> arm; a hard mask is the same for every form of the gate. Names as in `READINGS`
    where the arm is one of them, so that what the study `groups` kept is found."""
    names = {(s.get("reading", "hard"), s.get("membership", "causal")): name for name, s in READINGS.items()}
    arms = {}
    for reading, gate in (("hard", None), *(("soft", gate) for gate in GATES)):
        its_gate = gate in (None, router.settings.gate)
        for membership in MEMBERSHIPS:
            arm = trained_arm(names[reading, membership], router if its_gate else router.variant(gate=gate), window)
            arms[gate, reading, membership] = arm if its_gate else replace(arm, name=f"{arm.name}, {gate} gate")
    arms[None, "hard", "prefix"] = Arm("trained, prefix", {"window": window, "membership": "prefix"}, router)
    return arms


@torch.no_grad()
def _gates(lm: Model, method: Method, ids: np.ndarray) -> dict:
    """`smallest_gate` and `mean_gate` of the far pairs of windows [n, T]: a factor of the score, or for `log` and the
    hard mask of the weight; None for dense, and where no pair is far."""
    smallest, total, pairs = [], 0.0, 0
    if isinstance(method, Learning):
        for window in ids:
            method.seen.clear()
            with apply(lm, method, kernels=True):
                lm.lm.base_model(torch.as_tensor(window, device=lm.device)[None], use_cache=False)
            for _, groups in method.seen:
                gate = far_gates(method, groups[0])
                smallest += [float(gate.min())] if len(gate) else []
                total, pairs = total + float(gate.double().sum()), pairs + len(gate)
    return {"smallest_gate": min(smallest, default=None), "mean_gate": total / pairs if pairs else None}


def far_gates(method: Focus, groups: torch.Tensor) -> torch.Tensor:
    """The gates of all far pairs of tokens with memberships [T, K], [pairs]: beyond the window and the sinks."""
    place = torch.arange(len(groups), device=groups.device)
    far = (place[:, None] - place >= method.window) & (place >= method.n_sink)
    affinity = group_affinity(groups.float(), groups.float())[far]
    if method.reading == "hard":
        return (affinity > 0.5).float()
    if method.router.settings.gate == "log":
        return method.router.gate(torch.zeros_like(affinity), affinity).exp()
    return method.router.gate(torch.ones_like(affinity), affinity)


@torch.no_grad()
def foresight(lm: Model, method: Method | None, ids: np.ndarray) -> dict:
    """What other tokens in the second half of windows [n, T] (the next window's) do to the logits of the first.

    By the masked reference, which computes every query alike whatever stands elsewhere: `moved` largest change of a
    logit, `predictions_changed` share of likeliest next tokens, `reads_future` whether `moved` is above 1e-4.
    """
    half, moved, changed = ids.shape[1] // 2, 0.0, []
    other = ids.copy()
    other[:, half:] = np.roll(ids, 1, axis=0)[:, half:]
    with apply(lm, method):
        for pair in zip(ids, other, strict=True):
            logits = [_logits(lm, one)[:half] for one in pair]
            moved = max(moved, float((logits[0] - logits[1]).abs().max()))
            changed.append(float((~same_top1(*logits)).float().mean()))
    return {"moved": moved, "predictions_changed": float(np.mean(changed)), "reads_future": moved > MOVED}


def group_agreement(router: FocusRouter, inputs: list[torch.Tensor], length: int) -> list[float]:
    """Share of tokens whose best group is the same by the literal and by the causal rule, per layer; inputs L x
    [n T, d] of windows of `length` tokens."""
    agreed = []
    for layer, hidden in enumerate(inputs):
        literal = torch.cat([router.soft(layer, window).argmax(-1) for window in hidden.split(length)])
        agreed.append(float((literal == router.soft(layer, hidden, membership="causal").argmax(-1)).float().mean()))
    return agreed


@torch.no_grad()
def _same_predictions(lm: Model, router: FocusRouter, window: int, n_sink: int, ids: np.ndarray) -> float:
    """Share of tokens whose likeliest next token is the same with literal as with causal groups, both hard."""
    agreed = []
    for window_ids in ids:
        logits = []
        for membership in MEMBERSHIPS:
            with apply(lm, Focus.build(router, window=window, n_sink=n_sink, membership=membership), kernels=True):
                logits.append(_logits(lm, window_ids))
        agreed.append(float(same_top1(*logits).float().mean()))
    return float(np.mean(agreed))


def _logits(lm: Model, ids: np.ndarray) -> torch.Tensor:
    """Logits [T, V] of token ids [T]."""
    return lm.lm(torch.as_tensor(ids, device=lm.device)[None], use_cache=False).logits[0]


def shown(numbers: dict) -> dict:
    """What reads the future, what that is worth, and how far each gate closes."""
    rows = numbers["rows"]
    leaks = sorted({row["membership"] for row in rows if row["reads_future"] and row["membership"]})
    reads = {row["membership"]: f"{row['pairs_share']:.1%}" for row in rows if row["reading"] == "hard"}
    differences = []
    for row in numbers["literal_minus_causal"]:
        interval = Interval(*(row[name] for name in Interval._fields))
        gate = "hard" if row["reading"] == "hard" else f"{row['gate']} gate"
        differences.append({"gate": gate, "apart_points": row.get("points")} | compared("apart", interval))
    lead = (
        f"{' and '.join(leaks).capitalize() or 'No'} membership reads the future. With the literal groups of this "
        f"router, which read {reads['literal']} of the pairs when hard, the causal {reads['causal']}, the loss is: "
    )
    words = ("lower", "higher")
    told = concluded(lead, differences, {"apart": "with causal ones"}, "{gate}".format_map, words=words)
    soft = [row for row in rows if (row["reading"], row["membership"]) == ("soft", "causal")]
    gates = [f"{row['gate']} {row['smallest_gate']:.2g}" for row in soft if row["smallest_gate"] is not None]
    sentence = (
        f"{told} In the first {numbers['looked_at']} windows {np.mean(numbers['group_agreement']):.0%} of the tokens "
        f"are in the same group and {numbers['prediction_agreement']:.0%} of the likeliest next tokens are the same. "
        f"Smallest gate reached by a far pair there: {'; '.join(gates)}."
    )
    return presented("causality", sentence, None, interval_caveat(numbers["protocol"]))


TABLES = ("rows", "literal_minus_causal")
causality = Study("causality", __doc__, Routed, measure, shown, sample, "causality-{router}", TABLES, part=part)

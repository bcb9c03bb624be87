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
from analysis.studies.stored.comparisons import Row, compared, interval_caveat
from analysis.studies.stored.measured import DENSE, READINGS, Arm, trained_arm
from analysis.studies.stored.panels import presented
from analysis.studies.stored.runner import Setting
from analysis.training.mitigations import Learning
from lab.harness.routed import Routed
from lab.harness.telling import concluded

# First windows, on which gates, groups and logits are looked at.
SAMPLE = 8
# Logits that move more than this saw what was changed.
MOVED = 1e-4
MEMBERSHIPS = ("causal", "literal")
Form = tuple[str | None, str, str | None]  # gate, reading, membership


class Causality(Routed):
    """A trained router with causal and with literal membership, hard and through every form of the gate, and hard with
    prefix membership. The last half of some windows is replaced by other tokens: what moves before it has read the
    future."""

    file = "causality-{router}"
    tables = ("rows", "literal_minus_causal")

    def measure(self, run: Setting) -> dict:
        lm, ids, some = run.lm, run.windows, run.windows[:SAMPLE]
        router, window, bench = self.bench(run, 1)
        arms, rows, differences = arms_of(router, window), [], []
        bench.expected = len(arms) + 1
        measured = {key: bench.measure(arm) for key, arm in arms.items()}
        for index, ((gate, reading, membership), arm) in enumerate(arms.items()):
            run.context.progress((len(arms) + index / len(arms)) / bench.expected, f"{arm.name}: reads it the future?")
            level = measured[gate, reading, membership].row(arm.name)
            row = {name: level[name] for name in ("arm", "loss", "perplexity", "pairs_share")}
            row |= {"gate": gate, "reading": reading, "membership": membership}
            method = METHODS["dense"]()
            if arm.settings is not None:
                method = Learning.build(arm.router, **arm.settings, n_sink=bench.n_sink)
            rows.append(row | _gates(lm, method, some) | _foresight(lm, method, some))
            if membership == "literal":
                causal, literal = (measured[gate, reading, rule].means for rule in MEMBERSHIPS)
                over, points = over_units(literal - causal, run.documents)
                about = {"reading": reading, "gate": gate, **over._asdict()}
                differences.append(about | {"points": points.tolist() if over.low is None else None})
        return self.facts(run, router, window, bench.n_sink) | {
            "rows": rows,
            "literal_minus_causal": differences,
            "group_agreement": group_agreement(router, attention_inputs(lm, list(some)), ids.shape[1]),
            "prediction_agreement": _same_predictions(lm, router, window, bench.n_sink, some),
            "trained_with": router.settings.gate,
            "looked_at": len(some),
        }

    def sample(self, run: Setting, numbers: dict) -> dict:
        return self.sample_losses(run, lambda router, window: list(arms_of(router, window).values())[1:])

    @staticmethod
    def shown(numbers: dict) -> dict:
        rows, differences = numbers["rows"], []
        leaks = sorted({row["membership"] for row in rows if row["reads_future"] and row["membership"]})
        for row in numbers["literal_minus_causal"]:
            interval = Interval(*(row[name] for name in Interval._fields))
            gate = "hard" if row["reading"] == "hard" else f"{row['gate']} gate"
            differences.append({"gate": gate, "apart_points": row.get("points")} | compared("apart", interval))
        lead = f"{' and '.join(leaks).capitalize() or 'No'} membership reads the future. Loss with the literal groups "
        sentence = concluded(f"{lead}of this router, ", differences, {"apart": "with causal ones"}, "{gate}")
        sentence += f" In the first {numbers['looked_at']} windows {np.mean(numbers['group_agreement']):.0%} of the "
        sentence += f"tokens are in the same group and {numbers['prediction_agreement']:.0%} of the likeliest next "
        return presented("causality", f"{sentence}tokens are the same.", None, interval_caveat(numbers["protocol"]))


def arms_of(router: FocusRouter, window: int) -> dict[Form, Arm]:
    """(gate, reading, membership) -> arm; a hard mask is the same for every form of the gate. Names as in `READINGS`
    where the arm is one of them, so that what the study `groups` stored is found."""
    names = {(s.get("reading", "hard"), s.get("membership", "causal")): name for name, s in READINGS.items()}
    arms: dict[Form, Arm] = {(None, "dense", None): DENSE}
    for reading, gate in (("hard", None), *(("soft", gate) for gate in GATES)):
        its_gate = gate in (None, router.settings.gate)
        for membership in MEMBERSHIPS:
            arm = trained_arm(names[reading, membership], router if its_gate else router.variant(gate=gate), window)
            arms[gate, reading, membership] = arm if its_gate else replace(arm, name=f"{arm.name}, {gate} gate")
    arms[None, "hard", "prefix"] = Arm("trained, prefix", {"window": window, "membership": "prefix"}, router)
    return arms


@torch.no_grad()
def _gates(lm: Model, method: Method, ids: np.ndarray) -> Row:
    """`smallest_gate` and `mean_gate` of the far pairs of windows [n, T]: a factor of the score, or for `log` and the
    hard mask of the weight; None for dense, and where no pair is far."""
    smallest, total, pairs = [], 0.0, 0
    if isinstance(method, Learning):
        for window in ids:
            method.seen.clear()
            with apply(lm, method, kernels=True):
                lm.lm.base_model(torch.as_tensor(window, device=lm.device)[None], use_cache=False)
            for *_, groups in method.seen:
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
    router = method.router
    assert router is not None, "soft reading is through the gate of a router"
    if router.settings.gate == "log":
        return router.gate(torch.zeros_like(affinity), affinity).exp()
    return router.gate(torch.ones_like(affinity), affinity)


@torch.no_grad()
def _foresight(lm: Model, method: Method, ids: np.ndarray) -> Row:
    """What other tokens in the second half of windows [n, T] (the next window's) do to the logits of the first:
    `moved` largest change of a logit, `predictions_changed` share of likeliest next tokens, `reads_future`."""
    half, moved, changed = ids.shape[1] // 2, 0.0, []
    replaced = ids.copy()
    replaced[:, half:] = np.roll(ids, 1, axis=0)[:, half:]
    # By the masked reference, which computes every query alike whatever stands elsewhere.
    with apply(lm, method):
        for pair in zip(ids, replaced, strict=True):
            logits = [_logits(lm, window)[:half] for window in pair]
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
    for tokens in ids:
        logits = []
        for membership in MEMBERSHIPS:
            with apply(lm, Focus.build(router, window=window, n_sink=n_sink, membership=membership), kernels=True):
                logits.append(_logits(lm, tokens))
        agreed.append(float(same_top1(*logits).float().mean()))
    return float(np.mean(agreed))


def _logits(lm: Model, ids: np.ndarray) -> torch.Tensor:
    return lm.lm(torch.as_tensor(ids, device=lm.device)[None], use_cache=False).logits[0]  # [T, V]

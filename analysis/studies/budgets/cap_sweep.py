"""The smallest cap that changes no position of a text: perplexity against dense by position, cap after cap."""

from typing import Any

import pandas as pd

from ...answer import Worded, doc, record
from ...commands.budgets import CapSweep
from ...errors import BadSetting
from ...metrics.quality import BINS
from ...runs.caps import summary
from ..context import Context, protocol
from ..text.calibration import document_windows, halves, text_keys
from ..text.held_out import ids_hash
from .cap_rows import CAPS, KERNEL, check_caps, few_tokens, sweep, two_sides, units_of, without_bins
from .policies import Policy, facts
from .recipes import resolve


@record
class SweptCaps(Worded):
    """A policy under several caps, on texts that it was not calibrated on."""

    sweep: list[dict] = doc("one row per cap, see `sweep`")
    cap: int | None = doc("the smallest cap that passes; null where none does")
    tolerance: float = doc("what is allowed: a change of perplexity as a share, 0.01 is 1%, or in perplexity")
    tolerance_bin: float = doc("the same at the worst positions")
    judged: str = doc("what that is of: rise, change, perplexity")
    policy: dict = doc("facts of the policy")
    budgets: list[list[int]] = doc("[layer][head]: its budgets")
    window: int = doc("tokens of a window")
    windows: int = doc("windows that were read")
    rows: pd.DataFrame = doc("the sweep without its bins")
    bins: pd.DataFrame = doc("one row per cap and bin")


def cap_sweep(request: CapSweep, *, context: Context) -> SweptCaps:
    """Sweep the cap of a policy, stored or made by hand (see `recipes.resolve`), on other texts than its own: of a text
    whose first half calibrated it on the second. The cap is chosen on the first half of what is read and reported on
    the rest, by the limits of `runs.caps`. Errors: BadText, BadSetting for a text that calibrated the policy."""
    caps = check_caps(list(CAPS if request.caps is None else request.caps))
    allowed: dict[str, Any] = {"tolerance": request.tolerance, "tolerance_bin": request.tolerance_bin}
    allowed |= {"judged": request.judged}
    lm = context.model(request.model)
    policy = resolve(context, lm, request.policy, request.window)
    texts = unseen(context, policy, request.texts or [])
    windows, documents = document_windows(lm, texts, request.window, request.tokens, "text of the sweep")
    sides: dict[str, Any] = {"documents": units_of(documents), "report": two_sides(documents)}
    rows = sweep(context, lm, windows, policy.budgets, caps, **allowed, **sides)
    about = {"window": windows.shape[1], "seed": request.seed, "kernel": KERNEL, "windows": ids_hash(windows)}
    about |= {"unit": rows[0]["unit"], "bins": BINS}
    return SweptCaps(
        **summary(rows, request.judged),
        **allowed,
        policy=facts(policy),
        budgets=policy.budgets.tolist(),
        window=windows.shape[1],
        windows=len(windows),
        notes=few_tokens(rows),
        **without_bins(rows, "cap", "select", "report"),
        protocol=protocol("cap-sweep", lm, "+".join(text_keys(texts)), windows.size, **about),
    )


def unseen(context: Context, policy: Policy, keys: list[str]) -> list[tuple[str, str]]:
    """Texts (name, text) by their hashes, the second half of one whose first half calibrated the policy.

    Errors: BadSetting for a text that calibrated it whole, and for none.
    """
    if not keys:
        raise BadSetting("No text was named: a policy is measured on at least one.")
    texts = []
    for key in keys:
        name, text = context.text(key)
        texts.append((name, halves(text)[1] if policy.about.get("halves") == key else text))
        policy.refuse_seen(key, name)
    return texts

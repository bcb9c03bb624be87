"""The smallest cap that changes no position of a text: perplexity against dense by position, cap after cap."""

import pandas as pd

from ...answer import Worded, doc, record
from ...errors import BadSetting
from ...runs.caps import summary
from ..context import Context, check_seed, protocol
from ..text.calibration import document_windows, halves, text_keys
from ..text.held_out import ids_hash
from .cap_rows import BINS, two_sides, units_of
from .policies import Policy, facts
from .recipes import resolve
from .sweep import (
    CAPS,
    KERNEL,
    TOKENS,
    TOLERANCE,
    TOLERANCE_BIN,
    check_caps,
    few_tokens,
    sweep,
    sweep_tables,
)


@record
class CapSweep(Worded):
    """A policy under several caps, on texts that it was not calibrated on."""

    sweep: list[dict] = doc("one row per cap, see `sweep`")
    cap: int | None = doc("the smallest cap that passes; null where none does")
    tolerance: float = doc("change of perplexity that is allowed: 0.01 is 1%")
    tolerance_bin: float = doc("the same at the worst positions")
    policy: dict = doc("facts of the policy")
    budgets: list[list[int]] = doc("[layer][head]: its budgets")
    window: int = doc("tokens of a window")
    windows: int = doc("windows that were read")
    rows: pd.DataFrame = doc("the sweep without its bins")
    bins: pd.DataFrame = doc("one row per cap and bin")


def cap_sweep(
    model: str = "demo",
    texts: list[str] | None = None,
    policy: dict | str | None = None,
    caps: list[int] | None = None,
    tolerance: float = TOLERANCE,
    tolerance_bin: float = TOLERANCE_BIN,
    window: int | None = None,
    tokens: int = TOKENS,
    seed: int = 0,
    *,
    context: Context,
) -> CapSweep:
    """Sweep the cap of a policy, stored or made by hand (see `recipes.resolve`), on other texts than its own.

    Of a text whose first half calibrated the policy the second half is read. The cap is chosen on the first half of
    what is read and reported on the second, by the one-sided limits of `runs.caps`. Errors: BadSetting for a
    text that calibrated the policy, BadText.
    """
    check_seed(seed)
    caps = check_caps(list(CAPS if caps is None else caps), tolerance, tolerance_bin)
    lm = context.model(model)
    resolved = resolve(context, lm, policy, window)
    unseen_texts = unseen(context, resolved, texts or [])
    windows, documents = document_windows(lm, unseen_texts, window, tokens, "text of the sweep")
    sides = {"documents": units_of(documents), "report": two_sides(documents)}
    rows = sweep(context, lm, windows, resolved.budgets, caps, tolerance, tolerance_bin, **sides)
    about = protocol(
        "cap-sweep",
        lm,
        "+".join(text_keys(unseen_texts)),
        windows.size,
        window=windows.shape[1],
        seed=seed,
        kernel=KERNEL,
        windows=ids_hash(windows),
        unit=rows[0]["unit"],
        bins=BINS,
    )
    return CapSweep(
        **summary(rows),
        tolerance=tolerance,
        tolerance_bin=tolerance_bin,
        policy=facts(resolved),
        budgets=resolved.budgets.tolist(),
        window=windows.shape[1],
        windows=len(windows),
        notes=few_tokens(rows),
        **sweep_tables(rows),
        protocol=about,
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
        if policy.about.get("halves") == key:
            text = halves(text)[1]
        elif key in policy.about.get("texts", ()):
            raise BadSetting(
                f"{name} calibrated the policy {policy.name}, which must not be measured on it: choose another text."
            )
        texts.append((name, text))
    return texts

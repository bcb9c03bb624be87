"""The smallest cap that changes no position of a text: perplexity against dense by position, cap after cap."""

from analysis.errors import BadSetting
from analysis.runs import Result
from analysis.runs.caps import summary
from analysis.studies.budgets.cap_rows import BINS, two_sides, units_of
from analysis.studies.budgets.policies import Policy, facts
from analysis.studies.budgets.recipes import resolve
from analysis.studies.budgets.sweep import (
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
from analysis.studies.context import Context, check_seed, protocol
from analysis.studies.text.calibration import document_windows, halves, text_keys
from analysis.studies.text.held_out import ids_hash


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
) -> Result:
    """Sweep the cap of a policy, stored or made by hand (see `recipes.resolve`), on other texts than its own.

    Of a text whose first half calibrated the policy the second half is read. The cap is chosen on the first half of
    what is read and reported on the second, by the one-sided limits of `runs.caps`. numbers: `sweep` (see `sweep`),
    `cap` (the smallest that passes, None if none does), `sentence`, `tolerance`, `tolerance_bin`, `policy`,
    `budgets`, `window`, `windows`, `notes`; tables: `rows` (one per cap), `bins` (one per cap and bin). Errors:
    BadSetting for a text that calibrated the policy, BadText.
    """
    check_seed(seed)
    caps = check_caps(list(CAPS if caps is None else caps), tolerance, tolerance_bin)
    lm = context.model(model)
    made = resolve(context, lm, policy, window)
    given = unseen(context, made, texts or [])
    windows, documents = document_windows(lm, given, window, tokens, "text of the sweep")
    sides = {"documents": units_of(documents), "report": two_sides(documents)}
    rows = sweep(context, lm, windows, made.budgets, caps, tolerance, tolerance_bin, **sides)
    about = protocol(
        "cap-sweep",
        lm,
        "+".join(text_keys(given)),
        windows.size,
        window=windows.shape[1],
        seed=seed,
        kernel=KERNEL,
        windows=ids_hash(windows),
        unit=rows[0]["unit"],
        bins=BINS,
    )
    numbers = {
        **summary(rows),
        "tolerance": tolerance,
        "tolerance_bin": tolerance_bin,
        "policy": facts(made),
        "budgets": made.budgets.tolist(),
        "window": windows.shape[1],
        "windows": len(windows),
        "notes": few_tokens(rows),
    }
    return Result(numbers | {"protocol": about}, sweep_tables(rows))


def unseen(context: Context, policy: Policy, keys: list[str]) -> list[tuple[str, str]]:
    """Texts (name, text) by their hashes, the second half of one whose first half calibrated the policy.

    Errors: BadSetting for a text that calibrated it whole, and for none.
    """
    if not keys:
        raise BadSetting("No text was named: a policy is measured on at least one.")
    found = []
    for key in keys:
        name, text = context.text(key)
        if policy.about.get("halves") == key:
            text = halves(text)[1]
        elif key in policy.about.get("texts", ()):
            raise BadSetting(
                f"{name} calibrated the policy {policy.name}, which must not be measured on it: choose another text."
            )
        found.append((name, text))
    return found

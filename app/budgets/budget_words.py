"""Budgets in sentences: how many keys the heads need, where reading fewer breaks, how a policy was made."""

from collections.abc import Sequence

from analysis.claims import Comparison, number

# Change of perplexity at any stretch of positions that counts as none.
ALLOWED = 0.02


def share(value: float) -> str:
    """A share as a per cent, as short as it can be."""
    return f"{100 * value:.3g}%"


def signed(value: float) -> str:
    """A change of perplexity."""
    return number(value, "change")


def span(row: dict, ends: str = "") -> str:
    """A paired change with its interval; `ends` begins the names of its ends."""
    return Comparison.of(row, "difference", ends, unit="change").bracketed


def shared(row: dict) -> str:
    """Between which shares the reads per key-value head lie."""
    low, high = (row[f"reads_kv_{end}"] for end in ("least", "most"))
    return share(low) if low == high else f"{share(low)} to {share(high)}"


def positions(row: dict, named: bool = True) -> str:
    """The stretch of positions that changes most."""
    return f"{'positions ' * named}{row['worst_bin_first']:,} to {row['worst_bin_last'] - 1:,}"


def needs(table: dict, window: int, about: dict) -> str:
    """How many tokens hold most of a head's attention in the texts that calibrated it; `table`: columns layer, head,
    rank; `about`: facts of the policy."""
    ranks = table["rank"]
    least, most = (
        f"{table['layer'][cell]}.{table['head'][cell]} needs {ranks[cell]:,.0f}"
        for cell in (ranks.index(min(ranks)), ranks.index(max(ranks)))
    )
    if about.get("shared") == "ablation":
        return f"Tokens go where the loss needs them: {most}, {least}."
    return f"A head needs {sum(ranks) / len(ranks):,.0f} of {window:,} tokens on average: {most}, {least}."


def breaks(rows: Sequence[dict], chosen: float) -> str:
    """Down to which share of the pairs nothing is lost, then what the chosen share costs, and the smallest; `rows` from
    the largest share on."""
    free = []
    for row in rows:
        low = row["difference"] if row["low"] is None else row["low"]
        # Free where the interval of the change holds zero, or the change is printed as none.
        if low > 0 and abs(row["difference"]) >= 0.0005:
            break
        if row["share"] < 1:
            free.append(row)
    at_share = {row["share"]: row for row in rows}
    words = [f"Reading {share(free[-1]['share'])} costs nothing."] if free else []
    shares = {row["share"] for row in free}
    if chosen in at_share and chosen not in (*shares, rows[-1]["share"], 1.0):
        row = at_share[chosen]
        mean, worst = _short(row["difference"]), _short(row["worst_bin_difference"])
        words.append(f"{share(chosen)} costs {mean} ({worst} at worst).")
    if rows[-1]["share"] not in shares:
        words.append(f"{share(rows[-1]['share'])} costs {_short(rows[-1]['difference'])}.")
    return " ".join(words if free else ["Reading", *words])


def _short(change: float) -> str:
    """A cost with two digits."""
    return f"{100 * change:.2g}%".replace("-", "−")


def intervals(rows: Sequence[dict]) -> str:
    """The measured changes with their intervals, for a tooltip."""
    changes = ", ".join(f"{share(row['share'])}: {span(row)}" for row in rows if row["share"] < 1)
    return f"Change of perplexity against reading everything, by the share of the pairs that is read. {changes}."


def scope(numbers: dict) -> str:
    """What a measurement by shares has read."""
    windows = numbers["windows"]
    return f"this text, {windows:,} window{'s' * (windows > 1)} of {numbers['window']:,} tokens"


def made(about: dict) -> str:
    """How a policy was made, for the line below its name."""
    corpus, of_attention = about.get("corpus"), about.get("mass") and f"for {share(about['mass'])} of the attention"
    facts = [
        corpus if corpus == "uploaded" else corpus and f"calibrated on {corpus}",
        about.get("tokens") and f"{about['tokens']:,} tokens",
        about.get("window") and f"windows of {about['window']:,}",
        "shared out by the loss without a head" if about.get("shared") == "ablation" else of_attention,
        about.get("min_pos") and f"positions from {about['min_pos']:,} on",
    ]
    return " · ".join(fact for fact in facts if fact)


def measured_on(texts: dict[str, str], text: str, about: dict) -> str | None:
    """Why a policy cannot be measured on a text, or None; `about` its facts."""
    if text in about.get("texts", ()) and about.get("halves") != text:
        name = texts.get(text, "This text")
        return f"{name} calibrated this policy, which must not be measured on it: choose another text."
    return None

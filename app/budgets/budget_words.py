"""KV budgets in sentences: how many keys the heads need, where reading fewer breaks, how a policy was made."""

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


def needs(table: dict, about: dict) -> str:
    """How many keys hold most of a head's attention in the texts that calibrated it; `table`: columns layer, head,
    rank; `about`: facts of the policy."""
    ranks = table["rank"]
    least, most = (
        f"{ranks[cell]:,.0f} in head {table['head'][cell]} of layer {table['layer'][cell]}"
        for cell in (ranks.index(min(ranks)), ranks.index(max(ranks)))
    )
    if about.get("shared") == "ablation":
        return f"Keys are shared out by what is lost without a head, before the floor: {most} most, {least} least."
    mass = share(about["mass"]) if about.get("mass") else "Most"
    keys = f"{mass} of a head's attention lies on {sum(ranks) / len(ranks):,.0f} keys on average: on {least}, on {most}"
    made_on = _corpus(about)
    return f"{keys}{f' (in the texts that calibrated it: {made_on})' if made_on else ''}."


def breaks(rows: Sequence[dict]) -> str:
    """From which share of the reads on a stretch of positions breaks; `rows` from the largest share on."""
    first = next((row for row in rows if abs(row["worst_bin_difference"]) > ALLOWED), None)
    if first is None:
        least = share(rows[-1]["share"])
        return f"Down to {least} of the reads, every stretch of positions stays within {share(ALLOWED)} of dense."
    inside = [row for row in rows if abs(row["worst_bin_difference"]) <= ALLOWED]
    before = f"; with {share(inside[-1]['share'])} every stretch stays within {share(ALLOWED)}" if inside else ""
    return (
        f"With {share(first['share'])} of the reads, perplexity at {positions(first)} changes by "
        f"{signed(first['worst_bin_difference'])} and on average by {signed(first['difference'])}{before}."
    )


def made(about: dict) -> str:
    """How a policy was made, for the line below its name."""
    corpus, of_attention = _corpus(about), about.get("mass") and f"for {share(about['mass'])} of the attention"
    facts = [
        "uploaded" if about.get("corpus") == "uploaded" else corpus and f"calibrated on {corpus}",
        about.get("tokens") and f"{about['tokens']:,} tokens",
        about.get("window") and f"windows of {about['window']:,}",
        "shared out by the loss without a head" if about.get("shared") == "ablation" else of_attention,
        about.get("min_pos") and f"positions from {about['min_pos']:,} on",
    ]
    return " · ".join(fact for fact in facts if fact)


def _corpus(about: dict) -> str:
    """The name of the texts that calibrated a policy, where it is known."""
    return "" if about.get("corpus") in (None, "uploaded") else about["corpus"]


def measured_on(texts: dict[str, str], text: str, about: dict) -> str | None:
    """Why a policy cannot be measured on a text, or None; `about` its facts."""
    if text in about.get("texts", ()) and about.get("halves") != text:
        name = texts.get(text, "This text")
        return f"{name} calibrated this policy, which must not be measured on it: choose another text."
    return None

"""KV budgets in sentences: how many keys the heads need, where reading fewer breaks, how a policy was made."""

from collections.abc import Sequence

from analysis.claims import Comparison, number

ALLOWED = 0.02  # change of perplexity at any stretch of positions that counts as none


def share(value: float) -> str:
    """A share as a per cent, as short as it can be."""
    return f"{100 * value:.3g}%"


def signed(value: float) -> str:
    """A change of perplexity."""
    return number(value, "change")


def span(row: dict) -> str:
    """A paired change with its interval."""
    return Comparison.of(row, "difference", "", unit="change").bracketed


def shared(row: dict) -> str:
    """Between which shares the reads per key-value head lie."""
    low, high = (row[f"reads_kv_{end}"] for end in ("least", "most"))
    return share(low) if low == high else f"{share(low)} to {share(high)}"


def needs(table: dict, about: dict) -> str:
    """How many keys hold most of a head's attention in the texts that calibrated it; `table`: columns layer, head,
    rank; `about`: facts of the policy."""
    mass = about.get("mass")
    ranks = table["rank"]
    low, high = (ranks.index(pick(ranks)) for pick in (min, max))
    names = [f"head {table['head'][cell]} of layer {table['layer'][cell]}" for cell in (low, high)]
    if about.get("shared") == "ablation":
        return (
            f"Keys are shared out by what is lost without a head: most, {ranks[high]:,.0f}, belong to {names[1]}, and "
            f"fewest, {ranks[low]:,.0f}, to {names[0]}, before the floor."
        )
    lead = f"{share(mass)} of a head's attention" if mass else "Most of a head's attention"
    where = (
        "" if about.get("corpus") in (None, "uploaded") else f"In the texts that calibrated it ({about['corpus']}), "
    )
    lead = lead if not where else lead[:1].lower() + lead[1:]
    return (
        f"{where}{lead} lies on {sum(ranks) / len(ranks):,.0f} keys on average: on {ranks[low]:,.0f} in {names[0]}, on "
        f"{ranks[high]:,.0f} in {names[1]}."
    )


def positions(row: dict, named: bool = True) -> str:
    """The stretch of positions that changes most."""
    return f"{'positions ' * named}{row['worst_bin_first']:,} to {row['worst_bin_last'] - 1:,}"


def breaks(rows: Sequence[dict]) -> str:
    """From which share of the reads on a stretch of positions breaks; `rows` from the largest share on."""
    inside = [row for row in rows if abs(row["worst_bin_difference"]) <= ALLOWED]
    first = next((row for row in rows if abs(row["worst_bin_difference"]) > ALLOWED), None)
    if first is None:
        return (
            f"Down to {share(rows[-1]['share'])} of the reads, perplexity changes by at most {share(ALLOWED)} at every "
            "stretch of positions."
        )
    sentence = (
        f"With {share(first['share'])} of the reads, perplexity at {positions(first)} changes by "
        f"{signed(first['worst_bin_difference'])} and on average by {signed(first['difference'])}"
    )
    inside_words = f"; with {share(inside[-1]['share'])} every stretch stays within {share(ALLOWED)}" if inside else ""
    last = rows[-1]
    if last is not first:
        inside_words += (
            f". With {share(last['share'])} it changes by {signed(last['worst_bin_difference'])} at {positions(last)} "
            f"and by {signed(last['difference'])} on average"
        )
    return f"{sentence}{inside_words}."


def made(about: dict) -> str:
    """How a policy was made, for the line below its name."""
    facts = [f"calibrated on {about['corpus']}" if about.get("corpus") not in (None, "uploaded") else None]
    facts += ["uploaded"] if about.get("corpus") == "uploaded" else []
    facts += [f"{about['tokens']:,} tokens"] if about.get("tokens") else []
    facts += [f"windows of {about['window']:,}"] if about.get("window") else []
    if about.get("shared") == "ablation":
        facts.append("shared out by the loss without a head")
    elif about.get("mass"):
        facts.append(f"for {share(about['mass'])} of the attention")
    facts += [f"positions from {about['min_pos']:,} on"] if about.get("min_pos") else []
    return " · ".join(fact for fact in facts if fact)


def measured_on(texts: dict[str, str], text: str, about: dict) -> str | None:
    """Why a policy cannot be measured on a text, or None; `about` its facts."""
    if text in about.get("texts", ()) and about.get("halves") != text:
        return (
            f"{texts.get(text, 'This text')} calibrated this policy, which must not be measured on it: choose another "
            "text at the top of the page, or calibrate on other texts."
        )
    return None


def bins(table: dict) -> dict:
    """Columns of position bins as they are listed and downloaded."""
    names = ["first", "last", "n", "perplexity", "perplexity_low", "perplexity_high", "perplexity_dense"]
    return {name: table[name] for name in [*names, "difference", "low", "high"] if name in table}

"""How the equal-budget table is told and drawn: its panels and one sentence."""

from analysis.claims import signed
from analysis.studies.stored.panels import of_rows, panel

ROUNDING = 1e-6  # of reads that are the same


def panels(rows: list[dict]) -> list[dict]:
    """Figure 1 of Focus at equal budgets: quality, better up, against what the pairs read allow, better right; a panel
    for every domain and context, and what is fetched for the first domain."""
    charts = []
    places = list(dict.fromkeys((row["domain"], row["context"]) for row in rows))
    for domain, size in places:
        points = [row for row in rows if (row["domain"], row["context"]) == (domain, size)]
        charts.append(
            _panel(f"{domain}, {size:,} tokens", "perplexity against dense (up is better)", points, "difference")
            | {"up": "low"}
        )
    for size in dict.fromkeys(size for _, size in places):
        points = [row for row in rows if (row["domain"], row["context"]) == (places[0][0], size)]
        charts.append(_panel(f"Fetched, {places[0][0]}, {size:,} tokens", "keys and values fetched", points, "kv_read"))
    return charts


def _panel(title: str, y_label: str, rows: list[dict], key: str) -> dict:
    shares = sorted({row["share"] for row in rows}, reverse=True)
    labels = dict.fromkeys(row["label"] for row in rows)
    lines = [of_rows(label, _of(label, rows, shares), key) for label in labels]
    x = [round(1 / share, 2) for share in shares]
    return panel(title, "share", "attention at most so many times faster", x, y_label, lines, share=True)


def _of(label: str, rows: list[dict], shares: list[float]) -> list[dict]:
    """The rows of a method by share; what missed its budget is nowhere."""
    by_share = {row["share"]: row for row in rows if row["label"] == label and row["reached"]}
    return [by_share.get(share, {}) for share in shares]


def means(rows: list[dict]) -> list[dict]:
    """Per budget and method the mean change of perplexity over all domains and contexts, best first: `share label
    difference`; only methods that meet the budget in every one of them."""
    places, averages = {(row["domain"], row["context"]) for row in rows}, []
    for share in sorted({row["share"] for row in rows}):
        met = [row for row in rows if row["share"] == share and row["reached"]]
        for label in dict.fromkeys(row["label"] for row in met):
            values = [row["difference"] for row in met if row["label"] == label]
            if len(values) == len(places):
                averages.append({"share": share, "label": label, "difference": sum(values) / len(values)})
    return sorted(averages, key=lambda row: (row["share"], row["difference"]))


def fetched(rows: list[dict]) -> list[str]:
    """Notes: what is fetched beside what is attended, and by how much key-value heads read more than a query head."""
    costlier = {row["label"] for row in rows if row["kv_read"] > row["reads_kv"] * (1 + ROUNDING)}
    alike = [label for label in dict.fromkeys(row["label"] for row in rows) if label not in costlier]
    largest = max(row["sharing"] for row in rows)
    none = f"only {'; '.join(alike)} fetch no more than they attend" if alike else "every method fetches more"
    return [
        "Attended keys are those in the softmax. What is fetched from memory besides, to choose them, is in the column "
        f"fetched; {none}.",
        "The budget counts keys of a query head. Query heads that share a key-value head fetch the union of their "
        f"keys, which stands per key-value head beside it: where they choose apart it is up to {largest:.2f} times the "
        "mean here, where the choice is made for all of them it is the same.",
    ]


def somewhere(rows: list[dict]) -> list[str]:
    """Notes: which methods were not measured in every context."""
    contexts = set(row["context"] for row in rows)
    notes = []
    for label in dict.fromkeys(row["label"] for row in rows):
        measured = {row["context"] for row in rows if row["label"] == label}
        if measured != contexts:
            said = " and ".join(f"{size:,}" for size in sorted(measured))
            notes.append(f"{label} takes long and was measured in contexts of {said} tokens only, so it has no mean.")
    return notes


def sentence(rows: list[dict]) -> str:
    """Which methods lose least and most at each budget, on the mean over all domains and contexts; what these read per
    key-value head and fetch; and which methods cannot meet which budget."""
    places, parts = {(row["domain"], row["context"]) for row in rows}, []
    for share in sorted({row["share"] for row in rows}):
        ranked = [row for row in means(rows) if row["share"] == share]
        spelled = [f"{row['label']} ({_cost(row, rows)})" for row in ranked]
        if not spelled:
            parts.append(f"At {share:.0%} of the reads no method meets the budget everywhere.")
            continue
        least, most = " and ".join(spelled[:2]), f"; most, {spelled[-1]}" if len(spelled) > 2 else ""
        parts.append(f"At {share:.0%} of the reads, {least} lose least{most}.")
    units = sorted({row["units"] for row in rows if row.get("unit") == "documents"})
    counted = " to ".join(map(str, dict.fromkeys((units[0], units[-1])))) if units else ""
    texts = f", each of {counted} held-out text{'s' * (counted != '1')}" if units else ""
    if missed := _missed(rows):
        parts.append(f"Left out where they miss the budget: {missed}.")
    if any(row["method"] == "focus" for row in rows):
        parts.append("The rows of Focus are of this one router, not of the method.")
    return (
        f"Mean change of perplexity over {len(places)} places{texts}; the means carry no interval. The budget counts "
        f"the reads of a query head; behind it stand those of a key-value head, and what is fetched of all. "
        f"{' '.join(parts)}"
    )


def _cost(mean: dict, rows: list[dict]) -> str:
    """The mean change of a method at a budget, and what it reads and fetches there, means over the same places."""
    met = [row for row in rows if (row["label"], row["share"]) == (mean["label"], mean["share"])]
    reads = [sum(row[key] for row in met) / len(met) for key in ("reads_kv", "kv_read")]
    return f"{signed(mean['difference'], '+.1%')}; {reads[0]:.1%}, {reads[1]:.1%} fetched"


def _missed(rows: list[dict]) -> str:
    """The methods that miss a budget somewhere, each with these budgets."""
    missed: dict[str, list[str]] = {}
    for share in sorted({row["share"] for row in rows}):
        labels = (row["label"] for row in rows if row["share"] == share and not row["reached"])
        for label in dict.fromkeys(labels):
            missed.setdefault(label, []).append(f"{share:.0%}")
    return "; ".join(f"{label}, at {' and '.join(shares)}" for label, shares in missed.items())

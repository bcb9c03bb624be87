"""How the equal-budget table is told and drawn: its columns, its panels and one sentence."""

from analysis.studies.panels import column, of_rows, panel


def columns() -> list[dict]:
    """The columns of the rows, for a page."""
    return [
        *(column("domain", "text"), column("context", "context", "tokens"), column("share", "asked", "of causal")),
        *(column("label", "method"), column("field", "set by"), column("value", "to")),
        *(column("attended", "keys of a query"), column("reads_causal", "pairs read", "of causal")),
        *(column("kv_read", "fetched", "of dense"), column("perplexity", "perplexity")),
        *(column("difference", "against dense"), column("difference_low", "from"), column("difference_high", "to")),
    ]


def panels(rows: list[dict]) -> list[dict]:
    """Figure 1 of Focus at equal budgets: quality, better up, against what the pairs read allow, better right; a panel
    for every domain and context, and what is fetched for the first domain."""
    made = []
    places = list(dict.fromkeys((row["domain"], row["context"]) for row in rows))
    for domain, size in places:
        mine = [row for row in rows if (row["domain"], row["context"]) == (domain, size)]
        made.append(
            _panel(f"{domain}, {size:,} tokens", "perplexity against dense (up is better)", mine, "difference")
            | {"up": "low"}
        )
    for size in dict.fromkeys(size for _, size in places):
        mine = [row for row in rows if (row["domain"], row["context"]) == (places[0][0], size)]
        made.append(_panel(f"Fetched, {places[0][0]}, {size:,} tokens", "keys and values fetched", mine, "kv_read"))
    return made


def _panel(title: str, y_label: str, rows: list[dict], key: str) -> dict:
    shares = sorted({row["share"] for row in rows}, reverse=True)
    labels = dict.fromkeys(row["label"] for row in rows)
    lines = [of_rows(label, _of(label, rows, shares), key) for label in labels]
    x = [round(1 / share, 2) for share in shares]
    return panel(title, "share", "attention at most so many times faster", x, y_label, lines, share=True)


def _of(label: str, rows: list[dict], shares: list[float]) -> list[dict]:
    """The rows of a method by share; what missed its budget is nowhere."""
    found = {row["share"]: row for row in rows if row["label"] == label and row["reached"]}
    return [found.get(share, {}) for share in shares]


def sentence(rows: list[dict]) -> str:
    """The best method that does not look at every key, at each budget, over all domains and contexts; and which method
    is left out where."""
    said = []
    for share in sorted({row["share"] for row in rows}):
        mine = [row for row in rows if row["share"] == share and row["reached"]]
        places = {(row["domain"], row["context"]) for row in rows}
        means = {}
        for label in dict.fromkeys(row["label"] for row in mine):
            found = [row["difference"] for row in mine if row["label"] == label]
            if len(found) == len(places):
                means[label] = sum(found) / len(found)
        if not means:
            said.append(f"At {share:.0%} of the reads no method meets the budget everywhere.")
            continue
        best = sorted(means, key=means.get)
        told = ", ".join(f"{label} {means[label]:+.1%}" for label in best)
        said.append(f"At {share:.0%} of the reads, mean change of perplexity over {len(places)} texts: {told}.")
    return " ".join(said)

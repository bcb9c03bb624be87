"""The grid of Focus' table 9 as data: its factors, what the paper prints, how it is drawn and summed up."""

from analysis.studies.stored.panels import column, decided, of_rows, panel, printed, series

FACTORS = {
    "groups": (2, 4, 8, 16, 32),
    "window": (16, 64, 128, 256, 512),
    "temperature": (0.05, 0.1, 0.2, 0.5),
    "iterations": (3, 5, 10, 20),
    "dimensions": ("full", 128, 32, 16),
}
NAMES = {"groups": "K", "window": "w", "temperature": "τ", "iterations": "Sinkhorn iters", "dimensions": "d_s"}
LABELS = {
    "groups": "groups, K",
    "window": "window, tokens",
    "temperature": "temperature",
    "iterations": "Sinkhorn iterations",
    "dimensions": "dimensions of routing vectors",
}
PRINTED = {  # key of a row -> column of table 9, and what it is divided by
    "paper_centroid": ("Centroid PPL", 1),
    "paper_tuned": ("Fine-tuned PPL", 1),
    "paper_share_centroid": ("Dominance (centroid)", 100),
    "paper_share_tuned": ("Dominance (full FT)", 100),
}


def paper_numbers(factor: str, value: int | str) -> dict:
    """What the paper prints for a cell (GPT-2 124M, PG-19, window 128 unless varied); None where it prints nothing.

    Of the dimensions section 2 gives the perplexity of trained centroids, of two groups appendix B.
    """
    if (factor, value) == ("groups", 2):
        return dict.fromkeys(PRINTED) | {"paper_centroid": printed("appendix B", "w=16", "PPL")}
    if factor == "dimensions":
        named = f"d_s={'768 (full)' if value == 'full' else value}"
        return dict.fromkeys(PRINTED) | {"paper_centroid": printed("section 2", named, "PPL")}
    found = {key: (printed("table 9", f"{NAMES[factor]}={value}", name), by) for key, (name, by) in PRINTED.items()}
    return {key: None if number is None else number / by for key, (number, by) in found.items()}


def columns() -> list[dict]:
    """The columns of the rows, for a page."""
    found = [column("factor", "factor"), column("value", "value"), column("default", "default cell")]
    for phase, said in (("centroid", "centroids"), ("tuned", "fine-tuned")):
        found += [
            *(column(f"perplexity_{phase}", f"perplexity, {said}"), column(f"literal_{phase}", f"{said}, literal")),
            column(f"share_{phase}", f"largest group, {said}"),
            column(f"literal_share_{phase}", f"largest group, {said}, literal"),
            column(f"worst_{phase}", f"largest group, {said}, worst layer"),
            column(f"random_{phase}", f"random groups, {said}"),
            column(f"{phase}_against_random", f"{said}, above random groups", "nats per token"),
        ]
    found += [column("pairs_share", "pairs read"), column("parameters", "trained parameters")]
    found += [column("equal_window", "window of equal pairs", "tokens"), column("window_centroid", "its perplexity")]
    found += [column("centroid_against_window", "centroids, above that window", "nats per token")]
    return found + [column(key, f"{name}, paper") for key, (name, _) in PRINTED.items()]


def panels(rows: list[dict]) -> list[dict]:
    """Three small charts for each factor: perplexity of both phases, and the largest group's share."""
    made = []
    for factor in dict.fromkeys(row["factor"] for row in rows):
        mine = [row for row in rows if row["factor"] == factor]
        xs = [row["value"] for row in mine]
        for phase, title in (("centroid", "Trained centroids"), ("tuned", "Fine-tuned")):
            lines = [
                of_rows("trained groups", mine, f"perplexity_{phase}"),
                of_rows("literal groups", mine, f"literal_{phase}"),
                of_rows("random groups", mine, f"random_{phase}"),
            ]
            lines += [of_rows("window of equal pairs", mine, "window_centroid")] if phase == "centroid" else []
            lines += _paper(mine, f"paper_{phase}", "GPT-2 124M, paper")
            made.append(panel(f"{title}: {factor}", "value", LABELS[factor], xs, "perplexity", lines))
        lines = [
            of_rows("centroids", mine, "share_centroid"),
            of_rows("fine-tuned", mine, "share_tuned"),
            of_rows("centroids, literal", mine, "literal_share_centroid"),
            of_rows("fine-tuned, literal", mine, "literal_share_tuned"),
            *_paper(mine, "paper_share_centroid", "centroids, paper"),
            *_paper(mine, "paper_share_tuned", "fine-tuned, paper"),
        ]
        made.append(panel(f"Largest group: {factor}", "value", LABELS[factor], xs, "share of the tokens", lines))
    return made


def _paper(rows: list[dict], key: str, name: str) -> list[dict]:
    values = [row[key] for row in rows]
    return [series(name, values, paper=True)] if any(value is not None for value in values) else []


def sentence(rows: list[dict], dense: float) -> str:
    """How far the cells lie apart in each phase, and how many beat their random groups."""
    names = ("groups", "window", "temperature", "iterations", "d_s")
    cells = list({tuple(row[name] for name in names): row for row in rows}.values())
    said = []
    for phase, name in (("centroid", "trained centroids"), ("tuned", "fine-tuned")):
        values, shares = ([row[f"{key}_{phase}"] for row in cells] for key in ("perplexity", "share"))
        beaten = sum(decided(row, f"{phase}_against_random") < 0 for row in cells)
        said.append(
            f"{name} from {min(values):.2f} to {max(values):.2f} (largest group {min(shares):.0%} to "
            f"{max(shares):.0%}), {beaten} better than random groups"
        )
    return (
        f"Perplexity over {len(cells)} cells: {'; '.join(said)}; dense attention without fine-tuning has {dense:.2f}."
    )

"""Which cap of a stored sweep is the smallest that changes no position, under any tolerances; without torch."""


def verdict(row: dict, tolerance: float, tolerance_bin: float) -> dict:
    """`passes`, and in `fails` what does not, in words; the tolerances are of perplexity as a share, up or down."""
    said = []
    if abs(row["difference"]) > tolerance:
        said.append(f"perplexity changes by {row['difference']:+.1%} (allowed {tolerance:.1%})")
    if abs(row["worst_bin_difference"]) > tolerance_bin:
        where = f"positions {row['worst_bin_first']:,} to {row['worst_bin_last'] - 1:,}"
        said.append(f"{where} change by {row['worst_bin_difference']:+.1%} (allowed {tolerance_bin:.1%})")
    return {"passes": not said, "fails": " and ".join(said) or None}


def judged(rows: list[dict], tolerance: float, tolerance_bin: float) -> dict:
    """The `summary` of measured rows under other tolerances than those of their sweep."""
    return summary([row | verdict(row, tolerance, tolerance_bin) for row in rows])


def chosen_cap(rows: list[dict]) -> int | None:
    """The smallest cap that passes; None where none does."""
    return next((row["cap"] for row in rows if row["passes"]), None)


def summary(rows: list[dict]) -> dict:
    """`sweep`, `cap`, and the `sentence` that says which cap is chosen and where the one below it fails."""
    cap = chosen_cap(rows)
    below = [row for row in rows if cap is None or row["cap"] < cap]
    if cap is None:
        said = f"No cap passes: at the largest, {below[-1]['cap']:,}, {below[-1]['fails']}."
    else:
        row = next(row for row in rows if row["cap"] == cap)
        said = (
            f"The smallest cap that passes is {cap:,}: it reads {row['reads_causal']:.1%} of the causal pairs and "
            f"changes perplexity by {row['difference']:+.1%}, at worst by {row['worst_bin_difference']:+.1%} at "
            f"positions {row['worst_bin_first']:,} to {row['worst_bin_last'] - 1:,}."
        )
        said += f" At {below[-1]['cap']:,} {below[-1]['fails']}." if below else ""
    return {"sweep": rows, "cap": cap, "sentence": said}

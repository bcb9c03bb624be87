"""The rows of the study of equal bytes, which of them rank together, and how it is told."""

from collections.abc import Sequence

import numpy as np

from analysis.claims import DETECTABLE, SIGNIFICANCE, Comparison
from analysis.methods import METHODS
from analysis.metrics.intervals import holm, over_units, p_of
from analysis.studies.stored.comparisons import Row, difference, holm_corrected, interval_caveat
from analysis.studies.stored.panels import column, presented
from lab.equal.held import FULL
from lab.equal.rungs import AS_MEASURED, RUNGS
from lab.harness.telling import distinct, lines_of

# Levels of bytes: those of a cache that drops nothing, and half of the least. Level -> how it packs what a rule keeps.
HALF, NOTHING = "half", "nothing"
LEVELS = {"int8": (FULL,), "int4": (FULL, "int8"), "int2": (FULL, "int4"), HALF: (FULL, "int4")}
BITS = {"int8": "8 bits", "int4": "4 bits", "int2": "2 bits", "fp8": "fp8", FULL: "16 bits"}
# Rules of eviction that are drawn beside what chooses for each query: the least loss, a calibrated one, the null.
BESIDE = ("duo_attention", "kvzap", "random")
# In the ladder: all rules that have a rung.
MEAN = "mean"
# By how much an arm may pass the bytes of its level.
OVER = 1.005
HELD, READ = "level_share", "read_share"
ABOVE = "nats per token above dense"
X = HELD, "bytes held, as a share of 16 bits for all", ABOVE
X_READ = READ, "bytes read by a token, as a share of 16 bits for all", ABOVE


def titled(name: str, packing: str) -> str:
    """What an arm is called."""
    titles = {
        "random": "Random keys",
        "newest": "Sinks and the newest",
        "shorter": "Shorter context",
        NOTHING: "All keys",
    }
    name, _, budget = name.partition(":")
    title = titles.get(name) or METHODS[name].title
    title = f"{title}, {budget} keys" if budget else title
    return title if packing == FULL and name != NOTHING else f"{title}, {BITS.get(packing, packing)}"


def rows_of(read: list[dict], settings: Sequence[str], places: np.ndarray, length: int) -> list[Row]:
    """A row for every arm in every setting of the question, with its rank at the bytes of its level. `read`: of every
    prompt of `length` tokens, setting -> `level name packing` -> what was measured; `places`: the domain of each."""
    rows: list[Row] = []
    documents = np.arange(len(read))
    for setting in settings:
        of_setting = [document[setting] for document in read]
        losses = {key: np.array([document[key]["loss"] for document in of_setting]) for key in of_setting[0]}
        dense, with_losses = losses[f"- {NOTHING} {FULL}"], []
        for key, of_arm in losses.items():
            level, name, packing = key.split(" ")
            row: Row = {"setting": setting, "level": level, "method": name, "packing": packing}
            row["title"] = titled(name, packing)
            for part in ("held", "worst"):
                row[part] = float(np.mean([document[key][part] for document in of_setting]))
            # what chooses for every query says what it read; else a token reads all that is held
            read_bytes = float(np.mean([document[key].get("read", document[key]["held"]) for document in of_setting]))
            row["read_kib"] = read_bytes * length / 1024
            row |= difference("against_dense", of_arm, dense, documents)
            for place in distinct([{"place": place} for place in places.tolist()], "place"):
                in_place = places == place
                of_place = difference(place, of_arm[in_place], dense[in_place], documents[in_place])
                row |= {name: value for name, value in of_place.items() if not name.endswith(("_p", "_points"))}
            with_losses.append((row, of_arm))
        rows += _levelled(with_losses, documents)
    return holm_corrected(rows, "against_null")


def _levelled(losses_of: list[tuple[Row, np.ndarray]], documents: np.ndarray) -> list[Row]:
    """The rows of one setting with their level, and the `rank` and `against_null` in it. What drops nothing and
    is none itself stands at the least level whose bytes it does not pass."""
    all_keys = {row["packing"]: row for row, _ in losses_of if row["method"] == NOTHING}
    full = all_keys[FULL]["held"]
    bytes_of = {level: all_keys[level]["held"] for level in LEVELS if level != HALF}
    bytes_of[HALF] = bytes_of["int2"] / 2
    for row, _ in losses_of:
        row["share"] = row["held"] / full
        row["read_share"] = row["read_kib"] / all_keys[FULL]["read_kib"]
        if row["level"] == "-":
            fits = next((name for name in reversed(LEVELS) if row["held"] <= bytes_of[name] * OVER), FULL)
            row["level"] = row["packing"] if row["packing"] in LEVELS else fits
    # what cannot hold so little is left out
    losses_of = [pair for pair in losses_of if pair[0]["held"] <= bytes_of.get(pair[0]["level"], np.inf) * OVER]
    for level, target in bytes_of.items():
        inside = [pair for pair in losses_of if pair[0]["level"] == level]
        null = next((losses for row, losses in inside if row is all_keys.get(level)), None)
        for (row, losses), rank in zip(inside, ranked([losses for _, losses in inside], documents), strict=True):
            row |= {"rank": rank, "level_share": target / full}
            if null is not None:
                row |= difference("against_null", losses, null, documents)
                low, high = row["against_null_low"], row["against_null_high"]
                row["detectable"] = None if low is None else DETECTABLE * (high - low)
    return [row for row, _ in losses_of]


def ranked(losses: list[np.ndarray], documents: np.ndarray) -> list[int]:
    """The rank of each of several arms: one more than how many are lower by a paired test, after Holm's correction for
    all pairs. Arms that no test separates from the best share its rank."""
    judged = []
    for first in range(len(losses)):
        for second in range(first):
            mean = over_units(losses[first] - losses[second], documents)[0]
            if (p := p_of(mean)) is not None:
                judged.append((first if (mean.mean or 0.0) > 0 else second, p))
    beaten = [1] * len(losses)
    for (worse, _), p in zip(judged, holm([p for _, p in judged]) if judged else [], strict=True):
        beaten[worse] += p < SIGNIFICANCE
    return [int(rank) for rank in beaten]


def rungs_of(read: list[dict], settings: Sequence[str]) -> list[Row]:
    """A row for every rule and rung in every setting: what it loses above dense, and above the rule as measured."""
    rows: list[Row] = []
    documents = np.arange(len(read))
    for setting in settings:
        of_setting = [document["ladder"][setting] for document in read]
        losses = {key: np.array([document[key]["loss"] for document in of_setting]) for key in of_setting[0]}
        dense = np.array([document[setting][f"- {NOTHING} {FULL}"]["loss"] for document in read])
        for key, of_rung in losses.items():
            name, rung = key.split("|")
            bytes_held = float(np.mean([document[key]["held"] for document in of_setting]))
            row: Row = {"setting": setting, "method": name, "title": METHODS[name].title, "rung": rung}
            row |= {"held": bytes_held} | difference("against_dense", of_rung, dense, documents)
            rows.append(row | difference("against_measured", of_rung, losses[f"{name}|{AS_MEASURED}"], documents))
        for rung in RUNGS:
            names = [key.split("|")[0] for key in losses if key.endswith(f"|{rung}")]
            mean, measured = (
                np.mean([losses[f"{name}|{document}"] for name in names], 0) for document in (rung, AS_MEASURED)
            )
            bytes_held = float(np.mean([row["held"] for row in rows if row["rung"] == rung]))
            row = {"setting": setting, "method": MEAN, "title": "Mean of the rules", "rung": rung, "held": bytes_held}
            row |= difference("against_dense", mean, dense, documents)
            rows.append(row | difference("against_measured", mean, measured, documents))
    return holm_corrected(rows, "against_measured")


def best_of(rows: list[Row]) -> list[Row]:
    """Per setting and level the cache that drops nothing, and the arms of rank 1, the lowest loss first."""
    best: list[Row] = []
    for setting in distinct(rows, "setting"):
        for level in LEVELS:
            inside = [row for row in rows if (row["setting"], row["level"]) == (setting, level)]
            first = sorted((row for row in inside if row["rank"] == 1), key=lambda row: row["against_dense"])
            nulls = [row for row in inside if row["method"] == NOTHING and row["packing"] == level]
            best += [*nulls, *(row for row in first if row not in nulls)][:4]
    keys = ("setting", "level_share", "title", "rank", "against_dense", "against_dense_low", "against_dense_high")
    return [{key: row[key] for key in (*keys, "worst")} for row in best]


def sentence(rows: list[Row]) -> str:
    """At the bytes of every cache that drops nothing: how many arms lose less than it does, and which rank first."""
    parts = []
    for setting in distinct(rows, "setting"):
        clauses = []
        for level, bits in list(BITS.items())[:3]:
            inside = [row for row in rows if (row["setting"], row["level"]) == (setting, level)]
            null = next(row for row in inside if row["method"] == NOTHING and row["packing"] == level)
            dropping = [row for row in inside if row["method"] != NOTHING]
            signs = [Comparison.of(row, "against_null").direction for row in dropping]
            first = min(dropping, key=lambda row: row["against_dense"])
            for_all = (
                f"{bits} for all ({null['level_share']:.0%}) lose {Comparison.of(null, 'against_dense').size}; of "
            )
            for_all += f"{len(dropping)} arms that drop keys {signs.count(-1)} lose less and {signs.count(1)} more"
            clauses.append(f"{for_all}, least {first['title']} ({Comparison.of(first, 'against_dense').size})")
        parts.append(f"{setting[:1].upper()}{setting[1:]}: {'. '.join(clauses)}.")
    for name in distinct([row for row in rows if ":" in row["method"]], "method"):
        row = next(row for row in rows if row["method"] == name)
        parts.append(f"{row['title']} reads {row[READ]:.0%}: {Comparison.of(row, 'against_dense').size}.")
    family = sum(row.get("against_null_holm") is not None for row in rows)
    lead = "Losses above dense attention at the bytes of caches that drop nothing, as shares of 16 bits. "
    return f"{lead}{' '.join(parts)} Of {family} comparisons, each is judged after Holm's correction for all of them."


def shown(numbers: dict) -> dict:
    """What is shown of the study."""
    rows, ladder, charts = numbers["rows"], numbers["ladder"], []
    for setting in distinct(rows, "setting"):
        of_setting = [row for row in rows if row["setting"] == setting and row["level"] in LEVELS]
        inside = [row | {"level_share": round(row["level_share"], 2)} for row in of_setting]
        nulls = [row for row in inside if row["method"] == NOTHING and row["packing"] == row["level"]]
        of_nulls = [row | {"title": "All keys, in fewer bits"} for row in nulls]
        for title, packed in (("keys dropped", False), ("dropped and packed", True)):
            arms = [row for row in inside if row["method"] != NOTHING and (row["packing"] != FULL) == packed]
            named = [row | {"title": titled(row["method"], FULL)} for row in arms]
            drawn = sorted([*named, *of_nulls], key=lambda row: row[HELD])
            charts.append(lines_of(f"{setting}: {title}", drawn, "title", *X, "against_dense"))
        choosing = [row for row in rows if row["setting"] == setting and ":" in row["method"]]
        dropped = [row for row in inside if row["method"] in BESIDE and row["packing"] == FULL]
        named = [row | {"title": titled(row["method"].partition(":")[0], FULL)} for row in (*choosing, *dropped)]
        # what reads all that it holds stands where its level does
        drawn = [row | {READ: round(row[READ if ":" in row["method"] else HELD], 2)} for row in (*named, *of_nulls)]
        drawn.sort(key=lambda row: row[READ])
        charts.append(
            lines_of(f"{setting}: chosen for each query, or dropped", drawn, "title", *X_READ, "against_dense")
        )
    for setting in distinct(ladder, "setting"):
        inside = [row for row in ladder if row["setting"] == setting]
        x = "rung", "what chooses", "nats per token above dense"
        charts.append(lines_of(f"{setting}: the ladder", inside, "title", *x, "against_dense"))
    summary = presented("equal-bytes", sentence(rows), charts, interval_caveat(numbers["protocol"]))
    places = [key.removesuffix("_low") for key in rows[0] if key.endswith("_low") and not key.startswith("against")]
    of_places = [column(place, f"above dense, {place}", "nats per token") for place in places]
    return summary | {"columns": [*summary["columns"], *of_places]}

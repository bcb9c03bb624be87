"""Which settings of methods a stored run is about, and how good each was there. Reads requests and numbers only."""

from dataclasses import dataclass

from ...claims import Comparison
from ...runs import Run
from ...runs.search import USUAL

# Verbs about one policy of budgets.
POLICIES = ("budgets", "cap-sweep", "reads-sweep", "reads-text", "lost-keys")
# And about one router of token groups.
ROUTERS = ("groups", "pairs", "start", "launch", "umap", "group-controls")
# And about bucket routing, at some number of buckets.
BUCKETS = ("route-at",)
STATES = ("router", "policy")


@dataclass(frozen=True)
class Setting:
    """A method as `candidates` takes it, {"name", "settings", "router", "policy"}, and what the run says of its quality
    in one sentence; None where it measured none."""

    spec: dict
    quality: str | None = None


def settings_of(run: Run) -> list[Setting]:
    """The settings of a run, dense attention left out, each once; none of a run that is about no method."""
    request, numbers = run.request, run.numbers
    if run.verb in POLICIES:
        return [Setting({"name": "csa", "policy": request.get("policy") or USUAL["policy"]})]
    if run.verb in ROUTERS:
        return [Setting({"name": "focus", "router": request.get("router") or USUAL["router"]})]
    if run.verb in BUCKETS:
        spec = {"name": "bucket_routing", "settings": {"visited": max(1, int(numbers["l"]))}}
        return [Setting(spec, _recall(numbers))]
    asked = [one for one in [*(request.get("methods") or []), request.get("method")] if isinstance(one, dict)]
    if run.verb == "equal-budget":
        unmeasured = "its perplexity was not measured in this run."
        shares = [f"reads {row['reads_causal']:.1%} of the causal pairs; {unmeasured}" for row in numbers["rows"]]
        return [Setting(*both) for both in zip(numbers["methods"], shares, strict=True)]
    rows = [numbers.get("chosen")] if run.verb == "search" else numbers.get("rows") or []
    found: list[Setting] = []
    for row in rows:
        if isinstance(row, dict) and row.get("method") not in (None, "dense") and "settings" in row:
            spec = {"name": row["method"], "settings": row["settings"]} | _state(row, asked)
            if spec not in [one.spec for one in found]:
                found.append(Setting(spec, quality(row, numbers)))
    return found


def _state(row: dict, asked: list[dict]) -> dict:
    """The router or policy that a row's method was asked for with. Of several requests of one method the one whose
    settings are the row's."""
    mine = [one for one in asked if one.get("name") == row["method"]]
    fits = [one for one in mine if (one.get("settings") or {}).items() <= row["settings"].items()]
    named = [one for one in fits if not row.get("policy") or _name(one) == row["policy"]["name"]]
    return {part: one[part] for one in (named or fits)[:1] for part in STATES if one.get(part) is not None}


def _name(asked: dict) -> str:
    policy = asked.get("policy") or USUAL["policy"]
    return policy if isinstance(policy, str) else policy.get("name") or USUAL["policy"]


def quality(row: dict, numbers: dict) -> str | None:
    """What a row of `evaluate`, `continuation` or `search` says of a method, in one sentence; None of another."""
    if row.get("difference") is None:
        return None
    ends = None if "difference_low" in row else ""
    change = Comparison.of(
        row, "difference", ends, unit="change", units=row.get("difference_units", row.get("units", 0))
    )
    said = f"perplexity {row['perplexity']:.2f}, " if row.get("perplexity") is not None else "perplexity "
    said += f"{change.size} against dense attention ({change.interval})"
    if row.get("reads_causal") is not None:
        said += f"; reads {row['reads_causal']:.1%} of the causal pairs, in windows of {numbers['window']:,} tokens"
    about = numbers["protocol"]
    if row.get("kv_share") is not None:
        said += (
            f"; on {about['continuation']:,} tokens after a prompt of {about['prefix']:,}, with {row['kv_share']:.0%} "
            "of dense attention's KV cache"
        )
    return f"{said}."


def _recall(numbers: dict) -> str:
    """What a run of `route-at` says of the router that is taken along."""
    recall = next(row["recall"] for row in numbers["means"] if row["router"] == "gwr_linear")
    return (
        f"visiting {numbers['l']:g} of {numbers['buckets']:,} buckets, GWR linear finds {recall:.1%} of the far "
        "attention; its perplexity was not measured in this run."
    )

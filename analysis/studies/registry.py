"""What every verb is: where its function lives, what it leaves behind, and which page shows its runs. Loads nothing.

A verb is a line of `verbs.csv`, a named study one of `stored.csv`: the columns are the fields of `Verb`, and `leaves`
those that are true.

Everything else about a verb is derived: its options from the signature of the function (`analysis.cli`), the command
that repeats a run (`analysis.commandline`), what a shared demo allows (`analysis.limits`), the identity of a run.
"""

import csv
import re
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Verb:
    """One verb, or one named study.

    `place`: module and function, `room.module:function` below `analysis.studies`, or a full name. `help`: one line of
    `--help`. `changes`: it leaves something that every reader of an installation sees. `exclusive`: it takes the
    machine for itself, to time or to train. `stored`: it leaves a stored study. `page`: address of the page that shows
    its runs, with the control of its tab (`/kv-budgets?budgets=cap`; `/` is Start, empty: no page shows them).
    `version`: raise it when equal arguments give other numbers than before; older runs are then no longer found.
    """

    place: str
    help: str
    changes: bool = False
    exclusive: bool = False
    stored: bool = False
    page: str = ""
    version: int = 1

    @property
    def module(self) -> str:
        """The full name of the module."""
        name = self.place.partition(":")[0]
        return name if name.startswith(OUTSIDE) else f"analysis.studies.{name}"

    @property
    def function(self) -> str:
        """The name of the function in it."""
        return self.place.partition(":")[2]

    @property
    def title(self) -> str:
        """Its help as a heading."""
        return self.help[0].upper() + self.help[1:]

    @property
    def study(self) -> bool:
        """Whether it is a study, which the worker offers; the others only read and write files or start processes."""
        return self.module.startswith("analysis.studies.")


OUTSIDE = ("analysis.", "tests.")
<<<<<<< HEAD
ABLATIONS = "/train-a-router?evidence=ablations"
=======
TRAINS: dict[str, Any] = {"changes": True, "exclusive": True}
HEADS, GROUPS, PAIRS = "/attention-heads", "/token-groups", "/long-range-pairs"
TEMPERATURE, TRAINING, TESTS = "/softmax-temperature", "/train-a-router", "/long-context-tests"
QUALITY, EQUAL, SPEED = "/quality-vs-speed", "/quality-vs-speed?tab=equal", "/quality-vs-speed?tab=speed"
MAP, CALIBRATE, CAP = "/kv-budgets?budgets=map", "/kv-budgets?budgets=calibrate", "/kv-budgets?budgets=cap"
BREAKS, CAP_COST, QUERY = "/kv-budgets?budgets=reads", "/kv-budgets?budgets=cost", "/kv-budgets?budgets=query"
FIT, RECALL = "/routing?route_tab=fit", "/routing?route_tab=recall"
ONE_QUERY, ROUTE_COST = "/routing?route_tab=token", "/routing?route_tab=cost"
ABLATIONS, COLLAPSE = "/train-a-router?evidence=ablations", "/train-a-router?evidence=collapse"
CAUSALITY = "/train-a-router?evidence=causality"

VERBS = {
    # What a text and a model are
    "inspect": Verb("text.text:inspect", "tokens, windows and warnings of a text", page="/"),
    "model": Verb("start.card:model_card", "the model's card, its routers, its parity with the stock model", page="/"),
    "start": Verb("start.start:start", "what the model reads in a text: one far pair and three sentences", page="/"),
    "report": Verb("start.report:report", "one self-contained page about a text", changes=True),
    # What the heads read
    "statistics": Verb(
        "heads.statistics:statistics",
        "entropy, rank, sink, window and distance of every head's attention, exact",
        page=HEADS,
    ),
    "head": Verb("heads.head:head", "one head on a text: what a token reads, by distance and by query", page=HEADS),
    # Learned groups (Focus)
    "groups": Verb("groups.contents:groups", "what the learned groups hold in a text (Focus, section 5)", page=GROUPS),
    "umap": Verb("groups.contents:umap", "the routing vectors of a layer on a map", page=GROUPS),
    "pairs": Verb("groups.pairs:pairs", "the strongest far-apart pairs of one group, with null controls", page=PAIRS),
    "compare": Verb(
        "groups.compare:compare", "how far two routers put the same tokens together, groups matched", page=GROUPS
    ),
    "group-controls": Verb(
        "groups.compare:group_controls",
        "groups layer by layer beside random centroids and k-means (Focus, section 5)",
        page=GROUPS,
    ),
    "balance": Verb("groups.balance:balance", "how Sinkhorn evens the groups of a text, step by step", page=TRAINING),
    "fit-router": Verb(
        "groups.routers:fit_router", "a Focus router without training, in seconds", changes=True, page=GROUPS
    ),
    "train-router": Verb(
        "training.train_router:train_focus_router",
        "a trained Focus router, the model frozen; resumes when stopped",
        **TRAINS,
        page=TRAINING,
    ),
    # Softmax temperature (Focal Attention)
    "temperature": Verb(
        "temperature.sharpness:temperature",
        "what a softmax temperature does to every head on a text (Focal Attention)",
        page=TEMPERATURE,
    ),
    "temperature-curve": Verb(
        "temperature.curve:temperature_curve",
        "perplexity of a text at softmax temperatures, for all layers or one at a time",
        page=TEMPERATURE,
    ),
    # Methods against dense attention
    "evaluate": Verb(
        "quality.evaluate:evaluate",
        "what reading less does to the predictions of a text: methods against dense",
        page=QUALITY,
    ),
    "equal-budget": Verb(
        "quality.equal_budget:equal_budget",
        "the settings at which methods read as many keys of a query as each other",
        page=EQUAL,
    ),
    "fit-method": Verb(
        "ready.fitted:fit_method",
        "what a method needs of a text, stored: magicpig, routing_transformer, focal_learned",
        changes=True,
    ),
    # Key budgets per head (Calibrated Sparse Attention)
    "calibrate": Verb(
        "budgets.calibrate:calibrate",
        "CSA: ranks, budgets and the smallest cap that changes no position; the policy is stored",
        changes=True,
        page=CALIBRATE,
    ),
    "cap-sweep": Verb(
        "budgets.cap_sweep:cap_sweep",
        "a policy of CSA under several caps, against dense by position, on other texts than its own",
        page=CAP,
    ),
    "reads-sweep": Verb(
        "budgets.reads_sweep:reads_sweep",
        "ever fewer keys by the ranks of a policy of CSA: the mean beside the worst positions",
        page=BREAKS,
    ),
    "reads-text": Verb(
        "budgets.reads_text:reads_text",
        "the same on one text, token by token, with the key that the worst token lost",
        page=BREAKS,
    ),
    "budgets": Verb(
        "budgets.edited:budgets", "the budgets of a policy of CSA, with changes by hand, and what they read", page=MAP
    ),
    "calibrations": Verb(
        "budgets.edited:calibrations", "how far two stored policies agree, such as of two corpora", page=CALIBRATE
    ),
    "lost-keys": Verb(
        "budgets.lost_keys:lost_keys",
        "which keys a token lost to a policy of CSA: the token that it hurts most, or one you name",
        page=BREAKS,
    ),
    "import-policy": Verb(
        "budgets.policies:import_policy",
        "check a policy of CSA from a JSON file against the model and store it",
        changes=True,
        page=MAP,
    ),
    "topk-cost": Verb(
        "speed.topk_cost:topk_cost",
        "what the top-k kernels of CSA cost here, against dense and the masked pass",
        exclusive=True,
        page=CAP_COST,
    ),
    # Routing to buckets of keys (GWR)
    "route": Verb(
        "routing.route:route",
        "recall of bucket routers, calibrated on the first half of the documents, tested on the rest (GWR)",
        **TRAINS,
        page=FIT,
    ),
    "route-at": Verb(
        "routing.live:route_at", "recall at any number of buckets, from the stored curves or on a text", page=RECALL
    ),
    "route-visit": Verb(
        "routing.visit:route_visit",
        "the buckets that one query of a text visits, with its real attention",
        page=ONE_QUERY,
    ),
    "route-time": Verb(
        "speed.route_time:route_time",
        "one more token with bucket routing against dense: measured time per step",
        exclusive=True,
        page=ROUTE_COST,
    ),
    # Tests and benchmarks
    "probe": Verb(
        "probes.probe:probe",
        "long-context probes: can it find one thing in a long text, at any depth and length",
        page=TESTS,
    ),
    "benchmark": Verb(
        "benchmarks.benchmark:benchmark",
        "tasks of lm-evaluation-harness on local files: scores of methods, item by item against dense",
        exclusive=True,
        page=TESTS,
    ),
    "pitfalls": Verb(
        "grids.pitfalls:pitfalls",
        "two findings on a model's own heads: sums of exponentials put together, and keys found by hashing",
    ),
    # Speed
    "launch": Verb(
        "speed.launch:launch",
        "a model on a text, dense and sparse in turns: times, memory and both texts",
        exclusive=True,
        page=SPEED,
    ),
    "time-method": Verb(
        "speed.method:time_method",
        "a model with a method's own kernels against dense in turns: a prompt, and tokens after it",
        exclusive=True,
        page=SPEED,
    ),
    "bench": Verb(
        "speed.bench:bench",
        "how fast the sparse kernels are here, by length, against the fastest dense one",
        exclusive=True,
        page=SPEED,
    ),
    "worth": Verb(
        "worth.worth:worth",
        "what sparse attention could gain at most, from a config.json alone",
        page="/is-it-worth-it",
    ),
    # Training and stored studies
    "finetune": Verb(
        "training.finetune:finetune",
        "training baselines on a domain: LoRA, full fine-tuning, Focus' router; resumes when stopped",
        **TRAINS,
        stored=True,
        page=ABLATIONS,
    ),
    "pretrain": Verb(
        "training.pretrain:pretrain",
        "a small language model of your own from a folder of texts; resumes when stopped",
        **TRAINS,
    ),
    "study": Verb("stored.named:study", "a named study, stored; continues when stopped", **TRAINS, stored=True),
    "remeasure": Verb(
        "stored.remeasure:remeasure",
        "stored studies again, those that are out of date or named, the cheapest first; continues when stopped",
        **TRAINS,
        stored=True,
    ),
    "measured": Verb("stored.documented:measured", "docs/measured.md, from the stored studies", changes=True),
    "examples": Verb(
        "start.examples:examples", "the stored examples of every page, computed anew in their place", **TRAINS
    ),
    # Runs, processes
    "runs": Verb("analysis.runs.commands:runs", "the stored runs of the app, found by words"),
    "bundle-out": Verb(
        "analysis.runs.commands:bundle_out",
        "stored runs and their texts as one file, for another machine",
        changes=True,
    ),
    "bundle-in": Verb(
        "analysis.runs.commands:bundle_in",
        "such a file brought in: names, sizes, schema and checksums are judged before anything is kept",
        changes=True,
    ),
    "commands": Verb("analysis.cli.reference:commands", "docs/commands.md, from the registry of verbs", changes=True),
    "spread": Verb(
        "analysis.cluster.spread:spread_command",
        "one study in many parts, over the values of an argument, on several workers or a Ray cluster",
        **TRAINS,
    ),
    "stress": Verb(
        "tests.stress.parts:stress", "load, faults and hostile input on the real app, bounded and on loopback", **TRAINS
    ),
}
>>>>>>> c2ab3eb (Groups: what measures balance is one file, a router reads its own file; spread's command stands with spread)


def _read(file: str, leaves: str = "") -> dict[str, Verb]:
    """Name -> verb, of a table beside this file; lines that begin with # head what follows them."""
    found = {}
    with open(Path(__file__).with_name(file), encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(line for line in lines if not line.startswith("#")):
            left = (row.get("leaves") or leaves).split()
            flags = ("changes" in left, "exclusive" in left, "stored" in left)
            found[row["name"]] = Verb(row["place"], row["help"], *flags, row["page"], int(row["version"]))
    return found


VERBS = _read("verbs.csv")
STORED = _read("stored.csv", leaves="changes exclusive stored")  # what `study NAME` runs


def of_file(stem: str) -> tuple[str, str | None]:
    """(named study, router) of the file that holds its result: `top-k4-top1` is `top` with that router."""
    found = re.fullmatch(r"(.+?)(?:-(k\d+-top\d+.*))?", stem)
    return (found[1], found[2]) if found else (stem, None)

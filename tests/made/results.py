"""Hand-made results with the tables of the studies, and a client that answers with them: pages without a model."""

import re
from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np
import pandas as pd

from analysis.commands import named
from analysis.corpus import read_any
from analysis.costs import KNOWN
from analysis.declaration.command import Command
from analysis.declaration.undeclared import Undeclared
from analysis.errors import BadModel, BadSetting
from analysis.jobs import JobStatus
from analysis.places import plain_name
from analysis.runs import Result, Run, RunStore
from analysis.studies.groups.pairs import KINDS
from analysis.studies.take.use_in import use_in
from analysis.studies.worth.worth import worth

LAYERS, HEADS, GROUPS, CONTEXT = 3, 2, 4, 64
ROUTER = {"name": "k4-top1", "groups": GROUPS, "top": 1, "window": 16, "kind": "not trained", "steps": 0}


def tokens(text: str) -> pd.DataFrame:
    """Words with the space before them, cut into windows of CONTEXT tokens."""
    matches = list(re.finditer(r"\s*\S+|\s+", text))
    words = [match.group().strip() for match in matches]
    return pd.DataFrame(
        {
            "position": range(len(matches)),
            "window": [i // CONTEXT for i in range(len(matches))],
            "piece": [match.group() for match in matches],
            "start": [match.start() for match in matches],
            "end": [match.end() for match in matches],
            "word": words,
            "content": [len(word) > 3 for word in words],
        }
    )


def protocol(verb: str, args: dict, count: int) -> dict:
    return {"verb": verb, "model": args["model"], "text": args.get("text"), "tokens": count}


def pair_table(table: pd.DataFrame, count: int = 6) -> pd.DataFrame:
    last = len(table) - 1
    rows = [(i % LAYERS, i % HEADS, i % GROUPS, last - i, i, 0.9 - 0.1 * i) for i in range(min(count, last // 2))]
    frame = pd.DataFrame(rows, columns=["layer", "head", "group", "query_position", "key_position", "attention"])
    frame["distance"] = frame["query_position"] - frame["key_position"]
    frame["affinity"], frame["uniform"] = 0.8, 0.01
    for side in ("query", "key"):
        frame[side] = frame[f"{side}_named"] = table["word"].to_numpy()[frame[f"{side}_position"]]
    return frame.assign(kind=[KINDS[i % len(KINDS)] for i in range(len(frame))])


def inspect(args: dict, text: str) -> Result:
    table = tokens(text)
    numbers = {"tokens": len(table), "windows": int(table["window"].max()) + 1, "max_positions": CONTEXT, "notes": []}
    numbers |= {"shown": len(table)}
    return Result(numbers | {"protocol": protocol("inspect", args, len(table))})


def model(args: dict, text: str | None) -> Result:
    parity = {"same": True, "max_abs_difference": 0.0, "tolerance": 1e-3, "causal_difference": 0.0}
    sizes = {"layers": LAYERS, "heads": HEADS, "kv_heads": 1, "head_dim": 8, "width": 256, "max_positions": CONTEXT}
    facts = {"name": args["model"], "family": "llama", "revision": "abc", "parameters": 1234, "weight_bytes": 4936}
    details = {"dtype": "float32", "device": "cpu", "card": "A *small* model.", "routers": [ROUTER], "parity": parity}
    compared = {"one_pass": 1e-7, "decoded": 2e-7, "largest": 1.0, "tokens": 96}
    details |= {"small": compared, "full": compared | {"tolerance": 1e-3, "same": True} if args.get("full") else None}
    return Result(facts | sizes | details | {"protocol": protocol("model", args, 0)})


def start(args: dict, text: str) -> Result:
    table = tokens(text)
    table["received"] = [None if i % 7 == 6 else 2.0 ** (i % 6) / 2 for i in range(len(table))]
    sentences = [f"It reads {table['word'].iloc[0]!r} most.", "A second sentence.", "A third one."]
    distance = pd.DataFrame({"low": [0, 1, 2], "high": [1, 2, 4], "mass": [0.5, 0.3, 0.2], "uniform": [0.2, 0.2, 0.6]})
    numbers = {
        "sentences": sentences,
        "min_distance": 8,
        "router": ROUTER,
        "notes": ["A note to <read>."],
        "far_share": 0.33,
    }
    place = np.arange(len(table))
    back, later = np.where(place >= 8, place - 8, -1), np.where(place + 8 < len(table), place + 8, -1)
    links = np.full((2, len(table), 4, 2), -1, np.int32)
    links[0, :, 0], links[1, :, 0] = np.stack([back, place % 6], -1), np.stack([later, place % 6], -1)
    return Result(
        numbers | {"protocol": protocol("start", args, len(table))},
        {"tokens": table, "pairs": pair_table(table), "distance": distance},
        {"links": links, "link_share": np.where(links[..., 0] < 0, 0, 0.25).astype(np.float32)},
    )


def keep(args: dict, text: str) -> Result:
    count = min(CONTEXT, len(tokens(text)))
    rows = [{"share": share, "keys": round(64 * share), "loss": 3 / share**0.1} for share in (1.0, 0.2, 0.02)]
    rows = [row | {"change": row["loss"] / 3 - 1, "low": None, "high": None} for row in rows]
    shares = np.array([[1.0], [0.5], [0.25]], np.float32) * np.ones(count, np.float32)
    shares[:, 0] = np.nan
    numbers = {"rows": rows, "min_distance": 8, "notes": [], "protocol": protocol("keep", args, count)}
    return Result(numbers, {}, {"kept": shares})


def groups(args: dict, text: str) -> Result:
    table = tokens(text)
    count = len(table)
    cells = [(layer, group) for layer in range(LAYERS) for group in range(GROUPS)]
    contents = pd.DataFrame(cells, columns=["layer", "group"])
    for name, value in (("share", 0.25), ("share_random", 0.2), ("share_shuffled", 0.3), ("confidence", 0.9)):
        contents[name] = value
    contents["tokens"], contents["label"] = count // GROUPS, [f"label {group}" for _, group in cells]
    for name, value in (
        ("purity", 0.6),
        ("purity_random", 0.2),
        ("purity_random_low", 0.1),
        ("purity_random_high", 0.3),
    ):
        contents[name] = [None if group == GROUPS - 1 else value for _, group in cells]
    words = contents[["layer", "group"]].assign(rank=1, word=table["word"].iloc[0], count=5, lift=2.5)
    layers = pd.DataFrame({"layer": range(LAYERS), "dominance": 0.4, "confidence": 0.9})
    for name in ("dominance_random", "dominance_shuffled", "confidence_random", "confidence_shuffled", "balanced"):
        layers[name] = 0.3
    group = np.stack([(np.arange(count) + layer) % GROUPS for layer in range(LAYERS)]).astype(np.int16)
    spots = np.random.default_rng(0).normal(size=(LAYERS, count, 2)).astype(np.float32)
    numbers = {"K": GROUPS, "top": 1, "window": 16, "router": ROUTER, "notes": [], "labels_by": "word lists"}
    return Result(
        numbers | {"sentence": "Groups are purer than chance.", "protocol": protocol("groups", args, count)},
        {"tokens": table, "layers": layers, "groups": contents, "words": words},
        {"group": group, "confidence": np.full((LAYERS, count), 0.9, np.float32), "pca": spots}
        | {"pca_variance": np.full((LAYERS, 2), 0.2, np.float32)},
    )


def pairs(args: dict, text: str) -> Result:
    table = tokens(text)
    arms = ("this router", "random centroids", "random tokens", "shuffled text")
    controls = pd.DataFrame([(layer, arm) for layer in range(LAYERS) for arm in arms], columns=["layer", "arm"])
    distance = pd.DataFrame([(arm, 8, 16) for arm in arms], columns=["arm", "low", "high"])
    for frame in (controls, distance):
        frame["pairs_share"], frame["mass_share"], frame["lift"] = 0.25, 0.3, 1.2
    listed = pair_table(table) if args["min_distance"] < 32 else pair_table(table, 0)
    numbers = {"sentence": "Same-group pairs draw 1.2 times chance.", "router": ROUTER, "notes": []}
    return Result(
        numbers | {"protocol": protocol("pairs", args, len(table))},
        {"tokens": table, "pairs": listed, "controls": controls, "distance": distance},
    )


def readers(args: dict, text: str) -> Result:
    table, token = tokens(text), args["token"]
    later = table.iloc[token + 1 : token + 3]
    rows = {"layer": [1, 0][: len(later)], "head": [0, 1][: len(later)], "position": later["position"]}
    rows |= {"named": later["word"], "distance": later["position"] - token, "attention": [0.8, 0.1][: len(later)]}
    numbers = {"token": token, "later": len(later), "chance": 0.01, "sentence": f"Token {token} is read.", "notes": []}
    frame = pd.DataFrame(rows).assign(mean=0.02).reset_index(drop=True)
    return Result(numbers | {"protocol": protocol("readers", args, len(table))}, {"readers": frame, "tokens": table})


STUDIES = {"inspect": inspect, "model": model, "start": start, "groups": groups, "pairs": pairs}
STUDIES |= {"keep": keep, "readers": readers}


def answers() -> dict:
    """verb -> its hand-made answer; what a test puts into STUDIES stands before those of the pages."""
    from tests.made import budgets, heads, quality, routing, speed, training  # which make results with this module

    pages = (page.ANSWERS for page in (budgets, heads, quality, routing, speed, training))
    return {verb: answer for page in pages for verb, answer in page.items()} | STUDIES


@dataclass
class FakeJobs:
    """The worker's client with hand-made answers. `refusals`: verb -> the error it raises instead."""

    store: RunStore
    refusals: dict = field(default_factory=dict)
    asked: list = field(default_factory=list)
    states: dict = field(default_factory=dict)  # job id -> JobStatus
    curves: dict = field(default_factory=dict)  # job id -> what it can draw already
    stopped: dict = field(default_factory=dict)  # job id -> seconds since its worker was heard

    def request(self, request: Command, timeout: float = 60, tell=None):
        verb, args = request.verb, request.spelled
        self.asked.append(verb)
        if verb in self.refusals:
            raise self.refusals[verb]
        if verb == "use-in":  # a table that is read
            result = use_in(request)
            return self.store.put(request, result, result.numbers["protocol"], 0.01)
        if plain_name(args["model"]) not in ("demo", "demo-gpt2", "owner/tiny", *KNOWN):
            raise BadModel(f"There is no model {args['model']!r}: check its name.")
        text = self.store.text(args["text"])[1] if args.get("text") else None
        if verb == "worth":  # arithmetic: the real one
            result = worth(request, context=SimpleNamespace(text=self.store.text, browser=True))
        else:
            result = answers()[verb](args, text)
        return self.store.put(request, result, result.numbers["protocol"], 0.01)

    @property
    def job(self) -> JobStatus:
        """The job that was submitted."""
        (job,) = self.states.values()
        return job

    def done(self, verb: str, args: dict, seconds: float = 1.0) -> Run:
        """What a finished job, or an earlier request, leaves in the store."""
        text = self.store.text(args["text"])[1] if args.get("text") else None
        result = answers()[verb](args, text)
        return self.store.put(Undeclared(verb, args), result, result.numbers["protocol"], seconds)

    compute = request

    def read(self, data: bytes, name: str, timeout: float = 60) -> str:
        document = read_any(data, name)
        return self.store.put_text(document.text, name, document.said)

    def describe(self, timeout: float = 60) -> dict:
        if "describe" in self.refusals:
            raise self.refusals["describe"]
        from tests.made import quality  # which makes results of its own with this module

        return {"verbs": list(answers()), "methods": quality.DESCRIBED}

    def submit(self, request: Command, session: str = "") -> str:
        self.states["0123456789ab"] = status("queued", verb=request.verb, args=request.spelled, queue_position=1)
        return "0123456789ab"

    def watch(self, job_id: str) -> JobStatus:
        if job_id not in self.states:
            raise BadSetting(f"The job {job_id} is not known here (any more): start it again.")
        return self.states[job_id]

    def active(self, session=None) -> list[JobStatus]:
        return []  # of this session, beside the job of the link

    def curve(self, job_id: str) -> dict | None:
        return self.curves.get(job_id)

    def recent(self, session=None, limit: int = 20) -> list[JobStatus]:
        return list(self.states.values())

    def status(self) -> dict:
        return {"state": "silent" if self.stopped else "ready", "pid": 1, "memory": 500_000_000}

    def silent(self) -> dict[str, float]:
        return self.stopped

    def restart(self) -> None:
        self.stopped.clear()

    def cancel(self, job_id: str) -> None:
        self.states[job_id] = status("cancelled", error="The work was cancelled; nothing half-made was kept.")

    def resume(self, job_id: str) -> str:
        return self.submit(named(self.states[job_id].verb, self.states[job_id].args))


def status(state: str, **fields) -> JobStatus:
    """A job in some state."""
    blank = {"id": "0123456789ab", "verb": "fit-router", "args": {}, "state": state, "fraction": 0.0, "stage": ""}
    blank |= {"seq": 1, "key": "0" * 12, "session": "", "owner": "", "seconds_left": None, "queue_position": 0}
    return JobStatus(**(blank | {"created": "2026-01-01T00:00:00+00:00"} | fields))

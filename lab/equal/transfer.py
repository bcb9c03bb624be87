"""Does eviction that was calibrated on one kind of text hold on another? TriAttention and KVzap, calibrated on one
domain and run on every other: novels, code, an encyclopaedia and generated lists.

A serving stack is given one file of statistics for all texts that will come. So each domain calibrates once and is read
by all: how many of the keys that its own calibration would keep stay, and what the rest costs. The null keeps as many
keys, the first four and the newest, and is calibrated on nothing.
"""

from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np
import torch

from analysis.methods import METHODS
from analysis.methods.evicting import Evicting
from analysis.models import Model
from analysis.studies.quality.trial import KINDS, Newest, calibration_windows
from analysis.studies.stored.comparisons import Row, difference, interval_caveat
from analysis.studies.stored.panels import presented
from analysis.studies.stored.runner import Setting, Windows, option
from analysis.studies.text.held_out import check_range, domains, held_out_windows, ids_hash, sample_windows
from lab.equal.held import FULL, Read, Scored
from lab.far.kinds import KINDS as KINDS_OF_DOCUMENTS
from lab.far.recall import Source, Writer
from lab.harness.telling import counted, lines_of

FITTED = ("triattention", "kvzap")
NOTHING, DENSE, NEWEST = "nothing", "dense", "newest"
# One set of keys for each key-value head.
SHARE = "per_layer_perhead"
# The domain that is generated: lists of made-up facts, pairs, entries and constants, which are asked for again.
LISTS, LISTED = "lists", ("facts", "pairs", "register", "code")


class Transfer(Windows):
    """Every domain calibrates each method and reads it with the calibrations of all."""

    length: int = option(640, "tokens of a window of text", low=16)
    windows: int = option(12, "held-out windows of each domain", low=2, high=4096)
    continuation: int = option(128, "tokens of a window that follow the prompt and are scored")
    ratio: float = option(0.5, "share of the prompt's keys that is removed", low=0.01, high=0.99)

    def check(self, lm: Model) -> None:
        super().check(lm)
        check_range("The length of the continuation", self.continuation, 2, self.length - 8)

    def measure(self, run: Setting) -> dict:
        questions, rows, documents, read = Asked(run, self), [], [], []
        for place, name in enumerate(questions.texts):
            run.context.progress(place / len(questions.texts), name)
            rows += questions.rows(name)
            windows, of_windows = questions.windows(name)
            read.append(windows)
            documents.append(1000 * place + of_windows)
        about: Row = {"prefix": self.length - self.continuation, "continuation": self.continuation}
        windows = np.concatenate(read)
        about |= {"calibrated_on": questions.hash, "kernel": "compacted KV cache"}
        return {"rows": rows, "protocol": run.about(windows, np.concatenate(documents), **about)}

    def sample(self, run: Setting, numbers: dict) -> dict:
        ids = torch.as_tensor(sample_windows(run.lm, self.length))
        fitted = METHODS["triattention"]().fit(run.lm, ids[:1])
        read = Read(run.lm, ids[1, : self.length // 2])
        with read.following():
            stays = Scored(read, fitted).at(self.ratio)  # type: ignore[arg-type]
            losses = read.losses(stays, FULL, ids[1, :0], ids[1, self.length // 2 :])
        return {"triattention": float(losses.mean())}

    def part(self, run: Setting, numbers: dict) -> dict:
        """The first domain under TriAttention, as its own calibration and all others read it."""
        questions = Asked(run, self, FITTED[:1])
        return {"rows": questions.rows(next(iter(questions.texts)))[:-1]}

    @staticmethod
    def shown(numbers: dict) -> dict:
        rows = numbers["rows"]
        own = [row for row in rows if row["calibrated"] == row["read"]]
        other = [row for row in rows if row["calibrated"] not in (row["read"], NOTHING)]
        agreements = [row["agreement"] for row in other]
        sentence = (
            f"A calibration on another domain keeps {min(agreements):.0%} to {max(agreements):.0%} of the keys that "
            f"the domain's own would keep. {counted(other, 'such losses', {'against_own': 'by its own'})} "
            f"{counted(own, 'losses with the own', {'against_newest': 'with the first keys and the newest'})}"
        )
        charts = []
        for method in FITTED:
            inside = [row for row in rows if row["method"] in (method, NEWEST)]
            title, x = f"{METHODS[method].title}, by what calibrated", ("read", "domain that is read")
            charts.append(lines_of(title, inside, "calibrated", *x, "nats per token above dense", "against_dense"))
        return presented("transfer", sentence, charts, interval_caveat(numbers["protocol"]))


def lists(lm: Model, sizes: Transfer, side: int) -> list[str]:
    """Documents of the generated domain, longer than a window: one for each; those of another side are others."""
    tokenizer = lm.tokenizer.backend_tokenizer
    source = Source(tokenizer, {LISTS: np.zeros(1, np.uint16)})
    texts = []
    for place in range(sizes.windows):
        rng = np.random.default_rng([sizes.seed, side, place])
        writer = Writer(source, 2 * sizes.length, rng, LISTS, thin=False)
        KINDS_OF_DOCUMENTS[LISTED[place % len(LISTED)]].write(writer)
        texts.append(lm.tokenizer.decode(writer.document(LISTS).ids.tolist()))
    return texts


@dataclass
class Asked:
    """The domains, what each of them calibrates, and what is read of it."""

    run: Setting
    sizes: Transfer
    methods: tuple[str, ...] = FITTED

    @cached_property
    def texts(self) -> dict[str, tuple[list[str], list[str]]]:
        """Domain -> (calibrating documents, those that are read). Where fewer are held out than windows are read, as
        many of the others as are missing, at most half of them, do not calibrate and are read too."""
        by_domain, few = {}, self.sizes.windows
        for name, (train, held_out) in domains(self.sizes.corpus, None, self.run.context).items():
            aside = len(train) - min(max(0, few - len(held_out)), len(train) // 2)
            by_domain[name] = train[:aside], [*held_out, *train[aside:]]
        return by_domain | {LISTS: (lists(self.run.lm, self.sizes, 0), lists(self.run.lm, self.sizes, 1))}

    def windows(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """The windows of a domain that are read, and their documents."""
        return held_out_windows(self.run.lm, self.texts[name][1], self.sizes.length, self.sizes.windows, fewest=1)

    @cached_property
    def calibrating(self) -> dict[str, torch.Tensor]:
        """Domain -> the windows that calibrate."""
        return {
            name: calibration_windows(self.run.lm, [(f"{name} {place}", text) for place, text in enumerate(texts)])
            for name, (texts, _) in self.texts.items()
        }

    @cached_property
    def hash(self) -> str:
        """Names what calibrates."""
        return ids_hash(np.concatenate([windows.numpy().ravel() for windows in self.calibrating.values()]))

    @cached_property
    def fitted(self) -> dict[str, Evicting]:
        """`method domain` -> the method as the domain calibrates it."""
        lm, ratio = self.run.lm, self.sizes.ratio
        methods_of = {}
        for method in self.methods:
            for name, windows in self.calibrating.items():
                methods_of[f"{method} {name}"] = KINDS[method].method(
                    lm, KINDS[method].fit(lm, windows, ratio), ratio, SHARE
                )
        return methods_of

    def window(self, window: np.ndarray) -> dict:
        """Of a window: its `losses` behind the prompt, nats per token, under every method as every domain calibrates
        it, and of every two such calibrations how many keys both keep (`kept`)."""

        def make() -> dict:
            ids = torch.as_tensor(window)
            cut = self.sizes.length - self.sizes.continuation
            read = Read(self.run.lm, ids[:cut])
            kept = {DENSE: read.everything, NEWEST: Scored(read, Newest()).at(self.sizes.ratio)}
            kept |= {key: Scored(read, method).at(self.sizes.ratio) for key, method in self.fitted.items()}
            with read.following():
                losses = {
                    key: float(read.losses(stays, FULL, ids[:0], ids[cut:]).mean()) for key, stays in kept.items()
                }
            shared = {}
            for method in self.methods:
                for first, second in product(self.texts, repeat=2):
                    both = zip(kept[f"{method} {first}"], kept[f"{method} {second}"], strict=True)
                    shared[f"{method} {first} {second}"] = sum(int((a & b).sum()) for a, b in both)
            return {"losses": losses, "kept": shared}

        decides = [self.sizes.continuation, self.sizes.ratio, self.hash]
        return self.run.part(f"transfer-{ids_hash(window[None])}", decides, make)

    def rows(self, name: str) -> list[Row]:
        """Of a domain that is read: for every method one for each domain that calibrates, its own first; and the null,
        which keeps as many keys, the first four and the newest."""
        read, documents = [self.window(window) for window in self.windows(name)[0]], self.windows(name)[1]
        losses = {key: np.array([document["losses"][key] for document in read]) for key in read[0]["losses"]}
        rows: list[Row] = []
        for method in self.methods:
            for calibrated in [name, *(other for other in self.texts if other != name)]:
                key, own_key = f"{method} {calibrated}", f"{method} {name}"
                row: Row = {"method": method, "title": METHODS[method].title, "calibrated": calibrated, "read": name}
                both, stay = (
                    sum(document["kept"][f"{own_key} {other}"] for document in read) for other in (calibrated, name)
                )
                row["agreement"] = both / stay
                row |= difference("against_dense", losses[key], losses[DENSE], documents)
                against, control = ("newest", NEWEST) if key == own_key else ("own", own_key)
                rows.append(row | difference(f"against_{against}", losses[key], losses[control], documents))
        row = {"method": NEWEST, "title": Newest.title, "calibrated": NOTHING, "read": name, "agreement": None}
        return [*rows, row | difference("against_dense", losses[NEWEST], losses[DENSE], documents)]

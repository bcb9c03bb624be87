"""The run store: equal requests are answered from it, and what is in it is whole or is said to be damaged."""

import json
import os
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import IO, Any

from ..answer import Answer
from ..commands import COMMANDS
from ..corpus import read_text, sample_texts
from ..declaration.command import SMALLEST, Command, Shape
from ..errors import BadSetting
from ..files import clear, sweep, write_bytes
from ..places import plain_name
from . import retention
from .arrival import finish
from .bundle import Arrived, read_bundle, write_bundle
from .folder import read_run
from .keys import asked_now, check_id, check_verb
from .notes import Notes
from .price import RECENT, Price, predict, usual
from .run import Marks, Result, Run, checked_link, read_marks
from .search import Forgotten, Row, named, surplus
from .shelf import Shelf, room
from .texts import Texts

Request = dict[str, Any]
PROJECT = Path(__file__).resolve().parents[2]
CARD = "model"  # pages make their controls of its runs: what somebody else computed is no answer


def state_root() -> Path:
    """The folder of what this installation computed: the one named by FOCUSCOPE_STATE, else models_cache/state."""
    return Path(os.environ.get("FOCUSCOPE_STATE") or PROJECT / "models_cache" / "state")


class RunStore:
    """`root`/runs/<id>/ (one folder per run), `root`/texts/, `root`/deleted/ (runs that can come back) and
    `root`/outdated/ (an empty file of its id for every run that answers nothing any more).

    The id of a run is the key of its request, of the version of its verb and of the weights (`keys`): by another
    program or about other weights it is another run. A run is written in a draft folder and renamed, so nobody finds
    half of one. The folders are the truth: what lists show is read from them (`catalogue`), and `runs.json` and
    `texts.json` only spare the next process that reading. `examples` is a second, read-only folder of run folders,
    asked when the own store has no answer. Several processes and threads may share one root. Without `root`: that of
    this installation (`state_root`), with the bundled examples.
    """

    def __init__(self, root: str | Path | None = None, examples: str | Path | None = None) -> None:
        if root is None:
            root = state_root()
            examples = examples or PROJECT / "models_cache" / "demo" / "examples"
        self.root = Path(root).resolve()
        self.examples = Path(examples).resolve() if examples else None
        self._own = Shelf(self.root / "runs", file=self.root / "runs.json")
        self._bundled = Shelf(self.examples or self.root / "examples", readonly=True)
        self._own.sweep()
        retention.take_over_pins(self.root / "focuscope.sqlite", self._own)
        self._notes = Notes(self.root)
        self._own.on_damage = lambda run_id, sentence: self._notes.note(sentence)
        self._trash = retention.Trash(self.root / "deleted")
        self._texts = Texts(self.root / "texts", self.root / "texts.json", self._requests)
        self._outdated = self.root / "outdated"
        for sentence in finish(self):
            self._notes.note(sentence)
        sweep(self.root, ".tmp-*.json-*", ".tmp-damage.log-*", "outdated/.tmp-*")

    @staticmethod
    def key(verb: str | Command, request: Request | None = None) -> str:
        """The id of the run that answers `verb` with the arguments `request` by today's program and weights."""
        return asked_now(verb, request).key

    def find(self, verb: str | Command, request: Request | None = None) -> Run | None:
        """The stored Run that answers this request by today's program and weights, own ones before examples, or None.
        Where no weights of its model lie on this disk, the newest one answers, whatever its weights. A damaged one is
        set aside and counts as none, so that it is computed anew; `damaged()` tells. Who asks shares the run with
        others, so it is not to be changed."""
        asked = asked_now(verb, request)
        ids = list(asked.keys)
        if asked.revision is None:
            ids += [row.id for row in self._own.rows() if row.question in asked.questions]
            ids += [key for question in asked.questions for key in self._example_questions.get(question, ())]
        return next((run for run in map(self._answer, ids) if run is not None), None)

    def put(
        self,
        verb: str,
        request: Request,
        result: Result | Answer,
        protocol: dict[str, Any],
        seconds: float,
        revision: str | None = None,
    ) -> Run:
        """Stores a Result and returns its Run. `revision` of the weights that were read, by default of those that lie
        here now. When an equal request was stored meanwhile, that one stays and is returned: delete it first to
        replace it. AnalysisError on a full disk, with nothing left behind."""
        wanted = asked_now(verb, request)
        wanted = replace(wanted, revision=revision or wanted.revision)
        key = wanted.key
        if self._answer(key) is None and self.has(key):
            # What stands there answers nothing any more.
            self.discard(key)
        self._own.place(wanted, result, protocol, seconds, Marks(link=self._notes.link(wanted.question)))
        clear(self._outdated / key)
        self._notes.forget_link(wanted.question)
        self.make_room({key})
        return replace(self.open(key), cached=False)

    def answers(self, run: Run) -> bool:
        """Whether this run is what its own request finds now."""
        answer = self.find(run.verb, run.request)
        return answer is not None and answer.id == run.id

    def make_room(self, kept: Container[str] = frozenset()) -> None:
        """Removes the oldest runs beyond what is kept here; those that are pinned or named in `kept` stay."""
        for run_id in surplus(self._own.rows(), *retention.limits(self.root)):
            # It may be pinned just now.
            if run_id not in kept and not read_marks(self._own.folder / run_id).pinned:
                self.delete(run_id)

    def open(self, run_id: str) -> Run:
        """The Run of this id, own or example; BadSetting when the id is malformed, unknown or its run damaged."""
        run = self._read(check_id(run_id))
        if run is None and run_id in self._own.newer:
            raise BadSetting(self._own.newer[run_id])
        if run is None:
            raise BadSetting(f"The run {run_id} is not stored here, or no longer whole: run it again.")
        return run

    def list(self, verb: str | None = None, limit: int = 50) -> Sequence[Run]:
        """The newest own runs, of one verb or of all; shared between callers, so not to be changed."""
        wanted = verb if verb is None else check_verb(verb)
        ids = [row.id for row in self._own.rows() if wanted in (None, row.verb)]
        return [run for run in map(self._own.read, ids[:limit]) if run is not None]

    def delete(self, run_id: str) -> None:
        """Removes one own run; no error when it is gone already. Examples stay."""
        self._own.remove(check_id(run_id))

    def search(
        self, words: str = "", verb: str | None = None, pinned: bool = False, examples: bool = True
    ) -> Sequence[Row]:
        """Rows of the stored runs in which every word stands, of one verb or of all, the newest first; after them the
        bundled examples, where they are wanted."""
        names = {key: name for key, name, _, _ in self.texts()}
        rows = self._own.rows()
        if examples:
            ids = {row.id for row in rows}
            rows += [row for row in reversed(self._bundled.rows()) if row.id not in ids]
        rows = [replace(row, text=names.get(str(row.text), row.text)) for row in rows]
        wanted = words.lower().split()
        return [row for row in rows if verb in (None, row.verb) and row.pinned >= pinned and row.matches(wanted)]

    def discard(self, run_id: str) -> None:
        """Deletes one own run so that `restore` can bring it back for `retention.KEPT_DAYS` days."""
        self._trash.take(self._own.folder / check_id(run_id))

    def restore(self, run_id: str) -> None:
        """Brings a deleted run back; BadSetting when it is gone for good."""
        if not self._trash.give(run_id, self._own):
            raise BadSetting(f"The run {run_id} can no longer be brought back: run it again.")

    def deleted(self) -> Sequence[Run]:
        """The runs that `restore` can bring back, the one deleted last first."""
        return self._trash.runs()

    def empty(self) -> None:
        """Removes the deleted runs for good."""
        self._trash.empty()

    def usage(self) -> retention.Usage:
        """What lies on the disk, and how much of it is kept."""
        rows, deleted, texts = self._own.rows(), self._trash.runs(), self._texts.list()
        pinned = [row.bytes for row in rows if row.pinned]
        kept_runs, kept_bytes = retention.limits(self.root)
        return retention.Usage(
            runs=len(rows),
            bytes=sum(row.bytes for row in rows),
            pinned=len(pinned),
            pinned_bytes=sum(pinned),
            deleted=len(deleted),
            deleted_bytes=sum(run.bytes for run in deleted),
            texts=len(texts),
            text_bytes=sum(text.bytes for text in texts),
            kept_runs=kept_runs,
            kept_bytes=kept_bytes,
        )

    def keep(self, runs: int, size: int) -> None:
        """Keeps at most so many runs and bytes from now on, beside pinned ones; the oldest beyond them go at once."""
        retention.choose_limits(self.root, runs, size)
        self.make_room()

    def remember(self, verb: str, request: Request, link: dict[str, Any]) -> None:
        """Notes the page and controls that ask for a run now: {"page": address, "controls": name -> text}, with
        the "seconds" that were said."""
        if checked_link(link) is not None:
            self._notes.remember(asked_now(verb, request).question, link)

    def forget(
        self, kind: str, name: str, model: str, by_default: Callable[[str, Request], bool] = lambda verb, request: False
    ) -> Forgotten:
        """A router, policy or method (`kind`) of a model was replaced: every own run of the model that names it, or
        uses it `by_default`, moves to the trash, pinned ones stay, and no example that used it answers any more."""
        # The card lists them, so it is made anew.
        if kind == "router":
            card = self.key(CARD, {"model": model})
            self._outdate(card)
            self.delete(card)
        moved, pinned = [], 0
        for row in self.search():
            first = row.request.get("model") or "demo"
            if model not in {plain_name(str(name)) for name in (first, row.request.get("other_model") or first)}:
                continue
            # Of the same model in another precision.
            if kind == "router" and row.verb == CARD:
                self._outdate(row.id)
                self.delete(row.id)
                continue
            if name not in named(kind, row.request) and not by_default(row.verb, row.request):
                continue
            if row.pinned:
                pinned += 1
            elif not (self._outdated / row.id).exists():
                self._outdate(row.id)
                if not row.example:
                    self.discard(row.id)
                    moved.append(row.id)
        return Forgotten(f"the {kind} {name}", moved, pinned)

    def pin(self, run_id: str, pinned: bool = True) -> None:
        """Keeps a run from being removed to make room, or lets it go again."""
        run = self._own.read(check_id(run_id))
        if run is None:
            raise BadSetting(f"The run {run_id} is not stored here (any more): run it again.")
        self._own.mark(run_id, replace(run.marks, pinned=bool(pinned)))

    def put_text(self, text: str, name: str, said: str = "", beside: Container[str] = ()) -> str:
        """Stores a text of at most 20 MB and returns the 12-digit hash of its content; `said`: what of a document it
        is, in one sentence; `beside`: hashes of others that stay as well."""
        with room(self.root):
            return self._texts.put(text, name, said, beside)

    def forget_text(self, key: str) -> None:
        """Removes a stored text."""
        self._texts.forget(key)

    def said(self, key: str) -> str:
        """What was read of the document that a stored text comes from; empty for plain text."""
        return self._texts.said(key)

    def put_bytes(self, data: bytes, name: str) -> str:
        """Stores an uploaded file once it has been read as text; BadText when it is none (`corpus.read_text`)."""
        return self.put_text(read_text(data, name), name)

    def text(self, key: str) -> tuple[str, str]:
        """(name, text) of a stored text; BadSetting when it is not here."""
        return self._texts.get(key)

    def samples(self) -> Sequence[tuple[str, str]]:
        """(hash, title) of the bundled sample texts, stored like a reader's own."""
        return [(self.put_text(text, title), title) for title, text in sample_texts().values()]

    def texts(self) -> Sequence[tuple[str, str, int, str]]:
        """(hash, name, bytes, created) of every stored text, the newest first."""
        return [(text.key, text.name, text.bytes, text.created) for text in self._texts.list()]

    def price(
        self,
        verb: str,
        model: str,
        tokens: int,
        bytes: int | None = None,
        request: Request | None = None,
        guess: Callable[[float], float] = usual,
        alike: Callable[[float, float], bool] = lambda seconds, work: True,
        shape: Shape = SMALLEST,
    ) -> Price:
        """Price of `verb` over `tokens` tokens with `model`, from the past runs of both on this machine. `bytes` is the
        caller's own estimate of memory, passed through. `request`: its other arguments, some of which repeat the work;
        `guess`: as in `predict`; `alike(seconds, work)`: whether a past run counts; `shape` of the model."""
        past = self.past(verb, model)
        # Some verbs read no text: their price is that of a run.
        counted = any(size for _, size, _ in past)
        workload = COMMANDS.get(verb, Command).workload
        done = [
            (took, workload(asked, size if counted else 1, shape)) for took, size, asked in past if size or not counted
        ]
        done = [one for one in done if alike(*one)]
        size = workload(request or {}, tokens if counted or not past else 1, shape)
        return predict(done, size, bytes, guess)

    def past(self, verb: str, model: str | None = None) -> Sequence[tuple[float, int, Request]]:
        """(seconds, tokens, request) of the newest runs of `verb` that were computed here, with a model or any."""
        check_verb(verb)
        rows = (row for row in self._own.rows() if row.verb == verb and row.imported is None)
        of_model = [row for row in rows if model is None or row.model == model]
        return [(row.seconds, row.tokens, row.request) for row in of_model[:RECENT]]

    def damaged(self) -> Sequence[str]:
        """One sentence for each run that was damaged and set aside, that a newer program wrote, and for each import
        that was stopped, the newest first."""
        self._own.rows()
        return [*self._own.newer.values(), *self._notes.sentences()]

    def bundle(self, run_ids: Iterable[str], target: Path | IO[bytes]) -> dict[str, Any]:
        """Writes runs and their texts into one file (`bundle.write_bundle`)."""
        return write_bundle(self, run_ids, target)

    def unbundle(self, source: str | Path | IO[bytes], own: bool = False) -> Arrived:
        """Brings in what `bundle` wrote, here or elsewhere (`bundle.read_bundle`); `own`: by a worker of ours."""
        arrived = read_bundle(self, source, own)
        for run_id in arrived.new if own else ():
            clear(self._outdated / run_id)
        return arrived

    def has(self, run_id: str) -> bool:
        """Whether there is an own whole run of this id."""
        return self._own.read(check_id(run_id)) is not None

    def take(self, folder: Path) -> None:
        """Moves a whole run folder of this disk into the store, unless a run of its id is there."""
        self._own.take(folder)

    def export_example(self, run_id: str, folder: str | Path) -> Path:
        """Copies a run folder to `folder`/<id>, where another store finds it as an example; returns that path."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        run = self.open(run_id)
        # A damaged file must not travel.
        for name in run.tables:
            run.table(name)
        for name in run.arrays:
            run.array(name)
        copied = Shelf(folder).copy_in(run)
        read_run(copied)
        return copied

    def close(self) -> None:
        """Keeps the catalogues for the next process; this store and its runs stay readable."""
        self._own.catalogue.save()
        self._texts.catalogue.save()

    def imported(self) -> tuple[int, int]:
        """(runs, bytes) that came in bundles and are not pinned."""
        sizes = [row.bytes for row in self._own.rows() if row.imported and not row.pinned]
        return len(sizes), sum(sizes)

    def _requests(self) -> Iterator[str]:
        """The requests of all runs, also of those that can be brought back, as JSON."""
        yield from (json.dumps(row.request) for row in self._own.rows())
        yield from (json.dumps(run.request) for run in self._trash.runs())

    def _answer(self, run_id: str) -> Run | None:
        """The run of this id when it may answer a request: what it used was not replaced, and what pages make their
        controls of was not computed by somebody else."""
        if (self._outdated / run_id).exists():
            return None
        run = self._own.read(run_id)
        if run is not None and not (run.marks.imported and run.verb == CARD):
            return run
        return self._bundled.read(run_id)

    def _outdate(self, run_id: str) -> None:
        with room(self._outdated):
            self._outdated.mkdir(parents=True, exist_ok=True)
            write_bytes(self._outdated / run_id, b"")

    @cached_property
    def _example_questions(self) -> dict[str, Sequence[str]]:
        """question -> ids of the examples that answer it about some weights."""
        ids: dict[str, Sequence[str]] = {}
        for row in self._bundled.rows():
            ids[row.question] = [*ids.get(row.question, ()), row.id]
        return ids

    def _read(self, run_id: str) -> Run | None:
        return self._own.read(run_id) or self._bundled.read(run_id)

"""The run store: equal requests are answered from it, and what is in it is whole or is said to be damaged."""

import os
from dataclasses import replace
from pathlib import Path

from analysis.corpus import read_text, sample_texts
from analysis.errors import BadSetting
from analysis.runs.database import Database
from analysis.runs.folder import read_run
from analysis.runs.index import Index
from analysis.runs.keys import canonical, check_id, check_verb, request_key
from analysis.runs.price import RECENT, predict
from analysis.runs.shelf import Shelf, room
from analysis.runs.texts import Texts

PROJECT = Path(__file__).resolve().parents[2]


class RunStore:
    """`root`/focuscope.sqlite (index), `root`/runs/<id>/ (one folder per run), `root`/texts/.

    The id of a run is the key of its request. A run is written in a draft folder and renamed, so nobody finds half of
    one; the folders are the truth and the index is rebuilt from them when it is lost. `examples` is a second,
    read-only folder of run folders, asked when the own store has no answer. Several processes and threads may share
    one root. Without `root`: the folder named by FOCUSCOPE_STATE, else models_cache/state, with the bundled examples.
    """

    def __init__(self, root=None, examples=None):
        if root is None:
            root = os.environ.get("FOCUSCOPE_STATE") or PROJECT / "models_cache" / "state"
            examples = examples or PROJECT / "models_cache" / "demo" / "examples"
        self.root = Path(root).resolve()
        self.examples = Path(examples).resolve() if examples else None
        self.database = Database(self.root / "focuscope.sqlite")
        self._own = Shelf(self.root / "runs", on_damage=self._on_damage)
        self._bundled = Shelf(self.examples, readonly=True) if examples else None
        self._own.sweep()
        self._index = None  # while the index is being filled, damage found in a folder is only logged
        self._index = Index(self.database, self._own)
        self._texts = Texts(self.root / "texts", self.database)

    @staticmethod
    def key(verb, request):
        """12 hexadecimal digits: the id of the run that answers `verb` with the arguments `request`."""
        return request_key(verb, request)

    def find(self, verb, request):
        """The stored Run for this request, own ones before examples, or None. A damaged one is set aside and counts
        as none, so that it is computed anew; `damaged()` tells."""
        return self._read(request_key(verb, request))

    def put(self, verb, request, result, protocol, seconds):
        """Stores a Result and returns its Run. When an equal request was stored meanwhile, that one stays and is
        returned: delete it first to replace it. AnalysisError on a full disk, with nothing left behind."""
        key = request_key(verb, request)
        self._own.place(key, verb, request, result, protocol, seconds)
        run = replace(self.open(key), cached=False)
        self._index.add(run)
        for surplus in self._index.surplus(kept=key):
            self.delete(surplus)
        return run

    def open(self, run_id):
        """The Run of this id, own or example; BadSetting when the id is malformed, unknown or its run damaged."""
        run = self._read(check_id(run_id))
        if run is None:
            raise BadSetting(f"The run {run_id} is not stored here, or no longer whole: run it again.")
        return run

    def list(self, verb=None, limit=50):
        """The newest own runs, of one verb or of all."""
        ids = self._index.ids(verb if verb is None else check_verb(verb), int(limit))
        return [run for run in map(self._own.read, ids) if run is not None]

    def delete(self, run_id):
        """Removes one own run; no error when it is gone already. Examples stay."""
        with room(self._own.folder):
            self._own.remove(check_id(run_id))
        self._index.remove(run_id)

    def forget(self, verb=None, **arguments):
        """Removes every unpinned own run (of one verb) whose request has all these arguments, such as model="demo" and
        router="mine" after that router was trained anew; returns how many."""
        wanted = canonical(arguments)
        if not wanted:
            raise BadSetting("Name at least one argument of the runs to forget, such as router.")
        gone = [
            run_id
            for run_id in self._index.unpinned()
            if (run := self._own.read(run_id))
            and verb in (None, run.verb)
            and all(run.request.get(name) == value for name, value in wanted.items())
        ]
        for run_id in gone:
            self.delete(run_id)
        return len(gone)

    def pin(self, run_id, pinned=True):
        """Keeps a run from being removed to make room, or lets it go again."""
        if not self._index.pin(check_id(run_id), pinned):
            raise BadSetting(f"The run {run_id} is not stored here (any more): run it again.")

    def put_text(self, text, name):
        """Stores a text of at most 20 MB and returns the 12-digit hash of its content."""
        with room(self.root):
            return self._texts.put(text, name)

    def put_bytes(self, data, name):
        """Stores an uploaded file once it has been read as text; BadText when it is none (`corpus.read_text`)."""
        return self.put_text(read_text(data, name), name)

    def text(self, key):
        """(name, text) of a stored text; BadSetting when it is not here."""
        return self._texts.get(key)

    def samples(self):
        """(hash, title) of the bundled sample texts, stored like a reader's own."""
        return [(self.put_text(text, title), title) for title, text in sample_texts().values()]

    def texts(self):
        """(hash, name, bytes, created) of every stored text, the newest first."""
        return self._texts.list()

    def price(self, verb, model, tokens, bytes=None):
        """Price of `verb` over `tokens` tokens with `model`, from the past runs of both on this machine. `bytes` is the
        caller's own estimate of memory, passed through."""
        return predict(self._index.past(check_verb(verb), model, RECENT), tokens, bytes)

    def damaged(self):
        """One sentence for each damaged run that was found and set aside, the newest first."""
        return self._index.damage()

    def export_example(self, run_id, folder):
        """Copies a run folder to `folder`/<id>, where another store finds it as an example; returns that path."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        run = self.open(run_id)
        for name in run.tables:  # a damaged file must not travel
            run.table(name)
        for name in run.arrays:
            run.array(name)
        copied = Shelf(folder).copy_in(run)
        read_run(copied)
        return copied

    def close(self):
        """Closes the database; the runs already opened stay readable."""
        self.database.close()

    def _read(self, run_id):
        run = self._own.read(run_id)
        if run is None and self._bundled is not None:
            run = self._bundled.read(run_id)
        return run

    def _on_damage(self, run_id, sentence):
        if self._index is not None:
            self._index.note_damage(run_id, sentence)

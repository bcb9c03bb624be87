"""The same jobs on Ray: every worker is an actor, on this machine or on any machine of a cluster (an optional extra).

On this machine the actors share the store's folder, so checkpoints and results are where they always are. On a cluster
(`ray://host:10001`) nothing need be shared: texts travel with the question, and the run comes back as a bundle, which
is judged like any other before it is stored.
"""

import contextlib
import os
import queue
import tempfile
import threading
from io import BytesIO
from pathlib import Path

from analysis.errors import AnalysisError, BadSetting
from analysis.jobs.client import STUDIES, Jobs
from analysis.jobs.inbox import Inbox
from analysis.jobs.keeper import PROJECT, Keeper
from analysis.jobs.process import Connection
from analysis.jobs.wire import encode
from analysis.runs import RunStore
from analysis.runs.bundle import named_texts

SENT = (".git", ".venv", "docs", "models_cache/state", "models_cache/corpora", "models_cache/finetuned")  # not sent
HEARING = 0.5  # seconds an actor waits for something to say before it answers that there is nothing
SETTINGS = {  # Ray's own: nothing is reported, and a busy machine may take minutes to start what takes seconds
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_agent_register_timeout_ms": "300000",
    "RAY_raylet_start_wait_time_s": "300",
}


class Host:
    """The actor: a worker in a thread, with its ear and its mouth. `root`: the store's folder, where it can be seen
    from here; else None, and it keeps a folder of its own."""

    def __init__(self, studies: str, root: str | None, examples: str | None):
        self._said, self._shared = queue.SimpleQueue(), root is not None
        self._store = RunStore(root or tempfile.mkdtemp(prefix="focuscope-"), examples)
        source, sink = os.pipe()
        self._input = os.fdopen(sink, "wb", buffering=0)
        threading.Thread(target=self._work, args=(studies, os.fdopen(source, "rb")), daemon=True).start()

    def _work(self, studies, source):
        from analysis.jobs.worker import make_worker

        try:
            worker = make_worker(self._store, Inbox(source), self._send, studies, self._note)
        except Exception as error:
            said = str(error) if isinstance(error, AnalysisError) else f"{type(error).__name__}: {error}"
            self._said.put({"fatal": f"it could not start: {said.rstrip('.')}"})
            return
        self._said.put({"ready": True, "pid": os.getpid()})
        worker.run()

    def _send(self, message):
        if "run" in message and not self._shared:
            target = BytesIO()
            self._store.bundle([message["run"]], target)
            message = {**message, "bundle": target.getvalue()}
        self._said.put(message)

    def _note(self, job, fraction, stage, left):
        self._said.put({"progress": job, "fraction": fraction, "stage": stage, "left": left})

    def say(self, message: dict, texts: list) -> None:
        """A message to the worker, and the texts (name, text) that it names."""
        for name, text in texts if not self._shared else ():
            self._store.put_text(text, name)
        self._input.write(encode(message))

    def hear(self) -> list:
        """What the worker has said since the last call, waiting a little for the first of it."""
        found = []
        with contextlib.suppress(queue.Empty):
            found.append(self._said.get(timeout=HEARING))
            while True:
                found.append(self._said.get_nowait())
        return found


class RayWorker(Connection):
    """A Host as the app sees it."""

    def __init__(self, ray, host, jobs):
        super().__init__()
        self._ray, self._host, self._jobs = ray, host, jobs
        self._killed = False
        threading.Thread(target=self._listen, name="ray-out", daemon=True).start()

    def _deliver(self, message):
        self._host.say.options(concurrency_group="ear").remote(message, self._jobs.texts_of(message.get("args")))

    def _listen(self):
        try:
            while not self._killed:
                for message in self._ray.get(self._host.hear.options(concurrency_group="mouth").remote()):
                    self._hear(message)
            self._end("it was killed")
        except self._ray.exceptions.RayError as error:
            self._end("it was killed" if self._killed else f"its process or its machine was lost ({_first(error)})")
        except Exception as error:  # such as an interpreter that ends
            self._end(f"the cluster was lost ({type(error).__name__})")

    def _hear(self, message):
        if "progress" in message:
            self._jobs.note(message)
            return
        if "ready" in message:
            self.pid = message["pid"]
        if "bundle" in message:
            try:
                self._jobs.take(message.pop("bundle"))
            except AnalysisError as error:
                message = {"id": message["id"], "error": {"type": "AnalysisError", "message": str(error)}}
        super()._hear(message)

    def kill(self, blame=None):
        """Ends the actor's process now, wherever it is."""
        with self._lock:
            self._blame, self._dying, self._killed = self._blame or blame, True, True
        with contextlib.suppress(Exception):
            self._ray.kill(self._host)

    def close(self, grace):
        """Ends the actor."""
        self.kill()

    def memory(self):
        """Not told over a cluster."""
        return 0


class RayKeeper(Keeper):
    """Keeps one actor warm."""

    def __init__(self, jobs, log_path):
        super().__init__([], log_path)
        self._jobs = jobs

    def _start(self):
        return self._jobs.host()


class RayJobs(Jobs):
    """`Jobs` on Ray. `address`: None for this machine, else `ray://host:10001`. `gpus` and `cpus`: what each of the
    `workers` reserves of the cluster; Ray shows it only those GPUs. Errors: BadSetting where Ray is missing or no
    cluster answers."""

    def __init__(self, store, studies=STUDIES, workers=1, address=None, gpus=0.0, cpus=1.0):
        self._ray, self._remote = _connected(address), address is not None
        self._resources = {"num_gpus": gpus, "num_cpus": cpus}
        super().__init__(store, studies, workers)

    def _make_keeper(self):
        return RayKeeper(self, self._store.root / "worker.log")

    def host(self):
        """A fresh worker on the cluster."""
        actor = self._ray.remote(concurrency_groups={"ear": 1, "mouth": 1}, **self._resources)(Host)
        seen = (None, None) if self._remote else (str(self._store.root), _path(self._store.examples))
        return RayWorker(self._ray, actor.remote(self._studies, *seen), self)

    def texts_of(self, args):
        """(name, text) of the stored texts that arguments name, for a worker that cannot see them."""
        found = []
        for key in named_texts(args) if self._remote else ():
            with contextlib.suppress(AnalysisError):
                found.append(self._store.text(key))
        return found

    def note(self, message):
        """Progress that arrived."""
        with contextlib.suppress(AnalysisError):
            self._table.progress(message["progress"], message["fraction"], message["stage"], message["left"])

    def take(self, bundle):
        """A run that arrived, judged before it is stored."""
        self._store.unbundle(BytesIO(bundle))

    def resources(self):
        """What the cluster has: {"CPU": n, "GPU": n, ...}."""
        return self._ray.cluster_resources()


def _connected(address):
    try:
        import ray
    except ImportError:
        raise BadSetting("Ray is not installed here: pip install -r requirements-ray.txt, or leave Ray out.") from None
    if ray.is_initialized():
        return ray
    path = os.pathsep.join(filter(None, [str(PROJECT), os.environ.get("PYTHONPATH")]))
    variables = {"OMP_WAIT_POLICY": "PASSIVE", "HF_HUB_OFFLINE": os.environ.get("HF_HUB_OFFLINE", "0")}
    here = {"env_vars": {**variables, "PYTHONPATH": path}}
    there = {"env_vars": variables, "working_dir": str(PROJECT), "excludes": list(SENT)}
    quiet = {"log_to_driver": False, "logging_level": "ERROR"}
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    try:
        if address is None:
            ray.init(include_dashboard=False, _node_ip_address="127.0.0.1", runtime_env=here, **quiet)
        else:
            ray.init(address, runtime_env=there, **quiet)
    except Exception as error:
        raise BadSetting(f"No Ray cluster answers at {address or 'this machine'} ({_first(error)}).") from error
    return ray


def _path(place: Path | None) -> str | None:
    return None if place is None else str(place)


def _first(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0][:120]}" if str(error) else type(error).__name__

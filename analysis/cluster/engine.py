"""The same jobs on Ray: every worker is an actor, on this machine or on any machine of a cluster (an optional extra).

On this machine the actors share the store's folder, so checkpoints and results are where they always are. On a cluster
(`ray://host:10001`) nothing need be shared: texts travel with the question, and the run comes back as a bundle, which
is judged like any other before it is stored.
"""

import contextlib
import os
import queue
import threading
import time
from io import BytesIO

from analysis.errors import AnalysisError, BadSetting
from analysis.jobs.client import STUDIES, Jobs
from analysis.jobs.inbox import Inbox
from analysis.jobs.keeper import Keeper
from analysis.jobs.process import PROJECT, Connection
from analysis.jobs.wire import encode
from analysis.package import installs
from analysis.runs import RunStore
from analysis.runs.bundle import named_texts

# What is not sent to a cluster: everything but the code and the bundled model.
STAYS = ["/*", "!/.", "!/analysis", "!/models_cache", "/models_cache/*", "!/models_cache/demo", "__pycache__"]
LOG = "worker.log"
FAR_LOG = f"models_cache/state/{LOG} of its own machine, where Ray unpacked the code"
PATIENCE = 0.2  # seconds an actor waits for something to say; as long may a message to it wait
SETTINGS = {  # Ray's own: nothing is reported, and a busy machine may take minutes to start what takes seconds
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_agent_register_timeout_ms": "300000",
    "RAY_raylet_start_wait_time_s": "300",
    "RAY_RUNTIME_ENV_IGNORE_GITIGNORE": "1",  # ours leaves out all models, and Ray misses that it takes one in again
}


class Host:
    """The actor: a worker in a thread, with its ear and its mouth. `root`: the store's folder, where it can be seen
    from here; else None, and the store of the machine it runs on is taken, which keeps its checkpoints."""

    def __init__(self, studies: str, root: str | None, examples: str | None):
        self._said, self._shared = queue.SimpleQueue(), root is not None
        self._store = RunStore(root, examples)
        with open(self._store.root / LOG, "a+b") as log:  # else Ray's own logs, far from where a sentence sends people
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        source, sink = os.pipe()
        self._input = os.fdopen(sink, "wb", buffering=0)
        threading.Thread(target=self._work, args=(studies, os.fdopen(source, "rb")), daemon=True).start()

    def _work(self, studies, source):
        from analysis.jobs.worker import Worker

        try:
            worker = Worker(self._store, Inbox(source), self._send, studies, self._note)
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

    def _note(self, job, fraction, stage, left, curve):
        self._said.put({"progress": job, "fraction": fraction, "stage": stage, "left": left, "curve": curve})

    def talk(self, messages: list) -> list:
        """Hands the worker `messages`, each with the texts (name, text) it names; returns what the worker has said
        since the last call, waiting a little for the first of it. One method: Ray keeps the order of its calls."""
        for message, texts in messages:
            for name, text in texts:
                self._store.put_text(text, name)
            self._input.write(encode(message))
        found = []
        with contextlib.suppress(queue.Empty):
            found.append(self._said.get(timeout=PATIENCE))
            while True:
                found.append(self._said.get_nowait())
        return found


class RayWorker(Connection):
    """A Host as the app sees it."""

    def __init__(self, ray, host, jobs):
        super().__init__()
        self._ray, self._host, self._jobs = ray, host, jobs
        self._unsent, self._handed, self._killed = queue.SimpleQueue(), set(), False
        threading.Thread(target=self._talk, name="ray-talk", daemon=True).start()

    def _deliver(self, message):
        self._unsent.put(message)

    def _talk(self):
        try:
            while not self._killed:
                messages = [self._unsent.get() for _ in range(self._unsent.qsize())]
                self._handed |= {message["do"] for message in messages if "do" in message}
                sent = [(message, self._jobs.texts_of(message.get("args"))) for message in messages]
                for message in self._ray.get(self._host.talk.remote(sent)):
                    self._hear(message)
            self._end("it was killed")
        except self._ray.exceptions.RayError as error:
            self._guess()
            self._end("it was killed" if self._killed else f"its process or its machine was lost ({_first(error)})")
        except Exception as error:  # such as an interpreter that ends
            self._end(f"the cluster was lost ({_first(error)})")
        finally:
            self.kill()  # one that was only out of reach must not stay behind

    def _guess(self):
        """Its last words are lost: the oldest call it was handed had begun, else that would end the next worker too."""
        with self._lock:
            handed = [call for call in self._calls.values() if call.id in self._handed]
        if self.ready and handed and not any(call.begun for call in handed):
            handed[0].begun = time.monotonic()

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
        with self._lock:
            self._blame, self._dying, self._killed = self._blame or blame, True, True
        with contextlib.suppress(Exception):
            self._ray.kill(self._host)

    def close(self, grace):
        self.kill()


class RayJobs(Jobs):
    """`Jobs` on Ray. `address`: None for this machine, else `ray://host:10001`. `gpus` and `cpus`: what each of the
    `workers` reserves of the cluster; Ray shows it only those GPUs. Errors: BadSetting without Ray or a large enough
    cluster."""

    def __init__(self, store, studies=STUDIES, workers=1, address=None, gpus=0.0, cpus=1.0):
        self._ray, self._remote = _connected(address), address is not None
        self._resources = {"num_gpus": gpus, "num_cpus": cpus}
        self._fit(workers, {"CPU": cpus, "GPU": gpus})
        super().__init__(store, studies, workers)

    def _fit(self, workers, each):
        """A worker that never finds its place would hold a job for ever."""
        has = self.resources()
        for kind, count in each.items():
            if workers * count > has.get(kind, 0):
                raise BadSetting(
                    f"{workers} workers with {count:g} {kind} each need {workers * count:g} and Ray has "
                    f"{has.get(kind, 0):g}: ask for fewer."
                )

    def _make_keeper(self):
        return Keeper(self.host, FAR_LOG if self._remote else self._store.root / LOG)

    def host(self):
        """A fresh worker on the cluster."""
        actor = self._ray.remote(**self._resources)(Host)
        examples = self._store.examples
        seen = (None, None) if self._remote else (str(self._store.root), examples and str(examples))
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
            told = [message[name] for name in ("progress", "fraction", "stage", "left", "curve")]
            self._table.progress(*told)

    def take(self, bundle):
        """A run that arrived, judged before it is stored."""
        self._store.unbundle(BytesIO(bundle), own=True)

    def resources(self):
        """What the cluster has: {"CPU": n, "GPU": n, ...}."""
        return self._ray.cluster_resources()


def _connected(address):
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError:
        raise BadSetting(f"Ray is not installed here: {installs('ray')}, or leave Ray out.") from None
    if ray.is_initialized():
        return ray
    path = os.pathsep.join(filter(None, [str(PROJECT), os.environ.get("PYTHONPATH")]))
    variables = {"OMP_WAIT_POLICY": "PASSIVE", "HF_HUB_OFFLINE": os.environ.get("HF_HUB_OFFLINE", "0")}
    here = {"env_vars": {**variables, "PYTHONPATH": path}}
    there = {"env_vars": variables, "working_dir": str(PROJECT), "excludes": STAYS}
    quiet = {"log_to_driver": False, "logging_level": "ERROR"}
    try:
        if address is None:
            ray.init("local", include_dashboard=False, _node_ip_address="127.0.0.1", runtime_env=here, **quiet)
        else:
            ray.init(address, runtime_env=there, **quiet)
    except Exception as error:
        raise BadSetting(
            f"No Ray cluster answers at {address or 'this machine'} ({_first(error)}): start it, and where it asks for "
            "a token set RAY_AUTH_MODE=token here too."
        ) from error
    return ray


def _first(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0][:120]}" if str(error) else type(error).__name__

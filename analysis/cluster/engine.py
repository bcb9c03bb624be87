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
from typing import IO, Any

from ..errors import AnalysisError, BadSetting
from ..jobs.client import STUDIES, Jobs
from ..jobs.inbox import Inbox
from ..jobs.keeper import Keeper
from ..jobs.process import PROJECT, Call, Connection
from ..jobs.wire import Message, encode
from ..package import installs
from ..runs import RunStore
from ..runs.bundle import named_texts

# What is not sent to a cluster: everything but the code and the bundled model.
STAYS = ["/*", "!/.", "!/analysis", "!/models_cache", "/models_cache/*", "!/models_cache/demo", "__pycache__"]
LOG = "worker.log"
FAR_LOG = f"models_cache/state/{LOG} of its own machine, where Ray unpacked the code"
# Seconds an actor waits for something to say; as long may a message to it wait.
PATIENCE = 0.2
SETTINGS = {
    # Nothing is reported.
    "RAY_USAGE_STATS_ENABLED": "0",
    # A busy machine may take minutes to start what takes seconds.
    "RAY_agent_register_timeout_ms": "300000",
    "RAY_raylet_start_wait_time_s": "300",
    # Our .gitignore leaves out all models, and Ray misses that it takes one in again.
    "RAY_RUNTIME_ENV_IGNORE_GITIGNORE": "1",
}
Texts = list[tuple[str, str]]  # (name, text) of each


class Host:
    """The actor: a worker in a thread, with its ear and its mouth. `root`: the store's folder, where it can be seen
    from here; else None, and the store of the machine it runs on is taken, which keeps its checkpoints."""

    def __init__(self, studies: str, root: str | None, examples: str | None) -> None:
        self._outbox: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._shared = root is not None
        self._store = RunStore(root, examples)
        # Ray has logs of its own, far from where our sentences send people.
        with open(self._store.root / LOG, "a+b") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        source, sink = os.pipe()
        self._input = os.fdopen(sink, "wb", buffering=0)
        threading.Thread(target=self._work, args=(studies, os.fdopen(source, "rb")), daemon=True).start()

    def _work(self, studies: str, source: IO[bytes]) -> None:
        from ..jobs.worker import Worker

        try:
            worker = Worker(self._store, Inbox(source), self._send, studies, self._note)
        except Exception as error:
            reason = str(error) if isinstance(error, AnalysisError) else f"{type(error).__name__}: {error}"
            self._outbox.put({"fatal": f"it could not start: {reason.rstrip('.')}"})
            return
        self._outbox.put({"ready": True, "pid": os.getpid()})
        worker.run()

    def _send(self, message: Message) -> None:
        if "run" in message and not self._shared:
            target = BytesIO()
            self._store.bundle([message["run"]], target)
            message = {**message, "bundle": target.getvalue()}
        self._outbox.put(message)

    def _note(self, job: str, fraction: float, stage: str, left: float | None, curve: Message | None) -> None:
        self._outbox.put({"progress": (job, fraction, stage, left, curve)})

    def talk(self, messages: list[tuple[Message, Texts]]) -> list[Message]:
        """Hands the worker `messages`, each with the texts it names; returns what the worker has said since the last
        call, waiting a little for the first of it. One method: Ray keeps the order of its calls."""
        for message, texts in messages:
            for name, text in texts:
                self._store.put_text(text, name)
            self._input.write(encode(message))
        heard = []
        with contextlib.suppress(queue.Empty):
            heard.append(self._outbox.get(timeout=PATIENCE))
            while True:
                heard.append(self._outbox.get_nowait())
        return heard


class RayWorker(Connection):
    """A Host as the app sees it."""

    def __init__(self, ray: Any, host: Any, jobs: "RayJobs") -> None:
        super().__init__()
        self._ray, self._host, self._jobs = ray, host, jobs
        self._outbox: queue.SimpleQueue[Message] = queue.SimpleQueue()
        # Calls.
        self._delivered: set[str] = set()
        self._killed = False
        threading.Thread(target=self._talk, name="ray-talk", daemon=True).start()

    def _deliver(self, message: Message) -> None:
        self._outbox.put(message)

    def _talk(self) -> None:
        try:
            while not self._killed:
                messages = [self._outbox.get() for _ in range(self._outbox.qsize())]
                self._delivered |= {message["do"] for message in messages if "do" in message}
                packed = [(message, self._jobs.texts_of(message.get("args"))) for message in messages]
                for message in self._ray.get(self._host.talk.remote(packed)):
                    self._hear(message)
            self._end("it was killed")
        except self._ray.exceptions.RayError as error:
            self._blame_oldest()
            self._end("it was killed" if self._killed else f"its process or its machine was lost ({_first(error)})")
        except Exception as error:  # such as an interpreter that ends
            self._end(f"the cluster was lost ({_first(error)})")
        finally:
            # One that was only out of reach must not stay behind.
            self.kill()

    def _blame_oldest(self) -> None:
        """Its last words are lost: the oldest call delivered had begun, else that would end the next worker too."""
        with self._lock:
            calls = [call for call in self._calls.values() if call.id in self._delivered]
        if self.ready and calls and not any(call.begun for call in calls):
            calls[0].begun = time.monotonic()

    def _hear(self, message: Message) -> None:
        if "progress" in message:
            self._jobs.note(*message["progress"])
            return
        self.pid = message.get("pid", self.pid)
        if "bundle" in message:
            try:
                self._jobs.take(message.pop("bundle"))
            except AnalysisError as error:
                message = {"id": message["id"], "error": {"type": "AnalysisError", "message": str(error)}}
        super()._hear(message)

    def kill(self, blame: Call | None = None) -> None:
        with self._lock:
            self._blame, self._dying, self._killed = self._blame or blame, True, True
        with contextlib.suppress(Exception):
            self._ray.kill(self._host)

    def close(self, grace: float) -> None:
        self.kill()


class RayJobs(Jobs):
    """`Jobs` on Ray. `address`: None for this machine, else `ray://host:10001`. `gpus` and `cpus`: what each of the
    `workers` reserves of the cluster; Ray shows it only those GPUs. Errors: BadSetting without Ray or a large enough
    cluster."""

    def __init__(
        self,
        store: RunStore,
        studies: str = STUDIES,
        workers: int = 1,
        address: str | None = None,
        gpus: float = 0.0,
        cpus: float = 1.0,
    ) -> None:
        self._ray, self._far = connected(address), address is not None
        self._reserved = {"num_gpus": gpus, "num_cpus": cpus}
        # A worker that never finds its place would hold a job for ever.
        for kind, count in (("CPU", cpus), ("GPU", gpus)):
            available = self.resources().get(kind, 0)
            if workers * count > available:
                raise BadSetting(
                    f"{workers} workers with {count:g} {kind} each need {workers * count:g} and Ray has "
                    f"{available:g}: ask for fewer."
                )
        super().__init__(store, studies, workers)

    def _make_keeper(self) -> Keeper:
        return Keeper(self.host, FAR_LOG if self._far else self._store.root / LOG)

    def host(self) -> RayWorker:
        """A fresh worker on the cluster."""
        actor = self._ray.remote(**self._reserved)(Host)
        examples = self._store.examples
        visible = (None, None) if self._far else (str(self._store.root), examples and str(examples))
        return RayWorker(self._ray, actor.remote(self._studies, *visible), self)

    def texts_of(self, args: object) -> Texts:
        """The stored texts that arguments name, for a worker that cannot see them."""
        texts = []
        for key in named_texts(args) if self._far else ():
            with contextlib.suppress(AnalysisError):
                texts.append(self._store.text(key))
        return texts

    def note(self, job: str, fraction: float, stage: str, left: float | None, curve: Message | None) -> None:
        """Progress that arrived."""
        with contextlib.suppress(AnalysisError):
            self._table.progress(job, fraction, stage, left, curve)

    def take(self, bundle: bytes) -> None:
        """A run that arrived, judged before it is stored."""
        self._store.unbundle(BytesIO(bundle), own=True)

    def resources(self) -> dict[str, float]:
        """What the cluster has: {"CPU": n, "GPU": n, ...}."""
        resources: dict[str, float] = self._ray.cluster_resources()
        return resources


def connected(address: str | None) -> Any:
    """The module of Ray, connected. Errors: BadSetting."""
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError:
        raise BadSetting(f"Ray is not installed here: {installs('ray')}, or leave Ray out.") from None
    if ray.is_initialized():
        return ray
    variables = {"OMP_WAIT_POLICY": "PASSIVE", "HF_HUB_OFFLINE": os.environ.get("HF_HUB_OFFLINE", "0")}
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    try:
        if address is None:
            path = os.pathsep.join(filter(None, [str(PROJECT), os.environ.get("PYTHONPATH")]))
            local = {"env_vars": {**variables, "PYTHONPATH": path}}
            ray.init("local", include_dashboard=False, _node_ip_address="127.0.0.1", runtime_env=local, **quiet)
        else:
            _join(ray, address, {"env_vars": variables, "working_dir": str(PROJECT), "excludes": STAYS}, quiet)
    except Exception as error:
        raise BadSetting(
            f"No Ray cluster answers at {address or 'this machine'} ({_first(error)}): start it, and where it asks for "
            "a token set RAY_AUTH_MODE=token here too."
        ) from error
    return ray


def _join(ray: Any, address: str, runtime_env: dict[str, Any], quiet: dict[str, Any]) -> None:
    """Connects to a cluster. Its head starts a process for every client, and gives that one up (Connection aborted)
    where it does not come in time, as on a busy machine; the next client finds it started."""
    for patience in (5, 15, None):
        try:
            ray.init(address, runtime_env=runtime_env, **quiet)
            return
        except ConnectionAbortedError:
            if patience is None:
                raise
            ray.shutdown()
            time.sleep(patience)


def _first(error: BaseException) -> str:
    """What kind of error, with the first line of what it says."""
    return ": ".join([type(error).__name__, *str(error).strip().splitlines()[:1]])[:160]

"""Long-context tests and benchmarks."""

from ..declaration import field
from ..declaration.command import OfModel, OfText, methods, router, seed


class Probe(OfModel):
    """Long-context probes: can a method find one thing in a long text, at any depth and length."""

    place = "probes.probe:probe"
    page = "/long-context-tests"

    text: str = field("", "text in which things are hidden (default: story)")
    probes: list[str] | None = field(
        None, "tasks such as uuid_needle,json,labels, or sets of texts such as banking77,nq (default: all tasks)"
    )
    data: str = field("", "a folder with one folder of files for each set of texts (default: models_cache/benchmarks)")
    methods: list[dict] | None = field(
        None, "methods such as dense,focus,streaming_llm (default: all)", option="--method"
    )
    lengths: list[int] | None = field(None, "lengths in tokens, one or several", low=16)
    depths: list[float] | None = field(
        None, "where the fact is placed, from 0 (beginning) to 1 (end) (default: five depths)", low=0, high=1
    )
    examples: list[int] | None = field(None, "numbers of labelled examples (default: 4,16,64)", low=1)
    items: int = field(8, "number of questions in each cell", former=16, low=1, high=512, control="probe_items")
    choices: int = field(
        4, "number of candidate answers; chance is one in this many", low=2, high=26, control="probe_choices"
    )
    write: bool = field(
        False,
        "also let the model write its answer, and count whether the right one stands in it",
        control="probe_write",
    )
    too_long: str = field(
        "refuse",
        "what to do with a prompt that is too long: refuse, or cut its beginning and count it",
        options=("refuse", "cut"),
    )
    rope: str = field(
        "as_trained",
        "positions: as_trained, longer, dynamic_ntk or base",
        options=("as_trained", "longer", "dynamic_ntk", "base"),
        control="probe_rope",
    )
    factor: float = field(2.0, "read texts up to this many times the context", low=1, high=64)
    base: float = field(500000.0, "base of the rotary embedding, with --rope base", low=10, high=1e9)
    seed: int = seed()


class Benchmark(OfModel):
    """Tasks of lm-evaluation-harness on local files: scores of methods, item by item against dense."""

    place = "benchmarks.benchmark:benchmark"
    page = "/long-context-tests?tests_tab=files"
    version = 2
    exclusive = True

    tasks: list[str] | None = field(
        None,
        "a task of the papers, or a task of the harness itself (default: hellaswag, arc_easy, piqa, lambada, "
        "truthfulqa and gsm8k)",
        word="[TASK...]",
    )
    methods: list[dict] | None = methods()
    data: str = field("", "a folder with one folder of files for each task (default: models_cache/benchmarks)")
    shots: int | None = field(
        None,
        "number of examples in a prompt (default: the task's own number, 8 of gsm8k)",
        low=0,
        control="benchmark_shots",
    )
    items: int | None = field(None, "only the first so many questions", low=1)
    question: str = field(
        "sparse",
        "how the question is read: sparse (set-up A) or dense (set-up B)",
        control="benchmark_question",
        options=("sparse", "dense"),
    )
    seed: int = seed()


class Pitfalls(OfText):
    """Two pitfalls on a model's own heads: merging sums of exponentials, and finding keys by hashing."""

    place = "grids.pitfalls:pitfalls"
    version = 2

    router: str = router()
    seed: int = seed()

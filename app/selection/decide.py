"""The pages that weigh quality against speed, and tests: their state in the address, beside the fields of commands."""

from dataclasses import dataclass

from analysis.commands.probes import Probe
from analysis.commands.speed import Worth
from analysis.declaration import field
from app.selection.patterns import MODEL

# The shape of the model in use.
LOADED = "loaded"
CONTEXTS = tuple(1 << power for power in range(8, 21))  # tokens, 256 to 1,048,576
SEQUENCES = (1, 2, 4, 8, 16, 32, 64, 128, 256)  # answered at once
# Fraction of the keys that is read.
KEEPS = (0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.33, 0.5, 0.75)
GPUS = {  # those of the worker, by their name there
    "T4": "NVIDIA T4, 16 GB",
    "L4": "NVIDIA L4, 24 GB",
    "RTX-4090": "NVIDIA RTX 4090, 24 GB",
    "L40S": "NVIDIA L40S, 48 GB",
    "A100-80GB": "NVIDIA A100 SXM, 80 GB",
    "H100-SXM": "NVIDIA H100 SXM, 80 GB",
    "H200-SXM": "NVIDIA H200 SXM, 141 GB",
    "MI300X": "AMD Instinct MI300X, 192 GB",
    "B200-SXM": "NVIDIA B200 SXM, 180 GB",
}
COUNTED = {"all": "all weights", "ffn": "feed-forward only"}
# Bytes of a cached number; 4 bits with a float16 scale and minimum for 64 tokens of keys and 32 numbers of values.
CACHES: dict[str, float | None] = {"weights": None, "16": 2.0, "8": 1.0, "4": 0.59375}
# Per cent of the causal pairs, the cache or the blocks that every method reads or keeps.
EQUAL_SHARES = (5, 10, 25, 50, 75, 90)
# Per cent of perplexity that a setting may lose.
MAY_LOSE = (1, 2, 5, 10)
SAVES = {  # what a method saves -> how it is called
    "reads": "reads",
    "memory": "memory",
    "prefill": "prompt",
}
SPEED_ON = {"model": "The loaded model on this text", "shapes": "Bare attention shapes"}
SPEED_WHAT = {
    "attention": "attention over a prompt",
    "decode": "attention of one token",
    "inference": "the whole model",
}
SPEED_MEMBERS = {
    "even": "random, of equal size",
    "skewed": "random, of unequal size",
    "router": "this router's on this text",
}
DTYPES = ("bfloat16", "float32", "float16")
PROBE_TASKS = {  # verb's name -> (title, axis of its map beside the length, glossary term)
    "uuid_needle": ("Needle", "depth", "needle"),
    "several_needles": ("Several needles", "depth", "several needles"),
    "json": ("JSON pairs", "depth", "JSON pairs"),
    "passages": ("Passage among passages", "depth", "passage among passages"),
    "frequent_words": ("Frequent words", None, "frequent words"),
    "labels": ("Labels from examples", "examples", "labels from examples"),
    "reranking": ("Passage reranking", "depth", "passage reranking"),
    "long_questions": ("Questions over a text", "depth", "questions over a text"),
    "citations": ("Answer with its source", "depth", "answer with its source"),
}
# Sets of texts that are read from local files, as the tasks above.
PROBE_SETS = {
    "banking77": ("Banking77", None, "sets of texts"),
    "clinc150": ("Clinc150", None, "sets of texts"),
    "nlu": ("NLU", None, "sets of texts"),
    "trec_coarse": ("TREC coarse", None, "sets of texts"),
    "trec_fine": ("TREC fine", None, "sets of texts"),
    "nq": ("Natural Questions", "depth", "sets of texts"),
    "hotpotqa": ("HotpotQA", "depth", "sets of texts"),
    "popqa": ("PopQA", "depth", "sets of texts"),
    "triviaqa": ("TriviaQA", "depth", "sets of texts"),
    "msmarco": ("MS MARCO", "depth", "sets of texts"),
    "narrativeqa": ("NarrativeQA", None, "sets of texts"),
    "alce_asqa": ("ALCE ASQA", "depth", "sets of texts"),
}
PROBE_WAYS = {
    "as_trained": "the model's own",
    "longer": "twice as far, unchanged",
    "dynamic_ntk": "twice as far, dynamic NTK",
}
# Tokens of the longest prompt.
PROBE_REACHES = tuple(1 << power for power in range(7, 18))
PROBE_ITEMS = (4, 8, 16, 32, 64)  # questions in a cell
PROBE_CHOICES = (2, 4, 8, 16)  # candidates of a question
TEST_TABS = {"one": "One test", "every": "Every test", "files": "Benchmarks"}
BENCHMARK_SHOTS = (None, 0, 1, 2, 4, 8, 16)  # examples in a prompt
# Questions; 0: all of them.
BENCHMARK_ITEMS = (20, 50, 100, 500, 0)


@dataclass(frozen=True)
class DecideControls:
    """Quality, speed and tests, page by page."""

    # Is it worth it?.
    shape: str = field(LOADED, pattern=MODEL)
    context: int | None = field(None, options=tuple(CONTEXTS))
    sequences: int = field(1, options=tuple(SEQUENCES))
    keep: float = field(Worth.keep, options=tuple(KEEPS))
    gpu: str | None = field(None, options=tuple(GPUS), label="GPU")
    shape_beside: str | None = field(None, pattern=MODEL, label="second model")
    counted: str = field("all", options=tuple(COUNTED))
    kv_bits: str = field("weights", options=tuple(CACHES), label="bits of a cached number")
    use_method: str = field("snapkv", pattern="[a-z0-9_]{1,40}", label="method to use")
    use_stack: str | None = field(None, pattern="[a-z_]{1,40}", label="serving stack")
    # Quality vs speed.
    tab: str | None = field(None, options=("quality", "equal", "speed"))
    quality_evidence: bool = field(False)
    quality: str | None = field(None, pattern="[a-z0-9_.~-]{1,400}", label="choice of methods")
    quality_saves: str = field("reads", options=tuple(SAVES), label="what the methods save")
    quality_memory: str | None = field(None, pattern="[a-z0-9_.~-]{1,400}", label="choice of methods that save memory")
    quality_prefill: str | None = field(
        None, pattern="[a-z0-9_.~-]{1,400}", label="choice of methods that save prefill time"
    )
    quality_prefix: int | None = field(None, high=9_999_999, label="prompt length")
    quality_split: bool = field(False, label="heads of DuoAttention")
    quality_lose: int = field(5, options=tuple(MAY_LOSE), label="loss that a search may not pass")
    quality_equal: int | None = field(None, options=tuple(EQUAL_SHARES), label="budget of all methods")
    equal_panel: str | None = field(None, pattern="[A-Za-z0-9][A-Za-z0-9 ,._-]{0,79}", label="text and context")
    bytes_axis: str = field("held", options=("held", "read"), label="bytes held or read")
    quality_read: str | None = field(None, pattern="all|[0-9]{2,7}w?", label="choice of what is read")
    quality_paint: str | None = field(None, pattern="[a-z_]{1,40}", label="method in front")
    quality_token: int | None = field(None, high=9_999_999, label="marked token")
    quality_numbers: bool = field(False)
    quality_searching: bool = field(False)
    # Speed.
    speed_on: str = field("model", options=tuple(SPEED_ON), label="choice of what is timed")
    speed_what: str = field("attention", options=tuple(SPEED_WHAT), label="choice of what is measured")
    speed_members: str = field("even", options=tuple(SPEED_MEMBERS), label="kind of groups")
    speed_lengths: str = field("1024, 4096, 16384", pattern="[0-9kKmM, ]{1,80}", label="list of lengths")
    speed_evidence: bool = field(False)
    speed_method: str = field("focus", pattern="[a-z0-9_]{1,40}", label="timed method")
    worth_details: bool = field(False)
    # Generate.
    generate: str = field("snapkv~ratio-0.75", pattern="[a-z0-9_.~-]{1,400}", label="choice of methods")
    generate_question: str | None = field(None, pattern=r"[^\x00-\x1f\x7f]{0,300}", label="question")
    generate_side: int = field(1, high=9, label="painted answer")
    generate_at: int | None = field(None, high=9_999, label="new token")
    generate_layer: int | None = field(None, high=9_999, label="layer")
    generate_head: int | None = field(None, high=9_999, label="head")
    generate_back: str | None = field(None, pattern=r"\d{1,4}\.\d{1,4}\.\d{1,7}", label="key that is put back")
    generate_reads: bool = field(False)
    generate_took: bool = field(False)
    # Long-context tests.
    tests_tab: str | None = field(None, options=tuple(TEST_TABS))
    tests_evidence: bool = field(False)
    probe: str = field("uuid_needle", options=(*PROBE_TASKS, *PROBE_SETS), label="long-context test")
    probe_methods: str | None = field(None, pattern="[a-z_]{1,40}(~[a-z_]{1,40}){0,9}", label="choice of methods")
    probe_reach: int | None = field(None, high=9_999_999, label="longest prompt")
    probe_items: int = field(Probe.items, options=tuple(PROBE_ITEMS), label="number of questions")
    probe_choices: int = field(Probe.choices, options=tuple(PROBE_CHOICES), label="number of candidates")
    probe_write: bool = field(Probe.write)
    probe_rope: str = field(Probe.rope, options=tuple(PROBE_WAYS), label="choice of positions")
    # Benchmarks on files.
    benchmark_tasks: str | None = field(None, pattern="none|[a-z_0-9]{1,40}(~[a-z_0-9]{1,40}){0,19}")
    benchmark_shots: int | None = field(None, high=9_999)
    benchmark_items: int = field(100, high=99_999)

"""Methods against dense attention."""

from collections.abc import Mapping
from typing import Any

from ..declaration import field
from ..declaration.command import (
    SMALLEST,
    Command,
    OfModel,
    OfText,
    OfTexts,
    Shape,
    long_text,
    methods,
    part,
    seed,
    window,
)
from .routing import OF_INDEXER

# Of an indexer that is exported: readings of a token of its texts, its trainings, and tokens of a window with half as
# many steps more than `route` takes.
MEASURED, TRAININGS, CALIBRATED_IN = 3, 7, 1536


class Evaluate(OfText):
    """What reading less does to the predictions of a text: methods against dense."""

    place = "quality.evaluate:evaluate"
    page = "/quality-vs-speed"
    version = 3
    readings = 0.0
    passes = 2.0
    repeated_by = ("methods",)
    scores = True

    methods: list[dict] | None = methods()
    window: int | None = window()
    seed: int = seed()
    long_text: str = long_text()
    share: float | None = field(None, "share of the causal pairs that every method is set to read", low=0.01, high=1)
    instead: bool = field(
        False,
        "let methods choose in place of the model's own indexer, among all past keys",
        control="quality_instead",
        label="replace the model's own indexer",
    )


class EqualBudget(OfText):
    """Settings at which all methods read the same number of keys."""

    place = "quality.equal_budget:equal_budget"
    page = "/quality-vs-speed?tab=equal"
    version = 2
    readings = 0.0
    passes = 3.0
    repeated_by = ("methods",)
    scores = True

    methods: list[dict] | None = methods()
    share: float = field(0.25, "share of the causal pairs that is read")
    attended: float | None = field(None, "average number of keys a query reads, instead of --share")
    window: int | None = window()
    long_text: str = long_text()
    windows: int = field(1, "number of windows of the text in which reads are counted", low=1)
    seed: int = seed()


class Continuation(OfTexts):
    """What follows a prompt whose KV cache was compressed once, or whose blocks were read in part: loss, keys and
    bytes."""

    place = "quality.continuation:continuation"
    page = "/quality-vs-speed?quality_saves=memory"
    version = 3
    readings = 0.0
    passes = 1.0

    methods: list[dict] | None = field(None, "methods, by comma (default: all that shrink the KV cache)")
    prefix: int | None = field(
        None,
        "tokens that are read before the cut (default: as many as the model's context allows)",
        control="quality_prefix",
    )
    continuation: int = field(256, "tokens after the cut that are scored", low=2, high=1 << 16)
    cuts: int = field(4, "stretches of each text", low=1, high=64)
    ratios: list[float] | None = field(None, "shares of the keys to remove, one row each, such as 0.25,0.5,0.75,0.9")
    share: float | None = field(None, "share of the KV cache to keep or of the blocks to read", low=0.01, high=1)
    question: str = field("", "a question between prefix and continuation: compressed before it is known, and after")
    seed: int = seed()


class Search(OfTexts):
    """Search for a setting: the smallest budget that loses less than a given share, over methods and settings."""

    place = "quality.search:search"
    page = "/quality-vs-speed?quality_saves=memory"
    version = 4

    saves: str = field(
        "memory", "what the methods save: reads, memory or prefill", options=("reads", "memory", "prefill")
    )
    methods: list[dict] | None = methods()
    lose: float = field(0.05, "the most that perplexity may rise, as a share: 0.05 is five per cent", low=0, high=1)
    prefix: int | None = field(None, "tokens that are read before the cut (default: 1024, or as many as fit)")
    continuation: int = field(128, "tokens after the cut that are scored", low=2, high=1 << 16)
    cuts: int = field(32, "stretches of text, half of which choose and half report", low=4, high=256)
    seed: int = seed()


class Take(Command):
    """A setting of a stored run to take along: policy, tensors and one Python file for transformers, as a zip."""

    place = "take.take:take"

    run: str = field(
        help="the 12-digit name of a stored run (`run` in the protocol of an answer, listed by `runs`), or a method to "
        "take along unmeasured",
        word="RUN",
    )
    method: dict | None = field(None, "which method of the run, where it is about several")
    output: str = field("", "file or folder to write")
    model: str | None = field(
        None, "demo, a Hugging Face id, or a local folder; precision and device may follow, as in NAME@bfloat16@cuda:1"
    )
    config: str | None = field(
        None, "a config.json in the place of the model, for a method that is not fitted to it: its weights stay away"
    )


class UseIn(OfModel):
    """What serving stacks are told to run a method, with lines to copy: transformers, vLLM, TensorRT-LLM and OpenVINO;
    or why one cannot."""

    place = "take.use_in:use_in"
    page = "/is-it-worth-it"
    version = 2

    method: str = field("snapkv", "a method such as snapkv, streaming_llm, skip_softmax or xattention", word="[METHOD]")
    length: int = field(32768, "tokens of the context", low=1, high=1 << 24)
    keep: float = field(0.1, "fraction of the keys that is read or held", low=0.001, high=1.0)
    gpu: str = field("", "a GPU by its data sheet, such as H100-SXM: says what it cannot run")
    config: str | None = field(None, "a config.json in the place of the model's own, to say what cannot run in it")


class SparseConfig(OfTexts):
    """Skip softmax for serving stacks: a sparse_attention_config for config.json, calibrated on texts, or options of
    TensorRT-LLM."""

    place = "take.sparse_config:sparse_config"

    output: str = field("", "FILE.json, a part of config.json, or FILE.yaml, options of TensorRT-LLM")
    prefill: float = field(0.5, "share of a prompt's blocks to leave out", low=0.1, high=0.9)
    decode: float = field(0.5, "share of the blocks to leave out for each token after the prompt", low=0.1, high=0.9)
    lengths: list[int] | None = field(
        None, "lengths of the windows in tokens (default: a quarter, a half and the whole of the context)"
    )
    dense: list[int] | None = field(None, "layers that stay dense, counted from 0")
    block: int = field(128, "queries and keys of a block of the serving kernel", low=8, high=512)


class ExportEviction(OfTexts):
    """A calibration on texts as serving stacks read it, with a certificate: TriAttention's statistics (FILE.pt) with
    TensorRT-LLM's options, KVzap's lines or an indexer's weights (FILE.safetensors), the share of keys of each head
    (FILE.npy), or which layers choose keys for those below (FILE.txt)."""

    place = "quality.eviction_files:export_eviction"
    page = "/routing?route_tab=fit"

    output: str = field("", "FILE.pt, FILE.safetensors, FILE.npy or FILE.txt; its certificate is FILE.json")
    method: str = field(
        "triattention",
        "whose calibration leaves: .pt, .safetensors, .npy, .txt, .safetensors",
        options=("triattention", "kvzap", "ada_kv", "layer_reuse", "indexer"),
    )
    kind: str = field("dsa", "which indexer leaves, of indexer", options=("dsa", "qsa", "m3", "seer", "low_rank"))
    ratio: float = field(
        0.5, "share of a prompt's keys that is removed, or not read, where it is measured", low=0.01, high=0.99
    )
    anchors: int = field(2, "layers that choose keys, of layer_reuse", low=1, high=256)
    share: str = field(
        "per_layer_perhead",
        "what keeps one set of keys under TriAttention: a head, a head in all layers, the model",
        options=("per_layer_perhead", "per_head", "union"),
    )
    budget: int = field(2048, "keys that TensorRT-LLM keeps at each eviction", low=1, high=1 << 24)
    prefix: int = field(512, "tokens that are read before keys are dropped", low=8, high=1 << 20)
    continuation: int = field(128, "tokens after them that are scored", low=2, high=1 << 16)
    cuts: int = field(16, "held-out stretches of text", low=2, high=1024)
    seed: int = seed()

    @classmethod
    def workload(cls, arguments: Mapping[str, Any], tokens: int, shape: Shape = SMALLEST) -> int:
        """Readings of a token: of the texts, by what is measured too, and the trainings of an indexer: for the file,
        for two halves of the texts, and on each bundled sample."""
        if arguments.get("method") != "indexer":
            return super().workload(arguments, tokens, shape)
        of_kind = OF_INDEXER.get(arguments.get("kind") or cls.defaults["kind"], 0)
        return round(MEASURED * max(int(tokens), 1) + TRAININGS * CALIBRATED_IN * of_kind * shape.beside)


class FitMethod(OfModel):
    """Fitting of a method to texts: triattention, kvzap, magicpig, routing_transformer, indexer or focal_learned."""

    place = "ready.calibration:fit_method"
    changes = True

    method: str = field("", "a method that is fitted to texts, such as triattention or magicpig", word="METHOD")
    texts: list[str] | None = field(
        None, "text files (default: the bundled samples except the story)", word="[TEXT...]"
    )
    clusters: int = field(16, "number of clusters of routing_transformer")
    steps: int = field(300, "number of training steps", control="learned_steps", low=1, high=1_000_000)
    rate: float = field(0.003, "learning rate of focal_learned's temperatures", control="learned_rate", low=0, high=1)
    mean: str = field(
        "prefix",
        "what the mean of focal_learned is over: the tokens so far, the whole text (literal), or none but the token",
        control="learned_mean",
        options=("prefix", "literal", "token"),
    )
    tau_min: float = field(
        5.0, "lowest temperature, for heads of 128 (11.31 is dense)", control="learned_low", low=0.5, high=32
    )
    tau_max: float | None = field(
        None, "highest temperature, for heads of 128 (default: 11.31, dense)", control="learned_high", low=0.5, high=32
    )
    offset: float | None = field(
        None,
        "temperature before any training (default: 11.31, dense; the paper has 0)",
        control="learned_offset",
        low=0,
        high=32,
    )
    seed: int = seed()


# Settings of a learned temperature that its paper prints (section 2.2).
FOCAL_AS_PRINTED: dict[str, Any] = {"mean": "literal", "tau_min": 5.0, "tau_max": 10.0, "offset": 0.0}


class ImportHeads(OfModel):
    """Scores of heads for DuoAttention from a file: full_attention_heads.tsv, or layer-head scores as JSON."""

    place = "ready.head_lists:import_heads"
    changes = True

    table: str = field(
        help="a line of scores for each layer, one of each key-value head, or a JSON object {layer-head: [score]}",
        word="FILE.tsv|FILE.json",
    )


class ExportHeads(OfModel):
    """Scores of heads of DuoAttention as a file: full_attention_heads.tsv with its config.json, or layer-head scores
    as JSON."""

    place = "ready.head_lists:export_heads"
    changes = True

    output: str = field(help="file or folder to write")
    n_sink: int = field(16, "first tokens that a head without retrieval keeps")
    window: int = field(64, "last tokens that a head without retrieval keeps")


class HeadSplit(OfText):
    """Which heads DuoAttention lets keep every key, beside what a text is estimated to lose without each."""

    place = "ready.head_lists:head_split"
    page = "/quality-vs-speed?quality_saves=memory"
    version = 2
    readings = 0.0
    passes = 3.0
    gradient = True

    ratio: float = field(0.5, "share of the key-value heads that keep sinks and a window only")
    by: str = field("zero", "what a head's output becomes: zero, mean or resample")
    part: int = part()
    long_text: str = long_text()


class Generate(OfText):
    """Generation from a prompt, dense beside up to two methods: tokens, times, bytes held, what was read and what was
    gone."""

    place = "generate.generate:generate"
    page = "/generate"
    version = 2
    readings = 0.0
    passes = 2.0

    methods: list[dict] | None = methods()
    question: str = field("", "a question behind the text", control="generate_question")
    new_tokens: int = field(
        48, "number of tokens to generate", control="generate_new", label="number of new tokens", low=2, high=256
    )
    length: int | None = field(
        None,
        "tokens of the text, from its beginning (default: as many as fit)",
        control="generate_prompt",
        label="prompt length",
        low=2,
        high=1 << 24,
    )
    known: bool = field(
        True, "the question is read before keys are dropped", control="generate_known", label="time of the question"
    )
    chat: bool = field(
        True,
        "the prompt inside the tokenizer's chat template, where it has one",
        control="generate_chat",
        label="chat template",
    )
    put_back: list[int] | None = field(
        None,
        "layer, key-value head and place of a key that is kept in one more answer, by the last method and its budget",
        low=0,
        high=1 << 24,
        label="key that is put back",
    )

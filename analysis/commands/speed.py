"""Speed and memory."""

from ..declaration import field
from ..declaration.command import Command, OfModel, OfText, long_text, router, seed


class Launch(OfText):
    """Dense and sparse runs of a text in alternation: times, memory and both texts."""

    place = "speed.launch:launch"
    page = "/speed"
    version = 2
    exclusive = True

    router: str = router()
    top: int | None = field(
        None,
        "number of groups each token belongs to (default: the router's)",
        control="speed_top",
        label="groups per token",
        low=1,
        high=64,
    )
    window: int | None = field(
        None,
        "number of recent tokens that are always read (default: the router's)",
        control="speed_window",
        label="window",
        low=1,
        high=1 << 24,
    )
    n_sink: int | None = field(
        None,
        "number of first tokens that are always read (default: the router's)",
        control="speed_sinks",
        label="number of sinks",
        low=0,
        high=64,
    )
    new_tokens: int = field(
        32, "number of tokens to generate", control="speed_new", label="number of new tokens", low=2, high=1024
    )
    length: int | None = field(
        None,
        "tokens in the prompt (default: as many as fit)",
        control="speed_prompt",
        label="prompt length",
        low=2,
        high=1 << 24,
    )
    repeats: int = field(5, "number of rounds, with dense and sparse in alternation", low=1, high=50)
    long_text: str = long_text("first")


class TimeMethod(OfText):
    """Speed of a method's own kernels against dense attention: the prompt, and the tokens after it."""

    place = "speed.method:time_method"
    page = "/speed"
    exclusive = True

    method: dict | None = field(None, "a method such as quest, csa, bucket_routing or focus")
    length: int | None = field(None, "tokens in the longest prompt (default: as many as fit)")
    new_tokens: int = field(16, "number of tokens to generate", low=2, high=1024)
    repeats: int = field(3, "number of rounds, with dense and sparse in alternation", low=1, high=50)


class Bench(OfModel):
    """Speed of the sparse kernels on this machine by length, against the fastest dense kernel."""

    place = "speed.bench:bench"
    page = "/speed"
    exclusive = True

    what: str = field(
        "attention",
        "attention (a kernel), decode (one token), inference (a whole model) or model (every page's verb)",
        word="[WHAT]",
        options=("attention", "decode", "inference", "model"),
    )
    lengths: list[int] | None = field(None, "lengths in tokens, one or several")
    heads: int = field(8, "number of query heads", control="speed_heads", label="number of heads", low=1, high=256)
    head_dim: int = field(64, "dimensions of a head", control="speed_size", label="head size", low=1, high=512)
    groups: int = field(8, "number of groups K", control="speed_groups", label="number of groups", low=1, high=64)
    top: int = field(1, "number of groups each token belongs to", low=1, high=64)
    window: int = field(128, "number of recent tokens that are always read", low=1, high=1 << 24)
    dtype: str = field(
        "bfloat16",
        "number format: bfloat16, float16 or float32",
        control="speed_dtype",
        label="precision",
        options=("bfloat16", "float32", "float16"),
    )
    batch: int = field(
        1, "number of sequences processed together", control="speed_batch", label="batch", low=1, high=1024
    )
    repeats: int = field(
        5,
        "number of rounds, with dense and sparse in alternation",
        control="speed_rounds",
        label="number of rounds",
        low=1,
        high=1000,
    )
    kv_heads: int | None = field(None, "number of key-value heads (default: one for each query head)", low=1, high=256)
    backend: str = field(
        "auto",
        "what computes grouped attention: the quickest here, or one by name; flash_attn is a package for NVIDIA GPUs",
        options=("auto", "reference", "compiled", "torch", "flash_attn"),
    )
    skew: bool = field(False, "also make groups of unequal size")
    router: str | None = field(None, "take the groups that this router gives the bundled story, such as k8-top1")
    layer: int | None = field(None, "layer of that router (default: the middle one)")
    text: str = field("", "a text file, - for standard input, or story, essay, program")
    seed: int = seed()
    new_tokens: int = field(16, "number of tokens to generate", low=2, high=1024)


class GpuCheck(OfModel):
    """One NVIDIA GPU in minutes: its tests, attention by length beside Focus table 6, decoding, every method."""

    place = "speed.gpu_check:GpuCheck.run"
    page = "/speed?speed_evidence=yes"
    changes = True
    exclusive = True
    stored = True

    longest: int = field(1 << 20, "the longest text of bare attention, in tokens", low=1024, high=1 << 20)
    repeats: int = field(5, "number of rounds, with dense and sparse in alternation", low=1, high=100)
    tests: bool = field(True, "also run the tests marked gpu, where the checkout and pytest are at hand")
    seed: int = seed()
    output: str | None = field(None, "file or folder to write")
    work: str | None = field(None, "folder of intermediate results to continue from (default: beside the output)")
    quick: bool = field(False, "compute a stated part of what is stored again, in under two minutes, and store nothing")


class CalibrateMachine(Command):
    """Measure this machine's constants once: prices and predicted speeds go by them."""

    place = "speed.calibrate_machine:calibrate_machine"
    page = "/speed"
    changes = True
    exclusive = True

    repeats: int = field(5, "number of rounds", low=1, high=100)


class Worth(OfModel):
    """What sparse attention could gain at most, from a config.json alone."""

    place = "worth.worth:worth"
    page = "/is-it-worth-it"
    version = 3

    config: str | None = field(
        None,
        "a config.json, - for standard input, or a model (default: the one named by --model)",
        word="[CONFIG.json|MODEL]",
    )
    contexts: list[int] | None = field(
        None, "context lengths in tokens, one or several (default: 1024 to the model's context)"
    )
    batches: list[int] | None = field(None, "batch sizes, one or several (default: 1,8,64)")
    keep: float = field(0.1, "fraction of the keys that is read", control="keep")
    projections: bool = field(True, "also count the projections and the output head, not only attention")
    kv_bytes: float | None = field(
        None,
        "bytes of a number in the KV cache: 2 in bfloat16, 1 in fp8, 0.59 in 4 bits with their scales (default: as the "
        "weights)",
        label="bytes of a cached number",
        low=0.1,
        high=8.0,
    )
    gpu: str = field(
        "",
        "a GPU by its data sheet, for times at best: T4, L4, RTX-4090, L40S, A100-80GB, H100-SXM, H200-SXM, MI300X or "
        "B200-SXM",
    )


class MakeShape(Command):
    """A checkpoint of a real model's shape with random weights, to measure time and memory on."""

    place = "analysis.shapes:make_shape"
    changes = True

    shape: str = field(
        help="a config.json, or a known shape such as Qwen2.5-0.5B, Llama-3.2-1B or pythia-410m",
        word="NAME|CONFIG.json",
    )
    output: str = field(help="file or folder to write")
    layers: int | None = field(
        None, "so many of its layers, of each kind one as far as they reach (default: all)", low=1, high=1000
    )

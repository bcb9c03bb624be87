"""The options of the command line: which verbs there are, and what each of them takes."""

import argparse
from pathlib import Path

from analysis.cli.benchmark_options import benchmark_options
from analysis.cli.method_options import method_options
from analysis.cli.probe_options import probe_options
from analysis.cli.route_options import routing_options
from analysis.cli.run_options import run_options
from analysis.cli.stress_options import stress_options
from analysis.cli.words import numbers, policy, whole_numbers
from analysis.studies import NAMED

HELP = {
    "inspect": "tokens, windows and warnings of a text",
    "model": "the model's card, its routers, and its parity with the stock model",
    "groups": "what the learned groups hold in a text (Focus, section 5)",
    "pairs": "the strongest far-apart pairs of one group, with null controls",
    "compare": "how far two routers put the same tokens together, groups matched",
    "group-controls": "groups layer by layer beside random centroids and k-means (Focus, section 5)",
    "fit-router": "a Focus router without training, in seconds",
    "train-router": "a trained Focus router, the model frozen; resumes when stopped",
    "statistics": "entropy, rank, sink, window and distance of every head's attention, exact",
    "head": "one head on a text: what a token reads, by distance and query by query",
    "temperature": "what a softmax temperature does to every head on a text (Focal Attention)",
    "temperature-curve": "perplexity of a text at softmax temperatures, for all layers or one at a time",
    "evaluate": "what reading less does to the predictions of a text: methods against dense",
    "equal-budget": "the settings at which methods read as many keys of a query as each other",
    "fit-method": "what a method needs of a text, stored: magicpig, routing_transformer, focal_learned",
    "calibrate": "CSA: ranks, budgets and the smallest cap that changes no position; the policy is stored",
    "cap-sweep": "a policy of CSA under several caps, against dense by position, on other texts than its own",
    "reads-sweep": "ever fewer keys by the ranks of a policy of CSA: the mean beside the worst positions",
    "reads-text": "the same on one text, token by token, with the key that the worst token lost",
    "budgets": "the budgets of a policy of CSA, with changes by hand, and what they read",
    "calibrations": "how far two stored policies agree, such as of two corpora",
    "lost-keys": "which keys a token lost to a policy of CSA: the token that it hurts most, or one you name",
    "import-policy": "check a policy of CSA from a JSON file against the model and store it",
    "topk-cost": "what the top-k kernels of CSA cost here, against dense and the masked pass",
    "route": "recall of bucket routers, calibrated on the first half of the documents, tested on the rest (GWR)",
    "route-at": "recall at any number of buckets, from the stored curves or on a text",
    "route-visit": "the buckets that one query of a text visits, with its real attention",
    "route-time": "one more token with bucket routing against dense: measured time per step",
    "probe": "long-context probes: can it find one thing in a long text, at any depth and length",
    "benchmark": "tasks of lm-evaluation-harness on local files: scores of methods, item by item against dense",
    "pitfalls": "two findings on a model's own heads: sums of exponentials put together, and keys found by hashing",
    "report": "one self-contained page about a text",
    "finetune": "training baselines on a domain: LoRA, full fine-tuning, Focus' router; resumes when stopped",
    "pretrain": "a small language model of your own from a folder of texts; resumes when stopped",
    "study": f"a named study, stored; continues when stopped: {', '.join(NAMED)}",
    "launch": "a model on a text, dense and sparse in turns: times, memory and both texts",
    "time-method": "a model with a method's own kernels against dense in turns: a prompt, and tokens after it",
    "bench": "how fast the sparse kernels are here, by length, against the fastest dense one",
    "worth": "what sparse attention could gain at most, from a config.json alone",
    "runs": "the stored runs of the app, found by words",
    "bundle-out": "stored runs and their texts as one file, for another machine",
    "bundle-in": "such a file brought in: names, sizes, schema and checksums are judged before anything is kept",
    "examples": "the stored examples of every page, computed anew in their place",
    "spread": "one study in many parts, over the values of an argument, on several workers or a Ray cluster",
    "stress": "load, faults and hostile input on the real app, bounded and on loopback",
}
OF_TEXTS = ("calibrate", "cap-sweep", "reads-sweep")
OF_A_TEXT = ("inspect", "statistics", "head", "temperature", "temperature-curve", "groups", "pairs", "compare")
OF_A_TEXT += ("group-controls", "evaluate", "equal-budget", "reads-text", "lost-keys", "report", "launch")
OF_A_TEXT += ("time-method", "pitfalls")


class _Parser(argparse.ArgumentParser):
    """Refuses nonsense in one sentence; the usage stands in --help."""

    def error(self, message: str):
        short = message if len(message) < 400 else message.split(" (choose from")[0]
        self.exit(2, f"{self.prog}: {short}; see --help.\n")


def parser(about: str) -> argparse.ArgumentParser:
    """The parser of every verb: `verb`, `json` and what the study of that verb takes, named as its parameters."""
    made = _Parser(prog="python -m analysis", description=about)
    verbs = made.add_subparsers(dest="verb", required=True, metavar="VERB")
    for verb, text in HELP.items():
        sub = verbs.add_parser(verb, help=text, description=text)
        if verb in OF_A_TEXT:
            sub.add_argument("text", metavar="TEXT", help="a text file, - for standard input, or story, essay, program")
        if verb in OF_TEXTS:
            sub.add_argument("texts", metavar="TEXT", nargs="*", help="text files, or story, essay, program")
        sub.add_argument("--model", default="demo", help="demo, a Hugging Face id, or a local folder")
        sub.add_argument("--state", type=Path, metavar="DIR", help="fitted state (default: the model's own folder)")
        sub.add_argument("--device", default="auto")
        sub.add_argument("--seed", type=int, default=0)
        sub.add_argument("--set", action="append", default=[], metavar="METHOD.FIELD=VALUE", help="a method's setting")
        sub.add_argument("--json", action="store_true", help="one JSON object as the last line of standard output")
        if verb in (*OF_A_TEXT[1:], "study"):
            sub.add_argument("--router", default="k8-top1", help="which router: kGROUPS-topMEMBERSHIPS")
        _own_options(verb, sub)
    return made


def _own_options(verb: str, sub: argparse.ArgumentParser) -> None:
    """The options that only some verbs have, named as the study's parameters."""
    if verb in ("pairs", "report"):
        sub.add_argument("--min-distance", type=int, default=128, help="tokens between query and key, at least")
    if verb == "compare":
        sub.add_argument("--other", required=True, help="the other router, such as k8-top2")
        sub.add_argument("--other-model", default="", help="its model (default: the same)")
    if verb in ("statistics", "head"):
        sub.add_argument("--mass", type=float, default=0.9, help="of the rank: fewest keys that hold it")
        sub.add_argument("--window", type=int, default=128, help="tokens of the window mass, the token itself included")
        sub.add_argument("--without-first", action="store_true", help="leave the first token out and renormalise")
    if verb in ("head", "temperature"):
        for name, which in (("layer", "layer"), ("head", "head"), ("part", "window")):
            sub.add_argument(f"--{name}", type=int, default=0, help=f"which {which}")
        sub.add_argument("--query", type=int, help="which token of the window (default: its last)")
    if verb == "head":
        sub.add_argument("--top", type=int, default=20, help="how many keys")
    if verb in ("temperature", "temperature-curve"):
        sub.add_argument("--t", type=numbers, metavar="T,T,...", help="temperatures; 1 is dense attention")
    if verb == "temperature-curve":
        sub.add_argument("--by-layer", type=numbers, metavar="T,T,...", help="one temperature for each layer")
        sub.add_argument("--layers", type=numbers, metavar="T,T,...", help="temperatures that each layer gets alone")
        sub.add_argument("--window", type=int, help="tokens read at once (default: as many as the model takes)")
    if verb == "pairs":
        sub.add_argument("--top", type=int, default=20, help="how many pairs")
        for name in ("layer", "group", "head"):
            sub.add_argument(f"--{name}", type=int, help=f"only this {name}")
        sub.add_argument("--all-words", dest="content", action="store_false", help="not only content words")
    if verb in ("evaluate", "equal-budget"):
        sub.add_argument("--methods", metavar="A,B,...", help="dense,focus,streaming_llm,... (default: all there are)")
        sub.add_argument("--window", type=int, help="tokens read at once (default: as many as the model takes)")
        first = {"action": "store_const", "const": "first", "default": "windows", "help": "only the first window"}
        sub.add_argument("--first", dest="long_text", **first)
    if verb in ("evaluate", "cap-sweep", "reads-sweep", "reads-text", "budgets", "lost-keys"):
        sub.add_argument("--policy", type=policy, metavar="NAME|JSON", help="of CSA (default: the stored one)")
    if verb in (*OF_TEXTS, "budgets", "lost-keys", "reads-text"):
        sub.add_argument("--window", type=int, help="tokens read at once (default: as many as the model takes)")
    if verb in OF_TEXTS:
        sub.add_argument("--tokens", type=int, default=16384, help="of each side, at most")
    if verb in ("reads-sweep", "reads-text"):
        sub.add_argument("--shares", type=numbers, metavar="X,X,...", help="of the causal pairs (default: 1 to 0.02)")
    if verb in ("calibrate", "cap-sweep"):
        sub.add_argument("--caps", type=whole_numbers, metavar="N,N,...", help="(default: 32,64,128,256,512; none)")
        sub.add_argument("--tolerance", type=float, default=0.01, help="of perplexity, as a share")
        sub.add_argument("--tolerance-bin", type=float, default=0.02, help="of the worst position bin")
    if verb == "calibrate":
        sub.add_argument("--corpus", default="", metavar="DIR", help="a folder of texts instead, with held-out ones")
        sub.add_argument("--against", nargs="+", metavar="TEXT", help="measure on these (default: the later half)")
        sub.add_argument("--mass", type=float, default=0.9, help="of a head's attention that its rank holds")
        sub.add_argument("--min-pos", type=int, default=0, help="first position that counts in a rank")
        sub.add_argument("--beta", type=float, default=1.0, help="keys in all, by the sum of the ranks")
        sub.add_argument("--total", type=int, help="keys of all heads together, instead of --beta")
        sub.add_argument("--reads", type=float, help="as many keys as read this share of the causal pairs")
        sub.add_argument("--floor", type=int, default=2, help="keys that every head gets")
        sub.add_argument("--name", default="policy", help="the policy is stored under this name")
        sub.add_argument("-o", "--output", metavar="FILE.json", help="write the policy here too")
    if verb == "calibrations":
        sub.add_argument("--policy", default="policy", help="a stored policy")
        sub.add_argument("--other", required=True, help="the other one")
    if verb == "lost-keys":
        sub.add_argument("--cap", type=int, help="most keys of a head (default: the policy's)")
        sub.add_argument("--position", type=int, help="of the token in the text (default: the one hurt most)")
    if verb == "import-policy":
        sub.add_argument("text", metavar="FILE.json", help="the policy")
        sub.add_argument("--name", default="uploaded", help="the policy is stored under this name")
    if verb == "topk-cost":
        sub.add_argument("--lengths", type=whole_numbers, metavar="N,N,...", help="tokens (default: 1024,4096)")
        for name, default in {"keys": 64, "heads": 8, "head-dim": 64, "repeats": 5}.items():
            sub.add_argument(f"--{name}", type=int, default=default)
        sub.add_argument("--kv-heads", type=int, help="heads of keys and values (default: as many as heads)")
    run_options(verb, sub)
    routing_options(verb, sub)
    stress_options(verb, sub)
    probe_options(verb, sub)
    method_options(verb, sub)
    benchmark_options(verb, sub)
    if verb in ("fit-router", "train-router"):
        sub.add_argument("--groups", type=int, default=8, help="K")
        sub.add_argument("--top", type=int, default=1, help="groups each token belongs to")
        sub.add_argument("--window", type=int, default=128 if verb == "fit-router" else 16)
    if verb == "train-router":
        sub.add_argument("--corpus", required=True, metavar="DIR", help="folder of .txt, .md or .py files")
        sub.add_argument("--steps", type=int, default=300)
        sub.add_argument("--rate", type=float, default=1e-3)
        sub.add_argument("--tokens-per-step", type=int, default=2048)
        sub.add_argument("--sinks", dest="n_sink", type=int, default=4, help="first tokens that are always read")
        sub.add_argument("--phase", type=int, default=1, help="1: the router; 2: a copy of the model with it")
        sub.add_argument("--base-rate", type=float, default=1e-4, help="of the model in phase 2")
        sub.add_argument("--reading", default="soft", help="soft, straight_through, or in phase 2 hard")
        sub.add_argument("--gate", default="log", help="log, literal or centred")
        sub.add_argument("--balance", default="sinkhorn", help="sinkhorn or softmax")
        sub.add_argument("--temperature", type=float, default=0.1)
        sub.add_argument("--iterations", type=int, default=10, help="of Sinkhorn")
        sub.add_argument("--dimensions", dest="d_s", type=int, default=16, help="of the routing vectors")
        sub.add_argument("--label", default="", help="ends the router's name, so that it stands beside others")
        sub.add_argument("-o", "--output", metavar="DIR", help="where to store the router, or in phase 2 the model")
    if verb == "study":
        sub.add_argument("name", metavar="NAME", choices=tuple(NAMED), help=", ".join(NAMED))
        sub.add_argument("--corpus", default="", metavar="DIR", help="folder of texts, those of the router's training")
        sub.add_argument("--windows-count", dest="windows", type=int, default=64, help="held-out windows of text")
        sub.add_argument("--length", type=int, default=1024, help="tokens of one of them")
        sub.add_argument("--window", type=int, help="tokens that are always read (default: the study's own choice)")
        sub.add_argument("--sinks", dest="n_sink", type=int, help="first tokens always read (default: the router's)")
        sub.add_argument("--steps", type=int, default=600, help="of training in each phase, where it trains")
        sub.add_argument("--tokens-per-step", type=int, default=1024, help="where it trains")
        sub.add_argument("--repeats", type=int, default=5, help="rounds, where it times")
        sub.add_argument("--rows", metavar="A,B,...", help="only these rows of it (default: all)")
        sub.add_argument("--work", metavar="DIR", help="what is measured so far (default: beside the output)")
        sub.add_argument("-o", "--output", metavar="FILE.json", help="default: studies/ in the fitted state")
    if verb == "report":
        sub.add_argument("-o", "--output", required=True, metavar="FILE.html")
    if verb == "bench":
        whats = ("attention", "decode", "inference", "statistics")
        about = "a kernel, one token, a whole model, or the statistics of every head"
        sub.add_argument("what", choices=whats, metavar="|".join(whats), help=about)
        sub.add_argument("--lengths", type=whole_numbers, metavar="N,N,...", help="tokens (default: 1024,4096,16384)")
        for name, default in {"heads": 8, "head-dim": 64, "groups": 8, "top": 1, "window": 128, "batch": 1}.items():
            sub.add_argument(f"--{name}", type=int, default=default)
        sub.add_argument("--kv-heads", type=int, help="heads of keys and values (default: as many as heads)")
        sub.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float16", "float32"))
        sub.add_argument("--repeats", type=int, default=5, help="rounds, dense and sparse in turns")
        sub.add_argument("--skew", action="store_true", help="groups of unequal size")
        sub.add_argument("--router", help="memberships of this router on the bundled story, such as k8-top1")
        sub.add_argument("--new-tokens", type=int, default=16, help="of a whole model")
    if verb == "launch":
        sub.add_argument("--top", type=int, help="groups each token belongs to (default: the router's)")
        sub.add_argument("--window", type=int, help="tokens that are always read (default: the router's)")
        sub.add_argument("--sinks", dest="n_sink", type=int, default=0, help="first tokens that are always read")
        sub.add_argument("--new-tokens", type=int, default=32)
        sub.add_argument("--length", type=int, help="tokens of the prompt (default: as many as fit)")
        sub.add_argument("--repeats", type=int, default=5, help="rounds, dense and sparse in turns")
    if verb == "worth":
        sub.add_argument("config", nargs="?", metavar="CONFIG.json|MODEL", help="(default: what --model names)")
        sub.add_argument("--contexts", type=whole_numbers, metavar="N,N,...", help="tokens (default: 1024 to 131072)")
        sub.add_argument("--batches", type=whole_numbers, metavar="N,N,...", help="sequences (default: 1,8,64)")
        sub.add_argument("--keep", type=float, default=0.1, help="fraction of the keys that is read (default: 0.1)")
        sub.add_argument("--no-projections", dest="projections", action="store_false", help="count as CSA does")
    if verb == "pretrain":
        sub.add_argument("--corpus", required=True, metavar="DIR", help="folder with one folder of texts per domain")
        sub.add_argument("-o", "--output", required=True, metavar="DIR", help="where the model goes")
        sub.add_argument("--work", metavar="DIR", help="shards, checkpoint and log (default: beside the output)")
        sub.add_argument("--family", default="llama", choices=("llama", "gpt2"))
        sub.add_argument("--attention", default="dense", help="dense, or a method to train with")
        sub.add_argument("--steps", type=int, default=2600)
        sub.add_argument("--length", type=int, default=2048, help="the context, in tokens")

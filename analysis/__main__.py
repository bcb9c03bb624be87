"""The command line: `python -m analysis VERB --help`. The same studies as the pages, without a browser."""

import argparse
import inspect
import json
import math
import sys
from pathlib import Path

from analysis.corpus import MAX_BYTES, read_file, read_text, sample_texts
from analysis.errors import AnalysisError, BadSetting, BadText
from analysis.studies import NAMED, STUDIES

HELP = {
    "inspect": "tokens, windows and warnings of a text",
    "model": "the model's card, its routers, and its parity with the stock model",
    "groups": "what the learned groups hold in a text (Focus, section 5)",
    "pairs": "the strongest far-apart pairs of one group, with null controls",
    "fit-router": "a Focus router without training, in seconds",
    "train-router": "a trained Focus router, the model frozen; resumes when stopped",
    "report": "one self-contained page about a text",
    "pretrain": "a small language model of your own from a folder of texts; resumes when stopped",
    "study": f"a named study, stored; continues when stopped: {', '.join(NAMED)}",
    "launch": "a model on a text, dense and sparse in turns: times, memory and both texts",
    "bench": "how fast the sparse kernels are here, by length, against the fastest dense one",
    "worth": "what sparse attention could gain at most, from a config.json alone",
    "examples": "the stored examples of every page, computed anew in their place",
}
OF_A_TEXT = ("inspect", "groups", "pairs", "report", "launch")


def main(argv: list[str] | None = None) -> int:
    """Run one verb; 0 when done, 2 with one sentence on bad input, 130 when interrupted."""
    arguments = vars(_parser().parse_args(argv))
    verb, as_json = arguments.pop("verb"), arguments.pop("json")
    try:
        result = _run(verb, arguments)
    except AnalysisError as error:
        return _stop(verb, str(error), 2)
    except OSError as error:
        return _stop(verb, f"{str(error.filename or 'A file')[:80]} cannot be used: {error.strerror or error}.", 2)
    except KeyboardInterrupt:
        return _stop(verb, "Stopped; what resumes goes on from its checkpoint.", 130)
    shaped = SHAPES.get(verb, _numbers)(result)
    if as_json:
        print(json.dumps(_plain({"protocol": result.numbers["protocol"], **shaped}), allow_nan=False))
    else:
        _show(result, shaped)
    return 0


def _stop(verb: str, sentence: str, status: int) -> int:
    """Say why it ends, on a line of its own."""
    print(f"{chr(10) * sys.stderr.isatty()}{verb}: {sentence}", file=sys.stderr)
    return status


class _Parser(argparse.ArgumentParser):
    """Refuses nonsense in one sentence; the usage stands in --help."""

    def error(self, message: str):
        self.exit(2, f"{self.prog}: {message}; see --help.\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="python -m analysis", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    for verb, text in HELP.items():
        sub = verbs.add_parser(verb, help=text, description=text)
        if verb in OF_A_TEXT:
            sub.add_argument("text", metavar="TEXT", help="a text file, - for standard input, or story, essay, program")
        sub.add_argument("--model", default="demo", help="demo, a Hugging Face id, or a local folder")
        sub.add_argument("--state", type=Path, metavar="DIR", help="fitted state (default: the model's own folder)")
        sub.add_argument("--device", default="auto")
        sub.add_argument("--seed", type=int, default=0)
        sub.add_argument("--set", action="append", default=[], metavar="METHOD.FIELD=VALUE", help="a method's setting")
        sub.add_argument("--json", action="store_true", help="one JSON object as the last line of standard output")
        if verb in ("groups", "pairs", "report", "study", "launch"):
            sub.add_argument("--router", default="k8-top1", help="which router: kGROUPS-topMEMBERSHIPS")
        _own_options(verb, sub)
    return parser


def _own_options(verb: str, sub: argparse.ArgumentParser) -> None:
    """The options that only some verbs have, named as the study's parameters."""
    if verb in ("pairs", "report"):
        sub.add_argument("--min-distance", type=int, default=128, help="tokens between query and key, at least")
    if verb == "pairs":
        sub.add_argument("--top", type=int, default=20, help="how many pairs")
        for name in ("layer", "group", "head"):
            sub.add_argument(f"--{name}", type=int, help=f"only this {name}")
        sub.add_argument("--all-words", dest="content", action="store_false", help="not only content words")
    if verb in ("fit-router", "train-router"):
        sub.add_argument("--groups", type=int, default=8, help="K")
        sub.add_argument("--top", type=int, default=1, help="groups each token belongs to")
        sub.add_argument("--window", type=int, default=128 if verb == "fit-router" else 16)
    if verb == "train-router":
        sub.add_argument("--corpus", required=True, metavar="DIR", help="folder of .txt, .md or .py files")
        sub.add_argument("--steps", type=int, default=300)
        sub.add_argument("--rate", type=float, default=1e-3)
        sub.add_argument("-o", "--output", metavar="DIR", help="where to store the router")
    if verb == "study":
        sub.add_argument("name", metavar="NAME", choices=tuple(NAMED), help=", ".join(NAMED))
        sub.add_argument("--corpus", required=True, metavar="DIR", help="folder of texts the router was trained on")
        sub.add_argument("--windows-count", dest="windows", type=int, default=64, help="held-out windows of text")
        sub.add_argument("--length", type=int, default=1024, help="tokens of one of them")
        sub.add_argument("--window", type=int, help="tokens that are always read (default: chosen, 8 to 64)")
        sub.add_argument("--sinks", dest="n_sink", type=int, help="first tokens always read (default: the router's)")
        sub.add_argument("--work", metavar="DIR", help="what is measured so far (default: beside the output)")
        sub.add_argument("-o", "--output", metavar="FILE.json", help="default: studies/ in the fitted state")
    if verb == "report":
        sub.add_argument("-o", "--output", required=True, metavar="FILE.html")
    if verb == "bench":
        whats = ("attention", "decode", "inference")
        sub.add_argument("what", choices=whats, metavar="|".join(whats), help="a kernel, one token, or a whole model")
        sub.add_argument("--lengths", type=_whole_numbers, metavar="N,N,...", help="tokens (default: 1024,4096,16384)")
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
        sub.add_argument("--contexts", type=_whole_numbers, metavar="N,N,...", help="tokens (default: 1024 to 131072)")
        sub.add_argument("--batches", type=_whole_numbers, metavar="N,N,...", help="sequences (default: 1,8,64)")
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


def _whole_numbers(words: str) -> list[int]:
    try:
        return [int(word) for word in words.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{words[:40]!r} is no list of whole numbers such as 1024,4096") from None


def _run(verb: str, arguments: dict):
    settings = arguments.pop("set")
    if settings:
        raise BadSetting(f"This verb runs no method, so {settings[0]!r} sets nothing: leave --set out.")
    if verb == "worth":  # arithmetic on a shape: no torch
        from analysis.studies.worth import config_of, worth

        given = {name: arguments[name] for name in ("contexts", "batches", "keep", "projections")}
        return worth(**config_of(arguments["config"] or arguments["model"]), **given)
    from analysis.studies.context import Context

    context = Context(progress=_progress, device=arguments.pop("device"), state=arguments.pop("state"), browser=False)
    if "text" in arguments:
        arguments["text"] = context.add_text(*_text(arguments["text"]))
    study = NAMED[arguments["name"]] if verb == "study" else STUDIES[verb]
    known = inspect.signature(study).parameters
    return study(**{k: v for k, v in arguments.items() if k in known}, context=context)


def _text(place: str) -> tuple[str, str]:
    """Name and content of a file, standard input, or a bundled sample."""
    if place == "-":
        return "standard input", read_text(sys.stdin.buffer.read(MAX_BYTES + 1), "standard input")
    path, samples = Path(place), sample_texts()
    if path.is_file():
        return path.name, read_file(path)
    if place in samples:
        return samples[place]
    raise BadText(
        f"There is no file {place[:80]!r}: give a text file, - for standard input, or one of {', '.join(samples)}."
    )


def _progress(fraction: float, stage: str) -> None:
    """On a terminal one line that changes, elsewhere one line per call."""
    begin, end = ("\r", "") if sys.stderr.isatty() else ("", "\n")
    print(f"{begin}{fraction:5.0%} {stage:<60.60}", end=end, file=sys.stderr, flush=True)


def _groups(result) -> dict:
    groups, words = result.tables["groups"], result.tables["words"]
    layers = result.tables["layers"].to_dict("records")
    for row in layers:
        members = groups[groups["layer"] == row["layer"]].drop(columns="layer").to_dict("records")
        for group in members:
            mine = words[(words["layer"] == row["layer"]) & (words["group"] == group["group"])]
            group["top_tokens"] = mine["word"].tolist()
        row["groups"] = members
    return {"layers": layers}


def _pairs(result) -> dict:
    return {name: result.tables[name].to_dict("records") for name in ("pairs", "controls")}


def _numbers(result) -> dict:
    return {key: value for key, value in result.numbers.items() if key != "protocol"}


SHAPES = {"groups": _groups, "pairs": _pairs}


def _show(result, shaped: dict) -> None:
    print(file=sys.stderr)
    for name in ("groups", "words", "pairs", "controls", "arms", "comparisons", "curve", "rows", "rounds"):
        if name in result.tables:
            print(f"\n{name}\n{result.tables[name].to_string(index=False, float_format='%.3f')}")
    for key, value in _numbers(result).items():
        if not isinstance(value, (dict, list)) or key == "notes":
            print(f"{key}: {value}")
    if not result.tables:
        print(json.dumps({k: v for k, v in _plain(shaped).items() if isinstance(v, (dict, list))}, indent=1))


def _plain(value):
    """A value as strict JSON: numpy scalars become numbers, and what is no number (NaN, infinity) becomes null."""
    if isinstance(value, dict):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    value = value.item() if hasattr(value, "item") else value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, (bool, int, str)) else str(value)


if __name__ == "__main__":
    sys.exit(main())

"""The command line: `python -m analysis VERB --help`. The same studies as the pages, without a browser."""

import inspect
import json
import math
import sys
from pathlib import Path

from analysis.cli.options import parser
from analysis.corpus import MAX_BYTES, read_file, read_text, sample_texts
from analysis.errors import AnalysisError, BadSetting, BadText
from analysis.runs.commands import VERBS as RUN_VERBS, command as run_command
from analysis.studies import NAMED, STUDIES


def main(argv: list[str] | None = None) -> int:
    """Run one verb; 0 when done, 2 with one sentence on bad input, 130 when interrupted."""
    arguments = vars(parser(__doc__).parse_args(argv))
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


def _run(verb: str, arguments: dict):
    settings = arguments.pop("set")
    if verb == "evaluate" or (verb == "equal-budget" and arguments["methods"]):
        from analysis.studies.ready.candidates import specs

        given = arguments["router"], arguments.pop("policy", None)
        arguments["methods"] = specs(arguments["methods"], settings, *given)
    elif verb in ("probe", "benchmark"):
        from analysis.studies.ready.candidates import specs

        named = arguments.pop("method" if verb == "probe" else "methods")
        arguments["methods"] = specs(named, settings, arguments["router"])
    elif verb == "time-method":
        from analysis.studies.ready.candidates import specs

        (arguments["method"],) = specs(arguments["method"].partition(",")[0], settings, arguments["router"])
    elif settings:
        raise BadSetting(f"This verb runs no method, so {settings[0]!r} sets nothing: leave --set out.")
    if verb in RUN_VERBS:
        return run_command(verb, arguments)
    if verb == "spread":
        from analysis.cluster.command import spread_command

        return spread_command(arguments, _progress)
    if verb == "stress":
        from tests.stress.parts import stress

        parts = [part.strip() for part in arguments["parts"].split(",")] if arguments["parts"] else None
        left = {name: arguments[name] for name in inspect.signature(stress).parameters if name in arguments}
        return stress(**left | {"parts": parts}, progress=_progress)
    if verb == "worth":  # arithmetic on a shape: no torch
        from analysis.studies.worth.worth import config_of, worth

        given = {name: arguments[name] for name in ("contexts", "batches", "keep", "projections")}
        return worth(**config_of(arguments["config"] or arguments["model"]), **given)
    from analysis.studies.context import Context

    context = Context(progress=_progress, device=arguments.pop("device"), state=arguments.pop("state"), browser=False)
    if "text" in arguments:
        arguments["text"] = context.add_text(*_text(arguments["text"]))
    for name in ("texts", "against"):
        if arguments.get(name):
            arguments[name] = [context.add_text(*_text(place)) for place in arguments[name]]
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
    return {key: value for key, value in result.numbers.items() if key not in ("protocol", "methods")}


SHAPES = {"groups": _groups, "pairs": _pairs}
SHOWN = "heads groups words pairs controls arms comparisons curve rows rounds keys cells".split()  # in this order


def _show(result, shaped: dict) -> None:
    print(file=sys.stderr)
    for name in SHOWN:
        if name in result.tables:
            print(f"\n{name}\n{result.tables[name].to_string(index=False, float_format='{:.3f}'.format)}")
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

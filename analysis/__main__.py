"""The command line: `python -m analysis VERB --help`. The same studies as the pages, without a browser."""

import os
import sys

from .cli.asked import asked
from .cli.options import parser
from .cli.plan import lines, plan
from .cli.shown import dumped, show
from .errors import AnalysisError


def main(argv: list[str] | None = None) -> int:
    """Run one verb; 0 when done, 2 with one sentence on bad input, 130 when interrupted."""
    # Before torch: its threads else spin on a busy machine.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    for stream in (sys.stdout, sys.stderr):
        # A terminal that lacks a character gets its number, so nothing is lost.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    options = vars(parser(__doc__).parse_args(argv))
    verb = options["verb"]
    try:
        wanted = asked(options)
        for sentence in wanted.said:
            print(sentence, file=sys.stderr)
        if options["plan"]:
            planned = plan(wanted)
            print(dumped(planned) if options["json"] else lines(planned))
            return 0
        result = wanted.run_and_store(_progress)
    except AnalysisError as error:
        return _stop(verb, str(error), 2)
    except OSError as error:
        return _stop(verb, f"{str(error.filename or 'A file')[:80]} cannot be used: {error.strerror or error}.", 2)
    except KeyboardInterrupt:
        return _stop(verb, "Stopped; what resumes goes on from its checkpoint.", 130)
    show(verb, result, options["json"])
    return 0


def _stop(verb: str, sentence: str, status: int) -> int:
    """Say why it ends, on a line of its own."""
    print(f"{chr(10) * sys.stderr.isatty()}{verb}: {sentence}", file=sys.stderr)
    return status


def _progress(fraction: float, stage: str) -> None:
    """On a terminal one line that changes, elsewhere one line per call."""
    begin, end = ("\r", "") if sys.stderr.isatty() else ("", "\n")
    print(f"{begin}{fraction:5.0%} {stage:<60.60}", end=end, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())

"""The command `focuscope`: `focuscope serve [--port N]` opens the app, `focuscope VERB --help` explains a verb.

Without a word it serves. The verbs are those of `python -m analysis` in the checkout, and `lm-eval`, which is
lm-evaluation-harness with the methods here.
"""

import argparse
import os
import subprocess
import sys

from focuscope import HOME, load


def main(words: list[str] | None = None) -> int:
    """Run one command; its exit status."""
    words = sys.argv[1:] if words is None else words
    if words and words[0] == "lm-eval":
        return evaluate(words[1:])
    if words and words[0] != "serve":
        return load("__main__").main(words)
    parser = argparse.ArgumentParser("focuscope serve", description="Open the app on this machine, until Ctrl-C.")
    parser.add_argument("--port", type=_port, metavar="N", help="default: the first one from 8501 on that is free")
    return serve(parser.parse_args(words[1:]).port)


def evaluate(words: list[str] | None = None) -> int:
    """lm-evaluation-harness, which knows the model `focuscope`."""
    sys.argv = ["focuscope-lm-eval", *(sys.argv[1:] if words is None else words)]
    try:
        load("notebook.evaluation").cli_evaluate()
        return 0
    except ModuleNotFoundError as error:
        package = str(error.name).partition(".")[0]
        reason = f"The package {package} is missing: {load('package').installs('benchmarks')}."
    except load("errors").AnalysisError as error:
        reason = str(error)
    print(f"focuscope-lm-eval: {reason}", file=sys.stderr)
    return 2


def _port(word: str) -> int:
    if not word.isdigit() or not 1 <= int(word) <= 65_535:
        raise argparse.ArgumentTypeError(f"{word!r} is no port: give a number from 1 to 65535")
    return int(word)


def serve(port: int | None = None) -> int:
    """Serve the app on this machine until Ctrl-C: on `port`, or the first one from 8501 on that is free."""
    options = ["--server.address=127.0.0.1", *[f"--server.port={port}"] * bool(port)]
    command = [sys.executable, "-m", "streamlit", "run", str(HOME / "app" / "serve" / "served.py"), *options]
    # Streamlit reads its settings from the folder it is started in, and `analysis` and `app` are found there.
    try:
        # As run.py.
        return subprocess.call(command, cwd=HOME, env={**os.environ, "PYTHONMALLOC": "malloc"})
    except KeyboardInterrupt:
        return 0


if __name__ == "__main__":
    sys.exit(main())

"""The command `focuscope`: `focuscope serve [--port N]` opens the app, `focuscope VERB --help` explains a verb.

Without a word it serves. The verbs are those of `python -m analysis` in the checkout.
"""

import subprocess
import sys
from pathlib import Path

import analysis


def main(words: list[str] | None = None) -> int:
    """Run one command; its exit status."""
    words = sys.argv[1:] if words is None else words
    if words and words[0] != "serve":
        from analysis.__main__ import main as run

        return run(words)
    if words[1:] and (len(words) != 3 or words[1] != "--port" or not words[2].isdigit()):
        print("focuscope: `focuscope serve` knows one option: --port N.", file=sys.stderr)
        return 2
    return serve(words[2] if words[1:] else "")


def serve(port: str = "") -> int:
    """Serve the app on this machine until Ctrl-C: on `port`, or the first one from 8501 on that is free."""
    home = Path(analysis.__file__).parents[1]  # Streamlit reads its settings there
    options = ["--server.address=127.0.0.1", *[f"--server.port={port}"] * bool(port)]
    command = [sys.executable, "-m", "streamlit", "run", str(home / "app" / "serve" / "served.py"), *options]
    try:
        return subprocess.call(command, cwd=home)
    except KeyboardInterrupt:
        return 0


if __name__ == "__main__":
    sys.exit(main())

"""The options of the verbs about stored runs."""

import argparse


def run_options(verb: str, sub: argparse.ArgumentParser) -> None:
    """The options of `runs`, `bundle-out` and `bundle-in`; other verbs get none."""
    if verb in ("runs", "bundle-out", "bundle-in"):
        sub.add_argument(
            "--runs", metavar="DIR", help="the app's state folder (default: FOCUSCOPE_STATE, else its own)"
        )
    if verb == "runs":
        sub.add_argument("words", metavar="WORD", nargs="*", help="all of them stand in a run that is listed")
        sub.add_argument("--examples", action="store_true", help="the bundled examples too")
    if verb == "bundle-out":
        sub.add_argument("ids", metavar="RUN", nargs="+", help="the 12 digits that `runs` lists")
        sub.add_argument("-o", "--output", required=True, metavar="FILE.zip")
    if verb == "bundle-in":
        sub.add_argument("bundle", metavar="FILE.zip")

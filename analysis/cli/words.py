"""How words of the command line become the values that studies take. Loads nothing heavy."""

import argparse
import json


def policy(words: str) -> dict | str:
    """A name, or what `policies.resolve` takes as JSON."""
    try:
        return json.loads(words) if words.lstrip().startswith("{") else words
    except ValueError:
        raise argparse.ArgumentTypeError(f"{words[:40]!r} is neither the name of a policy nor JSON") from None


def names(words: str) -> list[str]:
    """`a,b` as a list."""
    return [word.strip() for word in words.split(",") if word.strip()]


def whole_numbers(words: str) -> list[int]:
    """`1024,4096` as a list; `none` is an empty one."""
    if words == "none":
        return []
    try:
        return [int(word) for word in words.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{words[:40]!r} is no list of whole numbers such as 1024,4096") from None


def numbers(words: str) -> list[float]:
    """`0.4,0.8` as a list."""
    try:
        return [float(word) for word in words.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{words[:40]!r} is no list of numbers such as 0.4,0.8") from None

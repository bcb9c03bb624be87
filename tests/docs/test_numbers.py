"""One style of numbers in all that a reader sees: 2.9% without a space, and "times", not x or ×."""

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.made.sources import parsed

ROOT = Path(__file__).parents[2]
PER_CENT = re.compile(r"[\d}] %(?!\{)")
TIMES = re.compile(r"[\d}] ?×|\d(?<!\b0)x\b|\}x\b")
QUOTED = ("2x speedup", "1.3x speedup", "10× attention")  # names of columns that a paper prints


def strings(path: Path) -> Iterator[str]:
    """Every string of a file; of an f-string the source, so that what follows a number in braces is seen."""
    if path.suffix != ".py":
        yield from (part for part in _values(json.loads(path.read_text("utf-8"))) if isinstance(part, str))
        return
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.JoinedStr):
            yield "".join(part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def _values(found: object) -> Iterator[object]:
    if isinstance(found, dict | list):
        for one in found.values() if isinstance(found, dict) else found:
            yield from _values(one)
    else:
        yield found


@pytest.mark.parametrize("folder", ["app", "analysis", "models_cache/demo/studies", "models_cache/demo/examples"])
def test_numbers_have_one_style(folder):
    read = [path for path in sorted((ROOT / folder).rglob("*")) if path.suffix in (".py", ".json")]
    told = [(path.name, part) for path in read for part in strings(path)]
    assert len(told) > 100
    assert [(name, part) for name, part in told if PER_CENT.search(part)] == []
    plain = [(name, re.sub("|".join(map(re.escape, QUOTED)), "", part)) for name, part in told]
    assert [(name, part) for name, part in plain if TIMES.search(part)] == []


@pytest.mark.parametrize("said", ["2.9 %", "{} % of the pairs", "a 95 % interval"])
def test_a_space_before_the_sign_is_found(said):
    assert PER_CENT.search(said) and not PER_CENT.search(said.replace(" %", "%")) and not PER_CENT.search("9 %{x}")


@pytest.mark.parametrize("said", ["1.56x faster", "{}x", "2 × dense", "{} ×"])
def test_a_sign_for_times_is_found(said):
    assert TIMES.search(said) and not TIMES.search(said.replace("x", " times").replace("×", "times"))

"""One name for a thing and one style of numbers in all that a reader sees."""

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from analysis.methods import METHODS

ROOT = Path(__file__).parents[2]
SOURCES = ("app", "analysis", "models_cache/demo/studies", "models_cache/demo/examples")
PAGES = ("README.md", "docs/measured.md", "models_cache/demo/README.md")
OTHER_NAMES = {  # concept -> how else it was called, or might be
    "KV cache": r"KV[- _]?store\b|\bkey[-/ ]value cache|\bkv cache\b|\bKV-cache(?!-compatible)",
    "attention sink": r"\bsink token\b|\bfirst-token sink",
    "softmax temperature": r"\battention temperature|\bsharpening temperature",
    "largest group's share": r"\bdominance of the largest group|\blargest share of a group",
    "first token": r"\bTTFT\b|\btime-to-first-token",
    "key-value head": r"\bKV[- ]head|\bkv head\b",
    "long-range pair": r"\blong-distance pair|\bfar-range pair",
    "Calibrated Sparse Attention": r"\bCalibrated sparse attention\b|\bcalibrated Sparse Attention\b",
}
CODE = re.compile(r"import |[a-z_]\(|\.py\b|--|::")  # lines that somebody runs
SPACED_PERCENT = re.compile(r"[\d}] %(?!\{)")  # 2.9%, without a space
SIGN_FOR_TIMES = re.compile(r"[\d}] ?×|\d(?<!\b0)x\b|\}x\b")  # "1.5 times"
PRINTED = re.compile("2x speedup|1.3x speedup|10× attention")  # names of columns that a paper prints


def strings(path: Path) -> Iterator[str]:
    """Every string of a file; values inside an f-string become {}, so that what follows a number is seen."""
    if path.suffix == ".json":
        nodes = [json.loads(path.read_text(encoding="utf-8"))]
        while nodes:
            node = nodes.pop()
            if isinstance(node, str):
                yield node
            elif isinstance(node, dict | list):
                nodes.extend(node.values() if isinstance(node, dict) else node)
        return
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.JoinedStr):
            yield "".join(part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


@pytest.fixture(scope="module")
def shown() -> list[tuple[str, str]]:
    """(file, string) of the sources and the stored results."""
    paths = [path for folder in SOURCES for path in sorted((ROOT / folder).rglob("*"))]
    return [(path.name, part) for path in paths if path.suffix in (".py", ".json") for part in strings(path)]


@pytest.fixture(scope="module")
def sentences(shown) -> list[tuple[str, str]]:
    """(file, words) of everything with a space in it that is no code, the documents' lines too."""
    lines = [(page, line) for page in PAGES for line in (ROOT / page).read_text(encoding="utf-8").splitlines()]
    chosen = [(name, part) for name, part in shown + lines if " " in part and not CODE.search(part)]
    assert len(chosen) > 5000
    return chosen


@pytest.mark.parametrize("concept", OTHER_NAMES)
def test_a_concept_has_one_name(sentences, concept):
    assert [line for line in sentences if re.search(OTHER_NAMES[concept], line[1])] == []
    assert any(concept.lower() in part.lower() for _, part in sentences), "the name itself is in use"


def test_methods_go_by_their_titles(sentences):
    """Neither by the name of the class, nor with other hyphens and spaces: Snap-KV, Streaming LLM, Oracle topk."""
    titles = {kind.__name__: kind.title for kind in METHODS.values()}
    assert len(set(titles.values())) == len(METHODS)
    wrong = []
    for name, title in titles.items():
        parts = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d\w?", title)
        loose = re.compile(r"\b" + r"[- ]?".join(parts) + r"\b", re.IGNORECASE) if len(parts) > 1 else None
        as_class = re.search("[a-z][A-Z]", name) and name not in (title, *title.split())
        for file, part in sentences:
            if as_class and re.search(rf"\b{name}\b", part):
                wrong.append((file, name, part))
            if loose and any(hit.lower() != title.lower() for hit in loose.findall(part)):
                wrong.append((file, title, part))
    assert wrong == []


def test_numbers_have_one_style(shown):
    assert [line for line in shown if SPACED_PERCENT.search(line[1])] == []
    assert [line for line in shown if SIGN_FOR_TIMES.search(PRINTED.sub("", line[1]))] == []

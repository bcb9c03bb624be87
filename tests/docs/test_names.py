"""One name for a thing in all that a reader sees: methods by their titles, and a concept by one word of the field."""

import re
from pathlib import Path

import pytest

from analysis.methods import METHODS
from tests.docs.test_numbers import strings

ROOT = Path(__file__).parents[2]
TOLD = ("app", "analysis", "models_cache/demo/studies", "models_cache/demo/examples")
OTHER = {  # concept -> how else it was called, or might be
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


def told() -> list[tuple[str, str]]:
    """(file, words) of all that has a space in it and is no code."""
    paths = [path for folder in TOLD for path in sorted((ROOT / folder).rglob("*")) if path.suffix in (".py", ".json")]
    found = [(path.name, part) for path in paths for part in strings(path) if " " in part]
    pages = [ROOT / name for name in ("README.md", "docs/measured.md", "models_cache/demo/README.md")]
    lines = [(path.name, line) for path in pages for line in path.read_text(encoding="utf-8").splitlines()]
    return [(name, part) for name, part in found + lines if not CODE.search(part)]


@pytest.fixture(scope="module")
def words() -> list[tuple[str, str]]:
    found = told()
    assert len(found) > 5000
    return found


@pytest.mark.parametrize("concept", OTHER)
def test_a_concept_has_one_name(words, concept):
    assert [(name, part) for name, part in words if re.search(OTHER[concept], part)] == []
    assert any(concept.lower() in part.lower() for _, part in words), "the name itself is in use"


def test_methods_go_by_their_titles(words):
    classes = {kind.__name__: kind.title for kind in METHODS.values() if kind.__name__ not in kind.title.split()}
    assert classes["OracleTopK"] == "Oracle top-k" and len({kind.title for kind in METHODS.values()}) == len(METHODS)
    spelled = {name: title for name, title in classes.items() if name != title and re.search("[a-z][A-Z]", name)}
    wrong = re.compile(rf"\b({'|'.join(spelled)})\b")
    assert [(name, part) for name, part in words if (hit := wrong.search(part)) and spelled[hit[1]] != hit[1]] == []


@pytest.mark.parametrize("title", sorted(kind.title for kind in METHODS.values()))
def test_a_title_has_one_spelling(words, title):
    """Hyphens and spaces inside: "Snap-KV", "Streaming LLM" or "Oracle topk" would be second names."""
    parts = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d\w?", title)
    if len(parts) > 1:
        loose = re.compile(r"\b" + r"[- ]?".join(parts) + r"\b", re.IGNORECASE)
        other = [hit for _, part in words for hit in loose.findall(part) if hit.lower() != title.lower()]
        assert other == []

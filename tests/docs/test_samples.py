"""The bundled samples and the glossary hold what the pages promise of them."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SAMPLES = ROOT / "analysis" / "samples"
GLOSSARY = ROOT / "app" / "ui" / "glossary.md"

WORDS = {"story.txt": (1250, 1500), "essay.txt": (700, 900)}

# Names of the first third that return in the last third, so that a far-apart pair exists to be found.
ENTITIES = {
    "story.txt": "Hester; Edmund Farrow; Perpetua; Gannet House; Captain Tobias Wrexham; barometer; Perrin; letter; "
    "west window; candle; Saltmere; bird's foot",
    "essay.txt": "Skarrow Point; Isobel Tarn; Amos Pell; watch book; fair copy; remark; dead night; Board",
    "program.txt": "SEASON_LENGTH; Volume; Reader; popularity; diligence; borrower; fines",
}

# Names that stay away for hundreds of words and then return: the fewest words of their longest absence.
ABSENCES = [("story.txt", name, 400) for name in ("Perpetua", "Perrin", "barometer", "Farrow", "west window", "letter")]
ABSENCES += [("essay.txt", name, 200) for name in ("fair copy", "Isobel Tarn", "Amos Pell", "watch book", "dead night")]

GLOSSED = re.compile(r"""glossary\(\s*"([^"]+)"|term="([^"]+)\"""")  # a term that a page explains


def read(name):
    return (SAMPLES / name).read_text(encoding="utf-8")


def glossary_entries():
    """The glossary's (term, paragraph) pairs in file order."""
    sections = GLOSSARY.read_text(encoding="utf-8").split("\n## ")[1:]
    return [tuple(part.strip() for part in section.split("\n", 1)) for section in sections]


@pytest.mark.parametrize("name", WORDS)
def test_length_in_words(name):
    low, high = WORDS[name]
    assert low <= len(read(name).split()) <= high


@pytest.mark.parametrize("name", ENTITIES)
def test_entities_of_the_first_third_return_in_the_last(name):
    text = " ".join(read(name).split())
    first, last = text[: len(text) // 3], text[-(len(text) // 3) :]
    missing = [e for e in ENTITIES[name].split("; ") if e not in first or e not in last]
    assert not missing


@pytest.mark.parametrize(("name", "entity", "words"), ABSENCES)
def test_entities_stay_away_for_hundreds_of_words(name, entity, words):
    between = " ".join(read(name).split()).split(entity)[1:-1]
    assert max(len(part.split()) for part in between) >= words


def test_the_register_answers_every_question_once_and_far_above():
    first, questions = read("register.txt").split("On Saturday the owners")
    pairs = [line.split("? ") for line in questions.splitlines() if "? " in line]
    assert len(pairs) == 28 and len({question for question, _ in pairs}) == 28
    entries = dict(re.findall(r"^The ([\w ]+) lies at berth \d+\. (.*)$", first, re.M))
    assert len(entries) == 20
    for question, answer in pairs:
        ship = next(name for name in entries if name in question)
        line = next(line for line in first.splitlines() if line.startswith(f"The {ship} "))
        assert answer in line, question
        facts = [fact for fact in first.splitlines() if fact.startswith("The ") and fact != line]
        assert not [fact for fact in facts if answer in fact], "nothing is told twice"


def test_program_runs_and_says_the_same_twice():
    command = [sys.executable, "-I", str(SAMPLES / "program.txt")]
    first, second = (subprocess.run(command, capture_output=True, text=True, check=True) for _ in range(2))
    assert re.match(r"\d+ loans, \d+ returns, \d+ times in a queue\n", first.stdout)
    assert len(first.stdout.splitlines()) == 7
    assert first.stdout == second.stdout and not first.stderr


def test_sample_texts_are_offered_in_their_order():
    from analysis.corpus import fitting_samples, natural_samples, sample_texts

    samples = sample_texts()
    assert list(samples) == ["story", "essay", "program", "register"], "pages open on the first"
    assert list(natural_samples()) == ["story", "essay", "program"] and list(fitting_samples()) == ["essay", "program"]
    assert samples["story"] == ("The Lamp at Gannet House", read("story.txt"))


def test_every_term_that_a_page_explains_is_in_the_glossary():
    entries = glossary_entries()
    assert len({term.lower() for term, _ in entries}) == len(entries) >= 40
    sources = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "app").rglob("*.py"))
    terms = {first or second for first, second in GLOSSED.findall(sources)}
    assert len(terms) > 50 and terms - {term for term, _ in glossary_entries()} == set()

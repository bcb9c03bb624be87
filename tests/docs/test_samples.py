"""The bundled samples and the glossary hold what the pages promise of them."""

import ast
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

TERMS = """token; window (context); attention head; layer; attention mass; far attention; chance level (uniform
reading); learned group; centroid; router; membership (top-k); group share; largest group's share (dominance);
confidence; purity; random group of equal size; lift; affinity; Sinkhorn normalisation; frozen potential; literal
and causal membership; temperature (router); fit without training; trained router; random centroids; random tokens;
shuffled text; long-range pair; distance; kind of a pair;
content word; byte fallback; perplexity; bits per byte; interval;
parity badge; causality check; PCA; UMAP; run; protocol; price; estimated and measured; KV cache; KV cache at most; KV
reads (% of causal); reads per key-value head; attention's share; largest possible gain; softmax temperature;
sparse attention; sliding window;
attention sink; top-p rank; recall@l; needle; speed-up; bound (speed-up); crossover; time to first token; set A and set
B; masked reference; first difference; round (of a measurement); quality against speed; paired difference; KL to dense;
same top-1; worst position bin; change of loss; routing collapse; paths of collapse; stability; phase 1 and phase 2;
gate; soft and hard loss; Sinkhorn iterations; optimiser step; learning rate; corpus; agreement of routers; k-means;
entropy (attention); largest probability; numerics of the scores; first-token mass; window mass; mean distance;
far reading, concentrated; label of a head;
previous-token score;
induction score; ablation of a head; likeness of heads; keys shared out by ablation;
name of a head; head over many texts; lift of a token;
attention pattern; without the first token; effective support; temperatures by layer; perplexity
against the temperature; trained with a temperature;
key budget; policy; calibration; cap; tolerances of the cap; two denominators of reads; early-position bias;
agreement of calibrations; query router; top-k attention; eviction; bucket of keys; bucket routers; selectivity; gap
closure; own partition; equal reads;
forced choice; distractor; needle map; several needles; JSON pairs; passage among passages; frequent words; labels from
examples; margin of the answer; dynamic NTK; recall documents; bundle (of runs); state of a printed row;
benchmark score; items longer than the window; log-probability of the right answer; question dense or sparse"""


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


@pytest.mark.parametrize("name", WORDS)
def test_title_then_one_line_per_paragraph(name):
    lines = read(name).splitlines()
    assert 0 < len(lines[0]) <= 40 and not lines[0].endswith(".")
    assert all(line for line in lines[::2]) and not any(lines[1::2])  # paragraph, blank, paragraph, ...
    assert all(line == line.strip() and "  " not in line for line in lines)


@pytest.mark.parametrize("name", ENTITIES)
def test_plain_ascii_with_one_final_newline(name):
    text = read(name)
    assert text.isascii() and "\t" not in text and "\r" not in text
    assert text.endswith("\n") and not text.endswith("\n\n")


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


def test_the_letter_is_quoted_and_remembered():
    paragraphs = [p for p in read("story.txt").splitlines() if p]
    quoted = [i for i, p in enumerate(paragraphs) if "Do this though they tell you that I am dead." in p]
    assert len(quoted) == 2 and quoted[1] - quoted[0] >= 10


def test_the_register_answers_every_question_once_and_far_above():
    first, questions = read("register.txt").split("On Saturday the owners")
    asked = [line.split("? ") for line in questions.splitlines() if "? " in line]
    assert len(asked) == 28 and len({question for question, _ in asked}) == 28
    entries = dict(re.findall(r"^The ([\w ]+) lies at berth \d+\. (.*)$", first, re.M))
    assert len(entries) == 20
    for question, answer in asked:
        ship = next(name for name in entries if name in question)
        line = next(line for line in first.splitlines() if line.startswith(f"The {ship} "))
        assert answer in line, question
        others = [other for other in first.splitlines() if other.startswith("The ") and other != line]
        assert not [other for other in others if answer in other], "nothing is told twice"


def test_program_is_documented_and_of_the_promised_length():
    source = read("program.txt")
    assert 150 <= len(source.splitlines()) <= 200
    assert max(len(line) for line in source.splitlines()) <= 120
    tree = ast.parse(source)
    assert ast.get_docstring(tree)
    nodes = [n for n in ast.walk(tree) if isinstance(n, ast.ClassDef | ast.FunctionDef) and not n.name.startswith("__")]
    assert len(nodes) >= 15
    assert not [node.name for node in nodes if not ast.get_docstring(node)]


def test_program_runs_and_says_the_same_twice():
    command = [sys.executable, "-I", str(SAMPLES / "program.txt")]
    first, second = (subprocess.run(command, capture_output=True, text=True, check=True) for _ in range(2))
    assert re.match(r"\d+ loans, \d+ returns, \d+ times in a queue\n", first.stdout)
    assert len(first.stdout.splitlines()) == 7
    assert first.stdout == second.stdout and not first.stderr


def test_sample_texts_offers_all_four_with_titles():
    from analysis.corpus import fitting_samples, natural_samples, sample_texts

    samples = sample_texts()
    assert list(samples) == ["story", "essay", "program", "register"], "pages open on the first"
    assert list(natural_samples()) == ["story", "essay", "program"] and list(fitting_samples()) == ["essay", "program"]
    assert samples["register"][0] == "The Register of Saltmere Harbour"
    assert samples["story"][0] == "The Lamp at Gannet House"
    assert samples["essay"][0] == "The Watch Book"
    assert samples["program"][0].startswith("A village lending library")
    assert samples["story"][1] == read("story.txt")


def test_glossary_terms_are_unique_and_short():
    entries = glossary_entries()
    terms = [term.lower() for term, _ in entries]
    assert len(terms) >= 40
    assert not {term for term in terms if terms.count(term) > 1}
    assert not {term: len(text) for term, text in entries if not 20 <= len(text) <= 400}
    assert not [term for term, text in entries if "\n" in text]


def test_glossary_has_every_term_of_the_pages():
    wanted = {" ".join(term.split()) for term in TERMS.split(";")}
    assert wanted == {term for term, _ in glossary_entries()}

"""BibTeX: an entry for every method that a paper proposes, with the number that the method names."""

import re

from analysis.methods import METHODS
from analysis.papers import PAPERS
from analysis.papers.references import OF_METHOD, bibtex, entries
from app.selection.menu import PAGES

NUMBER = r"\d{4}\.\d{5}"


def test_every_method_and_paper_has_an_entry_with_its_number():
    for name, method in METHODS.items():
        entry = bibtex([name])
        assert bool(entry) == (OF_METHOD.get(name) != ""), name
        assert not (number := re.search(NUMBER, method.paper)) or number[0] in entry, name
    summary = "focal_summary_zh"  # of a paper that has an entry
    assert set(PAPERS) - {summary} <= set(entries()) and not set(OF_METHOD) - set(METHODS)
    assert {paper for page in PAGES.values() for paper in page.papers} <= set(entries())


def test_entries_are_whole_and_follow_what_was_asked():
    for name, entry in entries().items():
        assert entry.startswith(f"@misc{{{name},\n") and entry.count("{") == entry.count("}"), name
        assert "title = {{" in entry
    assert re.findall(r"@misc\{(\w+)", bibtex(["snapkv", "dense", "focal", "focal_learned", "nothing"])) == [
        "snapkv",
        "focal_attention",
    ]

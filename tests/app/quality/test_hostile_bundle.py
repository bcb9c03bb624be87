"""A bundle somebody else made may hold any numbers; what there is to choose, and its words, stay the worker's."""

import copy

import pytest

from analysis.declaration.undeclared import Undeclared
from analysis.runs import Result, RunStore
from app import cached
from tests.made.in_process import markup, part
from tests.made.quality import DESCRIBED, evaluate, opened

EVIL = '<img src="x" onerror="alert(1)"> **evil** [link](http://evil.example)'


def poisoned(args: dict, text: str) -> Result:
    """An answer that carries a catalogue of its own, and names that are markup."""
    answer = evaluate(args, text)
    lies = copy.deepcopy(DESCRIBED) | {"evil": copy.deepcopy(DESCRIBED["quick"])}
    for about in lies.values():
        about |= {"title": EVIL, "doc": EVIL, "paper": EVIL}
        for field in about["fields"]:
            field |= {"help": EVIL, "low": 7, "high": 9, "default": 8} if field["type"] == "int" else {"help": EVIL}
    for row in answer.numbers["rows"]:
        row |= {"title": EVIL, "label": EVIL}
    return Result(answer.numbers | {"methods": lies}, answer.tables)


@pytest.fixture
def imported(client, tmp_path):
    """A store into which a stranger's answers to the first questions of the page came."""
    stranger = RunStore(tmp_path / "other")
    (key, _), *_ = cached.samples()
    text = client.store.text(key)[1]
    stranger.put_text(text, "The story")
    ids, reading = [], {"model": "demo", "text": key, "window": 1024, "long_text": "first", "seed": 0, "share": 0.25}
    for spec in ({"name": "focus", "settings": {}, "router": "k4-top1"}, {"name": "streaming_llm", "settings": {}}):
        args = reading | {"methods": [spec]}
        answer = poisoned(args, text)
        ids.append(stranger.put(Undeclared("evaluate", args), answer, answer.numbers["protocol"], 1.0).id)
    stranger.bundle(ids, tmp_path / "stranger.zip")
    assert len(client.store.unbundle(tmp_path / "stranger.zip").new) == len(ids)
    return client


def test_an_imported_bundle_changes_no_control_and_no_title(imported):
    app = opened(quality="focus~~streaming_llm", quality_equal=25, quality_paint="focus", quality_numbers="yes")
    assert not app.error and "evaluate" not in imported.asked, "the stranger's numbers are shown"
    assert app.multiselect(key="quality_pick").options == [
        about["title"] for name, about in DESCRIBED.items() if name != "dense" and about["saves"] == "reads"
    ]
    assert app.slider(key="quality.focus.top").min == 1 and app.slider(key="quality.focus.top").max == 4
    assert [method["title"] for method in part(app, "curves")["methods"]] == ["Focus", "StreamingLLM"]
    texts = [element.value for kind in ("title", "markdown", "caption") for element in getattr(app, kind)]
    helps = [widget.help or "" for kind in ("slider", "select_slider", "selectbox") for widget in getattr(app, kind)]
    assert not any("evil" in words for words in [markup(app), *texts, *helps])


def test_words_of_the_catalogue_are_escaped_where_they_are_markup(imported, monkeypatch):
    field = DESCRIBED["streaming_llm"]["fields"][1]
    monkeypatch.setitem(DESCRIBED["streaming_llm"], "title", "<b>Bold</b>")
    monkeypatch.setitem(field, "help", "what <i>it</i> [does](http://x)")
    monkeypatch.setitem(field, "name", "breadth")
    app = opened(quality="streaming_llm", quality_equal=25)
    assert r"\<b\>Bold" in app.title[0].value and "<b>Bold</b>" not in markup(app) + app.title[0].value
    (help,) = [slider.help for slider in app.select_slider if slider.key == "quality.streaming_llm.breadth"]
    assert "<i>" not in help and r"\[does\]" in help

"""Stored texts: by their hash, and as long as a run names them."""

import pytest

from analysis.declaration.undeclared import Undeclared
from analysis.errors import BadSetting, BadText
from analysis.runs import Result, texts


def test_texts(store):
    key = store.put_text("Ein Text\nmit 🦊", "a.txt")
    assert store.put_text("Ein Text\nmit 🦊", "b.txt") == key and store.text(key) == ("a.txt", "Ein Text\nmit 🦊")
    second = store.put_text("another", "c.txt")
    assert [row[0] for row in store.texts()] == [second, key] and store.texts()[1][2] == 17
    for bad in ("", None, "\ud800", "x" * 20_000_001):
        with pytest.raises(BadText):
            store.put_text(bad, "it")
    (store.root / "texts" / f"{key}.json").write_text('{"name": "a", "text": "forged"}')
    with pytest.raises(BadSetting, match="upload or paste it again"):
        store.text(key)
    assert store.put_text("Ein Text\nmit 🦊", "d.txt") == key and store.text(key)[1] == "Ein Text\nmit 🦊"


@pytest.mark.parametrize(
    "name",
    [
        lambda key, second: {"text": key},
        lambda key, second: {"texts": [second, key]},
        lambda key, second: {"corpus": f"{key}+{second}"},
        lambda key, second: {"deep": {"against": key}},
        lambda key, second: {"words": f"of {key}, {second}"},
    ],
    ids=["text", "list", "joined", "deep", "words"],
)
def test_old_texts_go_unless_a_run_names_them_in_any_form(store, monkeypatch, name):
    monkeypatch.setattr(texts, "KEPT", 2)
    key, second = store.put_text("the named one", "a"), store.put_text("the other one", "b")
    run = store.put(Undeclared("groups", {"model": "demo", "seed": 0} | name(key, second)), Result({}), {}, 1.0)
    # It can be brought back.
    store.discard(run.id)
    for number in range(4):
        store.put_text(f"newer text {number}", "c")
    assert store.text(key)[1] == "the named one" and len(store.texts()) <= 4
    store.empty()
    store.put_text("the newest text", "d")
    with pytest.raises(BadSetting):
        store.text(key)

"""Focuscope in a notebook: pages that need no server, from a model that somebody else loaded."""

import re
from types import SimpleNamespace

import pytest
import torch
from bs4 import BeautifulSoup
from transformers import AutoModelForCausalLM, AutoTokenizer

import focuscope as fs
from app.ui.repeat import figure, notebook
from tests.made.asking import SHORT
from tests.made.tiny_tokenizer import save_model

HOSTILE = "<script>alert(1)</script> & “Hester” " + SHORT[:260]


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    """A transformers model and its tokenizer, as a notebook holds them; fitted state lies in a folder of the tests."""
    folder = tmp_path_factory.mktemp("notebook") / "tiny"
    save_model(folder)
    return AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)


@pytest.fixture(scope="module")
def inspected(loaded):
    return fs.inspect(*loaded, HOSTILE, min_distance=8)


def test_inspect_shows_heads_text_and_pairs_in_one_page(loaded, inspected, tmp_path):
    page = inspected.save(tmp_path / "page.html").read_text(encoding="utf-8")
    config, heads = loaded[0].config, inspected.tables["heads"]
    cells = re.findall(r'<td style="--s:(\d+)%" title="head (\d+)\.(\d+)', page)
    assert len(cells) == len(heads) == config.num_hidden_layers * config.num_attention_heads
    masses = {(int(layer), int(head)): int(share) for share, layer, head in cells}
    for row in heads.to_dict("records"):
        assert masses[row["layer"], row["head"]] == pytest.approx(100 * (1 - row["window_mass"]), abs=0.51)
    soup = BeautifulSoup(page, "html.parser")
    assert soup.select_one(".text").get_text() == HOSTILE and not soup(["script", "img", "link"])
    assert not re.search(r"https?:", page)
    assert len(soup("section", class_="pair")) == min(6, len(inspected.tables["pairs"]))
    words = soup.get_text()
    assert all(sentence in words for sentence in inspected.sentences) and inspected.protocol["verb"] == "start"


def test_a_cell_shows_the_page_in_a_frame_of_its_own(inspected):
    frame = BeautifulSoup(inspected._repr_html_(), "html.parser").iframe
    assert frame["srcdoc"] == inspected.page and frame.has_attr("sandbox") and len(repr(inspected)) < 3000


def test_compare_holds_methods_against_dense_attention(loaded):
    report = fs.compare(*loaded, SHORT[:300], "dense,streaming_llm", window=48)
    dense, window = report.tables["rows"].to_dict("records")
    assert dense["method"] == "dense" and window["reads_causal"] <= 1
    assert f"<td>{dense['perplexity']:.2f}</td>" in report.page and f"<td>{window['kl_mean']:.4f}</td>" in report.page


def test_apply_runs_a_method_and_leaves_the_model_as_it_came(loaded):
    lm, tokenizer = loaded
    ids = tokenizer(SHORT, return_tensors="pt").input_ids[:, :64]
    with torch.no_grad():
        before = lm(ids).logits
        with fs.apply(lm, tokenizer, "streaming_llm", window=4):
            inside = lm(ids).logits
        assert not torch.allclose(before, inside) and torch.equal(before, lm(ids).logits)
    with pytest.raises(fs.AnalysisError, match="There is no method 'nothing'"):
        fs.apply(lm, tokenizer, "nothing")


def test_run_takes_the_words_of_a_command(tmp_path):
    save_model(tmp_path / "tiny")
    (tmp_path / "text.txt").write_text(SHORT)
    drawn = figure(SimpleNamespace(verb="statistics", tables=["heads"]))
    place = f"{tmp_path / 'text.txt'} --model {tmp_path / 'tiny'}"
    lines = notebook(
        [f"python -m analysis {verb} {place}" for verb in ("inspect", "statistics")], {"statistics": drawn}
    )
    exec(lines.replace(f"statistics{drawn}", f"drawn = statistics{drawn}"), namespace := {})
    assert namespace["inspect"].numbers["characters"] == len(SHORT)
    assert list(namespace["drawn"].data[0].y) == list(namespace["statistics"].tables["heads"]["entropy"])
    for words, reason in (("pairs", "required: TEXT"), ("divine story", "invalid choice: 'divine'")):
        with pytest.raises(fs.AnalysisError, match=reason):
            fs.run(words)

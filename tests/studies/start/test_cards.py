"""What stands around the studies: refusals, routers that are fitted on the way, the card with its badge, the report."""

import json
import re
from base64 import b64encode
from hashlib import sha256
from html.parser import HTMLParser

import numpy as np
import pytest
import torch
from transformers import MistralConfig, MistralForCausalLM

from analysis.corpus import sample_texts
from analysis.errors import BadModel, BadSetting, Cancelled
from analysis.groups.vectors import pca
from analysis.models import load_model
from analysis.seam import attention, reference
from analysis.studies import STUDIES
from analysis.studies.context import Context
from analysis.studies.start.card import full_parity, parity
from tests.made.asking import SHORT
from tests.made.tiny import GROUPED
from tests.made.tiny_tokenizer import byte_level, save_model

HOSTILE = (
    "<script>alert('Hester')</script> <img src=http://evil.example/x onerror=alert(1)> </div></html> & "
    "[a](javascript:x) 😀 שלום `x` Hester Farrow\n"
)


@pytest.mark.parametrize(
    "verb, arguments, message",
    [
        ("groups", {"router": "../secret"}, "names no router"),
        ("groups", {"router": "k2-top3"}, "cannot be in 3 of 2 groups"),
        ("pairs", {"min_distance": 0}, "must lie between 1 and"),
        ("pairs", {"min_distance": 1 << 20}, "must lie between 1 and"),
        ("pairs", {"top": 0}, "between 1 and 5,000"),
        ("pairs", {"layer": 600}, "Layers run from 0 to .*, and 600"),
        ("pairs", {"head": -1}, "Heads run from 0 to .*, and -1"),
        ("pairs", {"group": 8}, "Groups run from 0 to 7"),
        ("umap", {"layer": 600}, "600 was asked for"),
        ("umap", {"text": "Hello there"}, "needs at least 16 tokens"),
    ],
    ids=str,
)
def test_bad_settings_are_refused_in_one_sentence(verb, arguments, message, run):
    with pytest.raises(BadSetting, match=message) as caught:
        run(verb, **arguments)
    assert "\n" not in str(caught.value) and str(caught.value).endswith(".")


def test_an_unknown_text_is_refused():
    with pytest.raises(BadSetting, match="There is no text '0123456789ab' here"):
        STUDIES["groups"](text="0123456789ab", context=Context(browser=False))


def test_a_router_that_is_not_stored_is_fitted_labelled_and_kept(tmp_path):
    state, stages = tmp_path / "state", []
    context = Context(progress=lambda fraction, stage: stages.append(stage), state=state, browser=False)
    arguments = {"model": str(save_model(tmp_path / "tiny")), "context": context}
    request_fields = arguments | {"router": "k4-top2", "long_text": "first"}
    first = STUDIES["groups"](text=context.add_text("a text", SHORT), **request_fields)
    assert first.numbers["K"] == 4 and first.numbers["router"]["kind"] == "not trained"
    assert any("not trained" in note for note in first.numbers["notes"])
    stored = state / "focus" / "k4-top2.safetensors"
    names = [f"{name}.{kind}" for name in ("k4-top2", "random-k4-top2") for kind in ("json", "safetensors")]
    assert sorted(path.name for path in stored.parent.iterdir()) == names
    assert "perplexity_dense" not in first.numbers["router"], "measured on request: fit-router --measure"
    assert "fitting the router" in stages and not any("perplexity" in stage for stage in stages)
    before = stored.stat().st_mtime_ns
    [listed] = STUDIES["model"](**arguments).numbers["routers"]
    assert (listed["name"], listed["groups"], listed["kind"]) == ("k4-top2", 4, "not trained")
    essay = context.add_text("essay", sample_texts()["essay"][1])
    assert any("fitted on" in note for note in STUDIES["groups"](text=essay, **request_fields).numbers["notes"])
    context.model(arguments["model"]).revision = "0123456789ab"
    with pytest.raises(BadSetting, match="made for other weights"):
        STUDIES["groups"](text=essay, **request_fields)
    assert stored.stat().st_mtime_ns == before, "fitted once, and not overwritten"
    stored.write_bytes(b"damaged")
    [broken] = STUDIES["model"](**arguments).numbers["routers"]
    assert broken["kind"] == "damaged" and "fit or train it again" in broken["error"], "the card is not lost with it"


def test_the_card_proves_that_the_seam_is_the_stock_model(run, monkeypatch, bundled):
    card = run("model", None).numbers
    parity = card["parity"]
    assert parity["same"] is True and parity["max_abs_difference"] < 1e-3 and parity["causal_difference"] < 1e-3
    assert card["layers"] == bundled.model().num_layers and card["parameters"] * 4 == card["weight_bytes"]
    assert card["protocol"]["tokens"] == 256
    real = attention.dense
    monkeypatch.setattr(attention, "dense", lambda *a: real(*a) * 1.01)
    assert STUDIES["model"](context=bundled).numbers["parity"] == parity, "the model was compared already"
    bundled.kept.pop("parity")
    assert STUDIES["model"](context=bundled).numbers["parity"]["same"] is False
    bundled.kept.pop("parity")

    def leaking(query, key, value, mask, causal, *options):
        everything = torch.ones(1, 1, query.shape[2], key.shape[2], dtype=torch.bool)
        return real(query, key, value, everything, False, *options)

    monkeypatch.setattr(attention, "dense", leaking)
    broken = STUDIES["model"](context=bundled).numbers["parity"]
    assert broken["same"] is False and broken["causal_difference"] > 0.01


def test_a_card_of_a_small_model_and_of_full_length_beyond_every_window(run, bundled, tmp_path, monkeypatch):
    small = parity(load_model(str(save_model(tmp_path / "tiny"))))
    assert small.tokens == 64 and small.same is True, "it reads less than the probe"
    usual, full = run("model", None).numbers, STUDIES["model"](full=True, context=bundled).numbers
    assert "full" not in usual and usual["small"] == full["small"] and usual["small"]["tokens"] == 96
    differences = full["full"]
    assert differences["same"] and differences["tokens"] == 256
    assert max(differences["one_pass"], differences["decoded"]) < 1e-3
    config = MistralConfig(**GROUPED | {"vocab_size": 300}, sliding_window=12)
    lm = load_model(MistralForCausalLM(config).eval(), tokenizer=byte_level())
    assert full_parity(lm)["tokens"] == 268 and full_parity(lm)["same"]
    lm.max_positions = 100
    assert full_parity(lm)["tokens"] == 100
    monkeypatch.setattr(reference, "past_length", lambda *ignored: 0)
    with pytest.raises(BadModel):
        full_parity(lm)


class Page(HTMLParser):
    """The tags and the words of a page."""

    def __init__(self, page: str):
        super().__init__()
        self.tags, self.words = [], ""
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.words += data


@pytest.fixture(scope="module")
def reported(bundled, run, tmp_path_factory):
    """A report about a hostile text: (its file, its numbers)."""
    path = tmp_path_factory.mktemp("report") / "page.html"
    return path, run("report", HOSTILE * 4, min_distance=32, output=str(path)).numbers


def in_script(page: str) -> dict:
    """What a report says of its text to its script."""
    return json.loads(re.search(r'<script type="text/plain" id="read">(.*?)</script>', page, re.S)[1])


@pytest.mark.slow
def test_a_report_is_one_file_that_asks_nobody_and_runs_one_script(reported):
    path, numbers = reported
    text = path.read_text(encoding="utf-8")
    page = Page(text)
    assert numbers["path"] == str(path) and numbers["bytes"] == path.stat().st_size <= 15_000_000
    assert [entry.name for entry in path.parent.iterdir()] == ["page.html"]
    tags = {tag for tag, _ in page.tags}
    assert not tags & {"link", "img", "iframe", "object", "embed", "a", "form", "base"}
    names = {name for _, attributes in page.tags for name in attributes}
    assert not {n for n in names if n.startswith("on")} and not names & {"src", "href", "srcset", "action"}
    style = re.search("<style>(.*?)</style>", text, re.S)[1]
    assert "url(" not in style and "@import" not in style
    script = re.search('<script type="module">(.*?)</script>', text, re.S)[1]
    allowed = b64encode(sha256(script.encode()).digest()).decode()
    policy = next(about["content"] for tag, about in page.tags if about.get("http-equiv") == "Content-Security-Policy")
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules.pop("style-src") == "'unsafe-inline'" and rules.pop("worker-src") == "blob:"
    assert rules.pop("script-src") == f"'sha256-{allowed}'" and set(rules.values()) == {"'none'"}
    kinds = [about["type"] for tag, about in page.tags if tag == "script"]
    assert kinds.count("module") == 1 and set(kinds) == {"module", "text/plain"}


def test_a_report_holds_the_text_and_the_sentences_of_the_pages(reported, run):
    page = Page(reported[0].read_text(encoding="utf-8"))
    about = in_script(reported[0].read_text(encoding="utf-8"))
    written = "".join(about["pieces"])
    assert (HOSTILE * 4).startswith(written) and len(about["pieces"]) == about["read"]["length"] > 100
    first = run("start", HOSTILE * 4, min_distance=32).numbers
    far, groups = run("pairs", HOSTILE * 4, min_distance=32, top=12), run("groups", HOSTILE * 4)
    for sentence in [*first["sentences"], *first["notes"], far.numbers["sentence"], groups.numbers["sentence"]]:
        assert sentence in page.words
    assert first["protocol"]["revision"] in page.words and first["router"]["kind"] in page.words
    pairs = far.tables["pairs"]
    assert f"{pairs['distance'].iloc[0]} tokens apart" in page.words
    sections = [about.get("class") for tag, about in page.tags if tag == "section"]
    assert sections.count("pair") == len(pairs) > 3


@pytest.mark.parametrize("text", ["Hello there", "😀 😃", "a b " * 30])
def test_a_report_about_a_text_without_far_pairs(text, run, tmp_path):
    run("report", text, output=str(tmp_path / "a.html"))
    page = (tmp_path / "a.html").read_text(encoding="utf-8")
    assert "".join(in_script(page)["pieces"]) == text and not re.search(r"[:>,]nan\b", page, re.I)


def test_a_report_that_cannot_be_written_is_refused(run, tmp_path, monkeypatch):
    (tmp_path / "folder.html").mkdir()
    for place in ("report.txt", "absent/report.html", "folder.html", ""):
        with pytest.raises(BadSetting, match="cannot be written: name an .html file"):
            run("report", output=str(tmp_path / place))
    (tmp_path / "full").mkdir()

    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_bytes", full)
    with pytest.raises(BadSetting, match="No space left on device"):
        run("report", "Hello there", output=str(tmp_path / "full" / "report.html"))


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["pairs", "fit-router"])
def test_cancelling_a_study_leaves_the_model_as_it_came(verb, bundled, tmp_path):
    lm, stages = bundled.model().lm, []
    ids = torch.arange(20)[None]
    with torch.no_grad():
        stock = lm(ids).logits

    def progress(fraction, stage):
        stages.append(stage)
        if len(stages) > 2:
            raise Cancelled("enough")

    context = Context(progress=progress, state=tmp_path, browser=False)
    context._model = ("demo", bundled.model(), bundled.model().revision)
    arguments = {"text": context.add_text("a", SHORT), "min_distance": 32} if verb == "pairs" else {}
    with pytest.raises(Cancelled):
        STUDIES[verb](**arguments, context=context)
    with torch.no_grad():
        assert torch.equal(lm(ids).logits, stock) and not any(hasattr(m, "_focuscope") for m in lm.modules())


def test_umap_of_one_layer(run, monkeypatch):
    vectors = []

    def plane(x, seed):  # UMAP itself: tests/groups/test_contents.py
        vectors.append(x)
        return pca(x)[0], np.arange(len(x), dtype="int32")

    monkeypatch.setattr("analysis.studies.groups.contents.umap2d", plane)
    result = run("umap", layer=2)
    xy = result.arrays["umap"]
    assert xy.shape == (len(result.arrays["positions"]), 2) and xy.dtype == "float32"
    assert vectors[0].shape == (len(xy), 16), "the routing vectors of one layer"
    assert json.dumps(result.numbers["protocol"])

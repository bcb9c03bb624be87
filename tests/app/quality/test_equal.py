"""Equal reads in-process with hand-made results: budgets for all, speeds by kernels, the headline, the stored table."""

import pytest

from analysis.runs.stored import StoredStudy
from analysis.studies.stored.panels import columns as study_columns
from app import cached
from app.quality import timing, verdict
from app.quality.asked import PHASES, Asked, Shown, Timed
from app.selection import state
from app.selection.decide import EQUAL_SHARES
from app.ui import asking
from lab.equal.entries import ENTRIES
from lab.equal.equal_table import means, panels
from tests.made import results
from tests.made.in_process import captions, columns, figures, keys, markup


def test_every_method_gets_the_same_budget(client, page):
    app = page(quality_equal=25, quality="focus~top-2~~streaming_llm~window-8~~quick~~later")
    assert not app.error and app.query_params["quality_equal"] == "25"
    methods = ["Dense", "Focus, groups per token 2, window 128", "StreamingLLM", "Quick, keys 128", "Later"]
    assert columns(app)["method"] == methods and columns(app)["keys of a query"][1:4] == ["128.1"] * 3
    said = markup(app)
    assert "a query reads 128.0 keys on average" in said and "Later reads every key, so it cannot" in said
    assert "set by the budget" in captions(app) and app.slider(key="quality.focus.top").value == 2
    assert not any((one.key or "").endswith((".window", ".keys")) for one in app.select_slider)
    assert "--set focus.window=128" in app.code[-1].value and client.asked.count("equal-budget") == 3
    left = page(quality_equal=5, quality="quick~~streaming_llm~window-8")
    assert "Left out: quick reads 64 keys of a query at the least, not 25.6" in markup(left)
    assert "Quick" not in columns(page(quality_equal=5, quality="quick~~later"))["method"]
    assert "fraction" not in str(page(quality_equal=25, quality="oracle_topk~fraction-0.05").code[-1].value)
    assert page(quality="quick").select_slider(key="quality.quick.keys").value == 8


def test_only_these_budgets_can_stand_in_a_link():
    assert [state.CONTROLS["quality_equal"].from_address(f"{share}") for share in EQUAL_SHARES] == list(EQUAL_SHARES)
    with pytest.raises(ValueError, match="7"):
        state.CONTROLS["quality_equal"].from_address("7")


def test_speed_comes_from_kernels_or_not_at_all(client, page):
    app = page(quality="quick~keys-64~~streaming_llm")
    assert "There is no kernel here for StreamingLLM" in markup(app)
    assert "stay dense until a speed is measured; you can time Quick" in markup(app)
    assert "quality_launch_streaming_llm" not in keys(app)
    app.button(key="quality_launch_quick").click().run()
    spec = {"name": "quick", "settings": {"keys": 64}}
    asked = {"method": spec, "length": None, "new_tokens": 16, "repeats": 3}
    about = {"model": "demo", "text": cached.samples()[0][0]}
    assert client.job.verb == "time-method" and client.job.args == about | asked
    client.done("time-method", client.job.args)
    app = page(quality="quick~keys-64~~streaming_llm")
    best = "Quick, +0.5% perplexity (measured at 1,024 tokens). At 1,008 tokens: later tokens at 1.50 times dense speed"
    assert f"For this text and machine: {best} (1.40 to 1.60), faster from 700 tokens on." in markup(app)
    solid = [trace for trace in figures(app)[0]["data"] if "measured" in trace.get("name", "")]
    assert [trace["x"] for trace in solid] == [[1.5]] and "later tokens" in solid[0]["hovertemplate"]


def one(title: str, difference: float, speed: Timed | None = None, kernels: tuple = ("token",), **more) -> Shown:
    asked = Asked(title.lower(), {"title": title, "kernels": kernels}, None, {}, {}, 0)
    row = {"ceiling": False, "reads_future": False, "settings": {}, "reads_causal": 0.2, "difference": difference}
    return Shown(asked, None, row | more, speed)


SAME, SLOW, FAST = (1.12, 0.74, 1.76), (0.52, 0.48, 0.55), (1.8, 1.6, 2.0)  # median, low, high of the rounds


def timed(prompt: tuple, token: tuple | None, since: tuple = (None, None), length: int = 1024) -> Timed:
    """Speeds of a model of 2,048 tokens whose quality was measured at 1,024."""
    ends = [dict(zip(("median", "low", "high"), one, strict=True)) if one else None for one in (prompt, token)]
    numbers = {"speedup": dict(zip(PHASES, ends, strict=True)), "length": length}
    phases = timing.phases(numbers | {"crossover": dict(zip(PHASES, since, strict=True))}, 2048)
    return Timed(phases[0], phases, 1024)


@pytest.mark.parametrize(
    "speed, told",
    [
        (timed(SAME, SLOW, (4701, None)), "stay dense. Nothing that keeps the perplexity within 5% was faster."),
        (timed(SAME, SLOW, (1684, None)), "Focus is estimated to gain on the prompt from about 1,700 tokens on."),
        (timed(FAST, SLOW, (1024, None)), "Focus gains on the prompt and loses on later tokens, +3.2% perplexity. At"),
        (
            timed(FAST, SAME, (700, None), length=1500),
            "(measured at 1,024 tokens). At 1,500 tokens: the prompt at 1.80",
        ),
        (timed(FAST, SAME, (700, None), length=1500), "faster from 700 tokens on; later tokens, no difference shown"),
    ],
)
def test_the_headline_tells_both_phases(speed, told):
    assert told in verdict.headline([one("Focus", 0.032, speed)])


def test_the_headline_is_honest():
    said = verdict.headline
    slow, fast, trade = timed(SLOW, SLOW), timed(SAME, FAST), timed((9.0, 8.0, 9.9), SLOW)
    beyond = said([one("Focus", 0.032, timed(SAME, SLOW, (4701, None)))])
    assert "4,7" not in beyond, "the prompt was estimated to win at 4,701 tokens, and the model reads 2,048"
    near = one("Near", 0.012, fast)
    assert "machine: Near, +1.2% perplexity. At" in said([one("Slow", 0.0, slow), near])
    assert "machine: Near, " in said([one("Trade", 0.0, trade), near]), "a method that loses nowhere comes first"
    assert "Far" not in said([one("Far", 0.3, fast), near])
    assert said([one("Bad", 0.3, fast)]).endswith("No chosen method keeps the perplexity within 5%.")
    assert "except Top (a ceiling scores every pair" in said([one("Top", 0.0, fast, ceiling=True)])
    both = said([one("Slow", 0.0, slow), one("Other", 0.0, timed(SAME, None))])
    assert "machine: stay dense." in both and "Slow at 1,024 tokens: the prompt at 0.52" in both
    assert said([one("New", 0.0)]).endswith("until a speed is measured; you can time New on this page.")
    assert "there is no kernel for that here" in said([one("Bare", 0.0, kernels=())])


def stored_table() -> dict:
    rows = [
        {"domain": "novels", "context": 1024, "share": share, "target": 512 * share, "method": entry.method}
        | {"label": entry.label, "field": entry.field, "value": 1, "reached": share > 0.1 or at > 3, "kv_read": share}
        | {"difference": at / 100, "difference_low": None, "difference_high": None, "attended": 512 * share}
        | {"reads_causal": share, "perplexity": 20.0}
        for at, entry in enumerate(ENTRIES)
        for share in (0.5, 0.25, 0.1, 0.05)
    ]
    told = {"sentence": "At 5%.", "notes": ["A note."], "columns": study_columns("equal-budget")}
    return told | {"rows": rows, "panels": panels(rows), "means": means(rows)}


def test_figure_1_is_redrawn_from_the_stored_table(page, monkeypatch):
    app = page(tab="equal")
    assert app.query_params["quality_evidence"] == "yes", "a link from when this was a tab"
    assert "not measured on this machine yet for the model" in app.info[0].value
    assert any("study equal-budget" in code.value for code in app.code)
    study = stored_table() | {"protocol": results.protocol("study", {"model": "demo"}, 10) | {"command": "x"}}
    monkeypatch.setattr(asking, "study", lambda model, name: (StoredStudy.of(study), ""))
    app = page(quality_evidence="yes")
    *_, quality = figures(app)
    app.selectbox(key="equal_panel_pick").set_value("Fetched, novels, 1,024 tokens").run()
    assert app.query_params["equal_panel"] == "Fetched, novels, 1,024 tokens"
    *_, fetched = figures(app)
    assert quality["layout"]["yaxis"]["autorange"] == "reversed" and "autorange" not in fetched["layout"]["yaxis"]
    assert [trace["name"] for trace in quality["data"]] == [entry.label for entry in ENTRIES]
    looks = {(one["line"]["color"], one["line"]["dash"], one["marker"]["symbol"]) for one in quality["data"]}
    assert len(looks) == len(ENTRIES), "no two methods look alike"
    assert quality["data"][0]["x"] == [2, 4, 10, 20] and quality["data"][0]["y"] == [0.0, 0.0, None, None]

"""Equal reads in-process with hand-made results: budgets for all, speeds by kernels, the headline, the stored table."""

import json

import pytest

from analysis.runs.stored import StoredStudy
from analysis.studies.stored.panels import columns as study_columns
from app import cached
from app.quality import timing, verdict
from app.quality.asked import PHASES, Asked, Shown, Timed
from app.selection import state
from app.selection.decide import EQUAL_SHARES
from app.ui import asking
from lab.equal.arms import ENTRIES
from lab.equal.panels import means, panels
from tests.app.quality.test_quality import columns, opened, trade
from tests.made import results
from tests.made.in_process import markup
from tests.made.quality import equal_budget, evaluate, time_method
from tests.made.results import STUDIES


@pytest.fixture
def client(client, monkeypatch):
    monkeypatch.setattr(results, "CONTEXT", 2048)
    for verb, study in {"evaluate": evaluate, "equal-budget": equal_budget, "time-method": time_method}.items():
        monkeypatch.setitem(STUDIES, verb, study)
    return client


def test_every_method_gets_the_same_budget(client):
    app = opened(quality_equal=25, quality="focus~top-2~~streaming_llm~window-8~~quick~~later")
    assert not app.error and app.query_params["quality_equal"] == "25"
    shown = columns(app)
    assert shown["method"] == [
        "Dense",
        "Focus, groups per token 2, window 128",
        "StreamingLLM",
        "Quick, keys 128",
        "Later",
    ]
    assert shown["keys of a query"][1:4] == ["128.1"] * 3
    said = markup(app)
    assert "a query reads 128.0 keys on average" in said and "Later reads every key, so it cannot" in said
    assert "set by the budget" in str([caption.value for caption in app.caption])
    assert not any(key.endswith((".window", ".keys")) for key in (one.key or "" for one in app.select_slider))
    assert app.slider(key="quality.focus.top").value == 2
    assert "--set focus.window=128" in app.code[-1].value and client.asked.count("equal-budget") == 3
    left = opened(quality_equal=5, quality="quick~~streaming_llm~window-8")
    assert "Left out: quick reads 64 keys of a query at the least, not 25.6" in markup(left)
    assert "Quick" not in columns(opened(quality_equal=5, quality="quick~~later"))["method"]
    assert "fraction" not in str(opened(quality_equal=25, quality="oracle_topk~fraction-0.05").code[-1].value)
    assert opened(quality="quick").select_slider(key="quality.quick.keys").value == 8


def test_only_these_budgets_can_stand_in_a_link():
    assert [state.CONTROLS["quality_equal"].from_address(f"{share}") for share in EQUAL_SHARES] == list(EQUAL_SHARES)
    with pytest.raises(ValueError, match="7"):
        state.CONTROLS["quality_equal"].from_address("7")


def test_speed_comes_from_kernels_or_not_at_all(client):
    app = opened(quality="quick~keys-64~~streaming_llm")
    assert "There is no kernel here for StreamingLLM" in markup(app)
    assert "stay dense until a speed is measured; you can time Quick" in markup(app)
    assert "quality_launch_streaming_llm" not in [button.key for button in app.button]
    app.button(key="quality_launch_quick").click().run()
    job = client.states["0123456789ab"]
    spec = {"name": "quick", "settings": {"keys": 64}}
    asked = {"method": spec, "length": None, "new_tokens": 16, "repeats": 3}
    assert job.verb == "time-method" and job.args == {"model": "demo", "text": cached.samples()[0][0]} | asked
    made = time_method(job.args, "")
    client.store.put("time-method", job.args, made, made.numbers["protocol"], 1.0)
    app = opened(quality="quick~keys-64~~streaming_llm")
    best = "Quick, +0.5% perplexity (measured at 1,024 tokens). At 1,008 tokens: later tokens at 1.50 times dense speed"
    assert f"For this text and machine: {best} (1.40 to 1.60), faster from 700 tokens on." in markup(app)
    solid = [trace for trace in trade(app)["data"] if "measured" in trace.get("name", "")]
    assert [trace["x"] for trace in solid] == [[1.5]] and "later tokens" in solid[0]["hovertemplate"]


def one(title: str, difference: float, speed: Timed | None = None, kernels: tuple = ("token",), **more) -> Shown:
    asked = Asked(title.lower(), {"title": title, "kernels": kernels}, None, {}, {}, 0)
    row = {"ceiling": False, "reads_future": False, "settings": {}, "reads_causal": 0.2, "difference": difference}
    return Shown(asked, None, row | more, speed)


SAME, SLOW, FAST = (1.12, 0.74, 1.76), (0.52, 0.48, 0.55), (1.8, 1.6, 2.0)  # median, low, high of the rounds


def timed(prompt: tuple, token: tuple | None, since: tuple = (None, None), length: int = 1024) -> Timed:
    """A speed as `quality.speed` gives it: a model of 2,048 tokens whose quality was measured at 1,024."""
    ends = [dict(zip(("median", "low", "high"), one, strict=True)) if one else None for one in (prompt, token)]
    numbers = {"speedup": dict(zip(PHASES, ends, strict=True)), "length": length}
    numbers |= {"crossover": dict(zip(PHASES, since, strict=True))}
    phases = timing.phases(numbers, 2048)
    return Timed(phases[0], phases, 1024)


def test_the_headline_tells_both_phases_and_nothing_beyond_the_models_context():
    said = verdict.headline
    assert said([one("Focus", 0.032, timed(SAME, SLOW, (4701, None)))]) == (
        "For this text and machine: stay dense. Nothing that keeps the perplexity within 5% was faster. Focus at 1,024 "
        "tokens: the prompt, no difference shown (1.12 times dense speed, 0.74 to 1.76); later tokens at 0.52 times "
        "dense speed (0.48 to 0.55)."
    ), "the prompt was estimated to win at 4,701 tokens, and the model reads 2,048"
    assert said([one("Focus", 0.032, timed(SAME, SLOW, (1684, None)))]).endswith(
        "Focus is estimated to gain on the prompt from about 1,700 tokens on."
    )
    assert said([one("Focus", 0.032, timed(FAST, SLOW, (1024, None)))]) == (
        "For this text and machine: Focus gains on the prompt and loses on later tokens, +3.2% perplexity. At 1,024 "
        "tokens: the prompt at 1.80 times dense speed (1.60 to 2.00); later tokens at 0.52 times dense speed "
        "(0.48 to 0.55)."
    )
    assert said([one("Focus", 0.032, timed(FAST, SAME, (700, None), length=1500))]) == (
        "For this text and machine: Focus, +3.2% perplexity (measured at 1,024 tokens). At 1,500 tokens: the prompt at "
        "1.80 times dense speed (1.60 to 2.00), faster from 700 tokens on; later tokens, no difference shown (1.12 "
        "times dense speed, 0.74 to 1.76)."
    )


def test_the_headline_is_honest():
    said = verdict.headline
    slow, fast, trade = timed(SLOW, SLOW), timed(SAME, FAST), timed((9.0, 8.0, 9.9), SLOW)
    near = one("Near", 0.012, fast)
    assert "machine: Near, +1.2% perplexity. At" in said([one("Slow", 0.0, slow), near])
    assert "machine: Near, " in said([one("Trade", 0.0, trade), near]), "a method that loses nowhere comes first"
    assert "Far" not in said([one("Far", 0.3, fast), near])
    assert said([one("Bad", 0.3, fast)]).endswith("No chosen method keeps the perplexity within 5%.")
    assert said([one("Top", 0.0, fast, ceiling=True)]).endswith(
        "keeps the perplexity within 5%, except Top (a ceiling scores every pair to choose: it saves no time)."
    )
    both = said([one("Slow", 0.0, slow), one("Other", 0.0, timed(SAME, None))])
    assert "machine: stay dense." in both and "Slow at 1,024 tokens: the prompt at 0.52" in both
    assert both.endswith(
        "Other at 1,024 tokens: the prompt, no difference shown (1.12 times dense speed, 0.74 to 1.76)."
    )
    assert said([one("New", 0.0)]).endswith("until a speed is measured; you can time New on this page.")
    assert said([one("Bare", 0.0, kernels=())]).endswith(
        "Bare would keep the quality, but there is no kernel for that here."
    )


def stored_table() -> dict:
    rows = [
        {"domain": "novels", "context": 1024, "share": share, "target": 512 * share, "method": entry.method}
        | {"label": entry.label, "field": entry.field, "value": 1, "reached": share > 0.1 or at > 3, "kv_read": share}
        | {"difference": at / 100, "difference_low": None, "difference_high": None, "attended": 512 * share}
        | {"reads_causal": share, "perplexity": 20.0}
        for at, entry in enumerate(ENTRIES)
        for share in (0.5, 0.25, 0.1, 0.05)
    ]
    return {
        "rows": rows,
        "columns": study_columns("equal-budget"),
        "panels": panels(rows),
        "means": means(rows),
        "sentence": "At 5%.",
        "notes": ["A note."],
    }


def test_figure_1_is_redrawn_from_the_stored_table(client, monkeypatch):
    app = opened(tab="equal")
    assert app.query_params["quality_evidence"] == "yes", "a link from when this was a tab"
    assert "not measured on this machine yet for the model" in app.info[0].value and any(
        "study equal-budget" in code.value for code in app.code
    )
    study = stored_table() | {"protocol": results.protocol("study", {"model": "demo"}, 10) | {"command": "x"}}
    stored = {"equal-budget": StoredStudy.of(study)}
    monkeypatch.setattr(asking, "study", lambda model, name: (stored.get(name), ""))
    app = opened(quality_evidence="yes")
    *_, quality = [json.loads(chart.proto.spec) for chart in app.get("plotly_chart")]
    app.selectbox(key="equal_panel_pick").set_value("Fetched, novels, 1,024 tokens").run()
    assert app.query_params["equal_panel"] == "Fetched, novels, 1,024 tokens"
    *_, fetched = [json.loads(chart.proto.spec) for chart in app.get("plotly_chart")]
    assert quality["layout"]["yaxis"]["autorange"] == "reversed" and "autorange" not in fetched["layout"]["yaxis"]
    assert [trace["name"] for trace in quality["data"]] == [entry.label for entry in ENTRIES]
    looks = {(one["line"]["color"], one["line"]["dash"], one["marker"]["symbol"]) for one in quality["data"]}
    assert len(looks) == len(ENTRIES), "no two methods look alike"
    assert quality["data"][0]["x"] == [2, 4, 10, 20] and quality["data"][0]["y"] == [0.0, 0.0, None, None]
    assert "At 5%." in markup(app)

"""Every page with a model of each kind that people run: learned sinks, a hybrid with output gates, an indexer on MLA,
sizes of heads that differ by layer. What cannot be done with one ends in a sentence.
"""

import huggingface_hub
import pytest
import streamlit as st

from analysis.jobs import Jobs
from analysis.runs import RunStore
from app import cached
from app.selection.look import HEAD_TABS
from app.selection.menu import PAGES
from app.selection.sparsify import BUDGET_TABS, ROUTE_TABS, TEMPERATURE_TABS
from tests.made.evaluating import TEXT
from tests.made.families import WALKED, walked
from tests.made.in_process import at, markup, part

pytestmark = pytest.mark.slow
# What a page shows only when it is asked for.
MORE = {
    "text": [{"start_more": "yes"}],
    "links": [{"pairs_more": "yes"}],
    "groups": [{"groups_more": "yes"}],
    "map": [*({"head_tab": tab} for tab in HEAD_TABS), {"heads_evidence": "yes"}, {"without": "yes"}],
    "temperature": [{"temperature_tab": tab} for tab in TEMPERATURE_TABS],
    "budgets": [{"budgets": tab} for tab in BUDGET_TABS],
    "routers": [{"route_tab": tab} for tab in ROUTE_TABS],
}
FAILED = ("internal error", "This part of the page failed")
MOST = 4  # Run buttons on one page, one after the other


@pytest.fixture(scope="module")
def hub(once):
    """A store and a worker that read the models of a Hugging Face cache of our own."""
    folder = once("families", walked)
    store = RunStore(folder / "state")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("HF_HUB_CACHE", str(folder / "hub"))
        patched.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(folder / "hub"))
        jobs = Jobs(store)
        st.cache_data.clear()
        st.cache_resource.clear()
        patched.setattr(cached, "store", lambda: store)
        patched.setattr(cached, "jobs", lambda: jobs)
        yield folder
        jobs.close()
    st.cache_data.clear()


def run(app):
    """The page drawn, with all that waits for a button computed; sentences of what cannot be done."""
    app.run()
    for _ in range(MOST):
        waiting = [button for button in app.button if button.key and button.key.startswith("run_")]
        if not waiting:
            break
        waiting[0].click().run()
    assert not app.exception, app.exception[0].message
    return [error.value for error in app.error]


def opened(family: str) -> tuple[str, str]:
    """The names of a model and of a text for it."""
    return f"tiny/{family}", cached.store().put_text(TEXT, "cats")


def test_the_map_of_a_hybrid_has_every_layer_by_its_number_and_the_card_says_how_far_its_gate_is_open(hub):
    model, text = opened("qwen3_next")
    app = at("map", model=model, text=text)
    assert run(app) == []
    sent = part(app, "heads")
    without = "linear attention"
    assert sent["rows"] == [[3, None], [2, without], [1, None], [0, without]]
    assert sent["chosen"][0] in (1, 3) and "Mean gate" in [measure["chip"] for measure in sent["measures"]]
    assert "output gate" in markup(app)
    assert len(run(at("map", model=model, text=text, layer=1, head=0, without="yes"))) == 0


def test_budgets_and_methods_say_which_layers_of_a_hybrid_they_leave(hub):
    model, text = opened("qwen3_next")
    app = at("budgets", model=model, text=text)
    assert run(app) == []
    without = "linear attention"
    assert part(app, "budgets")["rows"] == [[3, None], [2, without], [1, None], [0, without]]
    app = at("methods", model=model, text=text, quality="streaming_llm", quality_equal=50)
    assert run(app) == [] and f"2 of 4 layers are {without}" in markup(app)


def test_a_card_says_what_the_models_own_indexer_leaves_of_a_head(hub):
    model, text = opened("deepseek_v32")
    app = at("map", model=model, text=text, statistic="selected_mass")
    assert run(app) == []
    assert "own indexer" in markup(app) and part(app, "heads")["measure"] == "selected_mass"


def test_methods_may_choose_in_place_of_the_indexer(hub):
    model, text = opened("deepseek_v32")
    link = {"model": model, "text": text, "quality": "streaming_llm", "quality_equal": 50}
    app = at("methods", **link, quality_instead="yes")
    assert run(app) == [] and app.checkbox(key="quality_instead").value
    assert "instead of the indexer" in app.title[0].value and "--instead" in app.code[-1].value
    assert "Export" not in markup(app), "the code that leaves keeps the indexer"
    app.checkbox(key="quality_instead").uncheck().run()
    assert run(app) == [] and "instead" not in app.title[0].value and "quality_instead" not in app.query_params


@pytest.mark.timeout(900)
@pytest.mark.parametrize("family", WALKED)
def test_every_page_opens_with_every_kind_of_model(hub, family):
    model, text = opened(family)
    failed, sentences = {}, {}
    for page in PAGES:
        for link in [{}, *MORE.get(page, [])]:
            place = " ".join([page, *map("=".join, link.items())])
            lines = run(at(page, model=model, text=text, **link))
            sentences |= {place: lines} if lines else {}
            if any(words in line for line in lines for words in FAILED) or any(line[-1] not in ".!" for line in lines):
                failed[place] = lines
    print(family, *(f"\n  {place}: {lines}" for place, lines in sentences.items()))
    log = hub / "state" / "worker.log"
    assert failed == {}
    assert "Traceback" not in log.read_text(), log.read_text()[-2000:]

"""Smaller scopes: each room offers less of its own work, in its own controls, and the kit knows no verb."""

import re

import pytest
import streamlit as st

from analysis.commands.budgets import Calibrate
from analysis.commands.groups import TrainRouter
from analysis.commands.probes import Probe
from analysis.commands.speed import Bench
from analysis.runs import Price
from app import cached
from app.budgets import calibrate, cap
from app.probes import probe_form
from app.selection.controls import CONTROLS
from app.selection.menu import PAGES
from app.speed import speed_requests
from app.training import training_requests
from tests.made.in_process import markup, opened

PROBE = Probe(items=16, methods=[{}, {}])
OFFERED = [
    (training_requests.smaller, TrainRouter(steps=400), {"100 steps": 0.25}),
    (training_requests.smaller, TrainRouter(steps=30), {}),
    (speed_requests.smaller, Bench(repeats=2, lengths=[1024]), {}),
    (speed_requests.smaller, Bench(repeats=6, lengths=[1000, 3000]), {"up to 1,000 tokens": 0.1, "2 rounds": 0.6}),
    (calibrate.smaller, Calibrate(tokens=1024, caps=[]), {}),
    (calibrate.smaller, Calibrate(tokens=8192, caps=[64]), {"2,048 tokens": 0.25, "without the search for a cap": 0.5}),
    (cap.smaller, [32], {}),
    (cap.smaller, [32, 64, 128], {"1 cap": 0.5}),
    (probe_form.smaller, PROBE, {"4 questions in a cell": 0.25, "dense attention only": 1 / 3}),
]


@pytest.mark.parametrize("smaller, work, offered", OFFERED)
def test_a_room_offers_less_of_its_own_work(monkeypatch, smaller, work, offered):
    monkeypatch.setitem(st.session_state, "probe_reach", 256)
    scopes = smaller(work)
    assert {scope.words: scope.share for scope in scopes} == pytest.approx(offered)
    for scope in scopes:
        for name, value in scope.controls.items():
            assert CONTROLS[name].from_address(str(value).replace("False", "no")) == value, name


def test_a_run_that_does_not_fit_the_memory_is_refused_with_the_part_that_does(client, monkeypatch):
    """Each token is said to take a megabyte and 300 MB are free: 288 of 1,150 tokens fit, a quarter of the text."""
    key = client.store.put_text("word " * 1150, "long.txt")
    monkeypatch.setattr(cached, "free_memory", lambda: 300_000_000)
    monkeypatch.setattr(
        cached, "predicted", lambda store, request, tokens, card: Price(1.0, 1.0, 1.0, 10**6 * tokens, 1)
    )
    app = opened("groups", text=key)
    assert "groups" not in client.asked and not [button for button in app.button if button.key.startswith("run_")]
    assert "not started. It needs about" in markup(app) and "300 MB are free" in markup(app)
    (offered,) = [button for button in app.button if button.key.startswith("memory_")]
    offered.click().run()
    assert "groups" in client.asked and not app.error
    assert client.store.text(app.query_params["text"])[0].startswith("long.txt (first ")
    monkeypatch.setattr(cached, "free_memory", lambda: 1000)
    assert "Choose a shorter text, a smaller model" in markup(opened("groups", text=key))


@pytest.mark.slow
@pytest.mark.parametrize("view", PAGES)
def test_what_computes_looks_like_it_and_what_filters_does_not(client, view):
    """What computes has its price and the sign of starting; what only sorts or filters has neither."""
    signs = {":material/play_arrow:", ":material/compress:"}
    for button in opened(view).button:
        assert (button.proto.icon in signs) == bool(re.search(r", ~\d", button.label)), button.label


BIG = Price(25.0, 6.0, 100.0, None, 0)  # of a large model's first request: it may take 6 s, and 25 are predicted


@pytest.fixture
def big(client, monkeypatch):
    monkeypatch.setattr(cached, "predicted", lambda store, request, tokens, card: BIG)
    return client


@pytest.mark.parametrize(
    "view, verb, times",
    # The first window, then all of them.
    [("text", "start", 2), ("map", "statistics", 1)],
)
def test_a_smaller_scope_runs_when_it_is_clicked(big, view, verb, times):
    key = big.store.put_text("word " * 1150, "long.txt")
    app = opened(view, text=key)
    assert verb not in big.asked
    cut = next(button for button in app.button if button.key.startswith("run_") and "quarter" in button.label)
    assert cut.label.endswith(", ~6 s")
    cut.click().run()
    assert big.asked.count(verb) == times and not app.error
    assert not [button for button in app.button if button.key.startswith(f"run_{verb}")], "nothing is offered once more"
    (run,) = big.store.list(verb)
    assert run.request["text"] == app.query_params["text"] != key
    app.run()
    assert big.asked.count(verb) == times


def test_a_smaller_job_is_submitted_when_it_is_clicked(big, monkeypatch):
    monkeypatch.setattr(training_requests, "price", lambda request, card: Price(900.0, 600.0, 1200.0, None, 2, 0.1))
    app = opened("training", evidence="train", train_steps=400)
    scopes = [button for button in app.button if "_smaller_" in button.key]
    assert scopes and not big.states
    scopes[0].click().run()
    (job,) = big.states.values()
    assert job.args["steps"] == 100 and app.query_params["job"] == job.id


@pytest.mark.parametrize(
    "view, verb",
    [
        ("temperature", "temperature"),
        ("methods", "evaluate"),
        ("papers", "model"),
        ("generate", "generate"),
        ("groups", "groups"),
        ("map", "statistics"),
    ],
)
def test_what_is_predicted_long_never_starts_unasked(big, view, verb):
    app = opened(view)
    assert verb not in big.asked and set(big.asked) <= {"model", "inspect"} and not big.states and not app.error
    assert app.button, "a button starts it"

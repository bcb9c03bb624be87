"""Smaller scopes: each room offers less of its own work, in its own controls, and the kit knows no verb."""

import pytest
import streamlit as st

from analysis.studies.registry import VERBS
from app.budgets import calibrate, cap
from app.probes import asked as probes
from app.selection.controls import CONTROLS
from app.speed import requests as speed
from app.training import requests as training
from tests.conftest import ROOT

PROBE = {"items": 16, "methods": [{}, {}]}
OFFERED = [
    (training.smaller, {"steps": 400}, {"100 steps": 0.25}),
    (training.smaller, {"steps": 30}, {}),
    (speed.smaller, {"repeats": 2, "lengths": [1024]}, {}),
    (speed.smaller, {"repeats": 6, "lengths": [1000, 3000]}, {"up to 1,000 tokens": 0.1, "2 rounds": 0.6}),
    (calibrate.smaller, {"tokens": 1024, "caps": []}, {}),
    (calibrate.smaller, {"tokens": 8192, "caps": [64]}, {"2,048 tokens": 0.25, "without the search for a cap": 0.5}),
    (cap.smaller, [32], {}),
    (cap.smaller, [32, 64, 128], {"1 cap": 0.5}),
    (probes.smaller, PROBE, {"4 questions in a cell": 0.25, "dense attention only": 1 / 3}),
]


@pytest.mark.parametrize("smaller, asked, offered", OFFERED)
def test_a_room_offers_less_of_its_own_work(monkeypatch, smaller, asked, offered):
    monkeypatch.setitem(st.session_state, "probe_reach", 256)
    found = smaller(asked)
    assert {scope.words: scope.share for scope in found} == pytest.approx(offered)
    for scope in found:
        for name, value in scope.controls.items():
            assert CONTROLS[name].parse(str(value).replace("False", "no")) == value, name


def test_the_kit_knows_no_verb():
    known = {verb for verb in VERBS if "-" in verb} | {"evaluate", "calibrate", "probe", "launch", "bench"}
    for name in ("offers", "tabs", "fields", "widgets", "tables", "reading", "stored"):
        text = (ROOT / "app" / "ui" / f"{name}.py").read_text(encoding="utf-8")
        assert not [verb for verb in known if f'"{verb}"' in text], name

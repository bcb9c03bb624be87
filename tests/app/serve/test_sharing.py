"""An installation that others use: headers, limits, the allow-list, signing in, and what one reader sees of another."""

import urllib.request
from pathlib import Path

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from analysis.commands import COMMANDS
from analysis.declaration.undeclared import Undeclared
from analysis.errors import AnalysisError, BadModel, BadSetting
from analysis.jobs import Jobs, runner
from analysis.limits import DEMO, OPEN, Limits, limits
from analysis.runs import RunStore
from analysis.studies import STUDIES
from app.serve import sharing
from app.serve.headers import headers
from tests.made.in_process import PATIENCE, in_chip, opened
from tests.made.working import ended

ENTRY = str(Path(__file__).resolve().parents[3] / "app" / "streamlit_app.py")


@pytest.fixture
def demo(monkeypatch):
    monkeypatch.setenv("FOCUSCOPE_DEMO", "1")


def test_limits_follow_the_environment(monkeypatch):
    assert limits() == OPEN
    monkeypatch.setenv("FOCUSCOPE_MODELS", "demo, owner/name,")
    assert limits().models == ("demo", "owner/name") and not limits().demo
    monkeypatch.setenv("FOCUSCOPE_DEMO", "1")
    assert limits().models == ("demo", "owner/name")


def test_a_demo_refuses_models_verbs_and_long_texts():
    DEMO.check(Undeclared("groups", {"model": "demo"}))
    for args in ({"model": "owner/name"}, {"model": "demo@float16"}, {"model": 3}, {"other_model": "x/y"}):
        with pytest.raises(BadModel, match="not among the models of this installation: choose demo"):
            DEMO.check(Undeclared("groups", args))
    with pytest.raises(BadSetting, match="shared demo, and train-router would change"):
        DEMO.check(Undeclared("train-router", {"model": "demo"}))
    with pytest.raises(AnalysisError, match="101 kB and this shared demo reads 100 kB"):
        DEMO.check_text(b"x" * 101_000, "mine.txt")
    OPEN.check(Undeclared("train-router", {"model": "../anything"}))


def test_a_demo_allows_only_what_the_registry_says_leaves_nothing_and_takes_no_machine():
    allowed = {verb for verb in STUDIES if DEMO.allows(verb)}
    assert allowed == {verb for verb in STUDIES if COMMANDS[verb].in_a_demo()}
    assert not allowed & {"study", "time-method", "topk-cost", "route-time", "route", "finetune", "calibrate"}
    assert {"inspect", "model", "start", "groups", "pairs", "evaluate", "worth", "head"} <= allowed
    assert not DEMO.allows("a-verb-of-tomorrow") and OPEN.allows("a-verb-of-tomorrow")


def test_app_and_worker_both_refuse(tmp_path, demo):
    store = RunStore(tmp_path)
    jobs = Jobs(store, "tests.made.fake_studies:STUDIES")
    try:
        for ask in (jobs.request, jobs.submit):
            with pytest.raises(BadModel):
                ask(Undeclared("inspect", {"model": "owner/name"}))
        assert jobs.status()["state"] == "cold"
        forged = {"model": "owner/name"}  # past the app's own check, as nothing but a mistake of ours could be
        with pytest.raises(BadModel, match="not among the models"):
            jobs._keeper.ask("inspect", forged, 60)
        assert jobs.request(Undeclared("inspect", {"model": "demo"})).numbers["model"] == "demo"
    finally:
        jobs.close()


def test_a_job_that_takes_too_long_is_ended_with_a_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "limits", lambda: Limits(job_seconds=0.3))
    store = RunStore(tmp_path)
    jobs = Jobs(store, "tests.made.fake_studies:STUDIES")
    try:
        job = jobs.submit(Undeclared("gate", {"name": "long"}))
        status = ended(jobs, job)
        assert status.state == "failed" and "more than 0 s, the limit here: choose a smaller scope" in status.error
    finally:
        jobs.close()


@pytest.mark.slow
def test_every_answer_carries_the_headers(app_server):
    for place in ("/", "/token-groups", "/_stcore/health"):
        with urllib.request.urlopen(app_server + place) as answer:
            for name, value in headers():
                assert answer.headers.get_all(name.decode()) == [value.decode()], (place, name)
    rules = dict(headers())[b"content-security-policy"].decode()
    assert "unsafe-eval" not in rules and "script-src 'self' blob: 'sha256-" in rules and "*" not in rules


def test_a_demo_shows_neither_texts_nor_runs_of_others(client, demo):
    client.store.put_text("a secret of somebody else " * 5, "theirs.txt")
    app = opened()
    assert "theirs.txt" not in str(in_chip(app, "text").options)
    assert any("other readers are not shown it" in caption.value for caption in app.caption)
    app.file_uploader(key="upload_0").upload("mine.txt", b"some words of my own " * 9)
    app.run()
    assert "mine.txt" in str(in_chip(app, "text").options) and not app.error
    app.file_uploader(key="upload_1").upload("long.txt", b"some words of my own " * 9000)
    app.run()
    assert "189 kB and this shared demo reads 100 kB" in app.error[0].value.replace("\\", "")


def test_a_demo_locks_the_model(client, demo):
    app = opened()
    assert in_chip(app, "model").options == ["demo"] and in_chip(app, "model").disabled
    assert not [box for box in app.text_input if box.key == "model_name"]


def test_a_list_of_models_is_a_choice(client, monkeypatch):
    monkeypatch.setenv("FOCUSCOPE_MODELS", "demo,owner/tiny")
    app = opened()
    in_chip(app, "model").set_value("owner/tiny").run()
    assert app.query_params["model"] == "owner/tiny" and not app.exception


def signed_in(monkeypatch, user: dict, **secrets: object) -> AppTest:
    """The app as a reader with these claims meets it, with these sections of secrets."""

    class User(dict):
        is_logged_in = user["is_logged_in"]

    monkeypatch.setattr(sharing.st, "user", User(user))
    app = AppTest.from_file(ENTRY, default_timeout=PATIENCE)
    app.secrets.update(secrets)
    app.run()
    assert not app.exception
    return app


AUTH = {"redirect_uri": "https://example.org/oauth2callback"}
ALLOWED = {"allowed": ["one@example.org", "@team.example.org"]}
VERIFIED = {"is_logged_in": True, "email_verified": True}


@pytest.mark.parametrize(
    ("user", "key"),
    [
        ({"is_logged_in": False}, "sign_in"),
        (VERIFIED | {"email": "x@example.org"}, "sign_out"),
        (VERIFIED | {"email": "x@otherteam.example.org"}, "sign_out"),
        (VERIFIED, "sign_out"),
        (VERIFIED | {"email": "a@team.example.org", "email_verified": False}, "sign_out"),
        (VERIFIED | {"email": "a@team.example.org", "email_verified": None}, "sign_out"),
        (VERIFIED | {"email": "a@team.example.org", "email_verified": "false"}, "sign_out"),
        ({"is_logged_in": True, "email": "a@team.example.org"}, "sign_out"),
        (VERIFIED | {"email": "A@team.example.org"}, None),
        (VERIFIED | {"email": "one@example.org"}, None),
    ],
)
def test_with_a_provider_only_the_verified_and_listed_come_in(client, monkeypatch, user, key):
    app = signed_in(monkeypatch, user, auth=AUTH, focuscope=ALLOWED)
    assert [button.key for button in app.button if button.key in ("sign_in", "sign_out")] == ([key] if key else [])
    assert bool(app.selectbox) == (key is None)


@pytest.mark.parametrize(
    "secrets",
    [
        {"auth": AUTH},
        {"auth": AUTH, "focuscope": {"alowed": ["one@example.org"]}},
        {"auth": AUTH, "focuscope": {"allowed": []}},
        {"auth": AUTH, "focuscope": {"allowed": "one@example.org"}},
        {"auth": AUTH, "focuscope": {"allowed": ["one@example.org", "example.org"]}},
        {"auth": AUTH, "focuscope": "one@example.org"},
        {"focuscope": ALLOWED},
    ],
)
def test_a_list_that_is_missing_or_misspelt_lets_nobody_in(client, monkeypatch, caplog, secrets):
    app = signed_in(monkeypatch, VERIFIED | {"email": "one@example.org"}, **secrets)
    assert not app.selectbox and len(app.error) == 1 and "Nobody is let in here" in app.error[0].value
    assert "Nobody is let in here" in caplog.text


def test_secrets_with_a_slip_let_nobody_in(client, monkeypatch, tmp_path):
    (tmp_path / "secrets.toml").write_text("[auth\n")
    option = st.get_option
    files = {"secrets.files": [str(tmp_path / "secrets.toml")]}
    monkeypatch.setattr(sharing.st, "get_option", lambda name: files.get(name) or option(name))
    app = AppTest.from_file(ENTRY, default_timeout=PATIENCE).run()
    assert not app.selectbox and "secrets.toml cannot be read" in app.error[0].value.replace("\\", "")


def test_without_a_provider_nobody_is_asked(client):
    assert not [button for button in opened().button if button.key == "sign_in"]
    assert st.user is not None

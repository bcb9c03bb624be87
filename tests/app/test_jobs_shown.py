"""Long jobs in-process with hand-made results: how far they are, cancelling them, and what they leave."""

from analysis.commands import COMMANDS
from analysis.declaration.undeclared import Undeclared
from analysis.runs import Result
from app.ui.jobs import progress_words
from tests.made.in_process import go, markup, opened
from tests.made.results import status

JOB = "0123456789ab"


def test_a_stopped_worker_is_said_and_another_one_offered(client):
    client.states[JOB] = status("running", fraction=0.4, stage="fitting")
    app = opened("groups", job=JOB)
    assert f"job_restart_{JOB}" not in [button.key for button in app.button]
    client.stopped[JOB] = 21.0
    app.run()
    assert "21 s" in app.get("progress")[0].proto.text
    app.button(key=f"job_restart_{JOB}").click().run()
    assert not client.stopped and "fitting" in app.get("progress")[0].proto.text


def test_a_long_job_is_submitted_watched_cancelled_and_resumed(client):
    app = opened("groups", groups_fit="yes")
    app.toggle(key="fit_measure").set_value(True).run()
    app.button(key="fit_run").click().run()
    assert client.states[JOB].args["measure"] is True
    assert app.query_params["job"] == JOB and "queue" in app.get("progress")[0].proto.text
    client.states[JOB] = status("running", fraction=0.4, stage="fitting <b>", seconds_left=130)
    app.run()
    assert "about 2 min 10 s left" not in progress_words(status("running", fraction=0.05, seconds_left=130))
    assert "40%, about 2 min 10 s left" in app.main.get("progress")[0].proto.text and not app.sidebar.get("progress")
    go(app, "links")
    assert "40%" in app.get("progress")[0].proto.text, "it stands on every page"
    app.button(key="job_cancel").click().run()
    assert "cancelled" in app.warning[0].value
    app.button(key="job_resume").click().run()
    assert app.get("progress")
    client.states[JOB] = status("failed", error="The disk is full: free 1 GB.")
    app.run()
    assert app.error[0].value == "The disk is full\\: free 1 GB\\." and app.title
    app.button(key="job_dismiss").click().run()
    assert "job" not in app.query_params and not app.error


def test_all_that_this_session_runs_stands_on_top_and_can_be_cancelled(client, monkeypatch):
    jobs = [status("running", id=f"{number:012x}", verb=verb) for number, verb in enumerate(("launch", "bench"), 1)]
    client.states |= {job.id: job for job in jobs}
    monkeypatch.setattr(client, "active", lambda session=None: [job for job in jobs if session])
    app = opened(job=jobs[1].id)
    names = [bar.proto.text.partition(" (")[0].partition(":")[0] for bar in app.get("progress")]
    assert names == [COMMANDS[verb].brief for verb in ("bench", "launch")]
    cancelled = []
    monkeypatch.setattr(client, "cancel", cancelled.append)
    app.button(key=f"job_cancel_{jobs[0].id}").click().run()
    app.button(key="job_cancel").click().run()
    assert cancelled == [jobs[0].id, jobs[1].id]


def test_a_finished_fit_offers_its_router_and_says_what_moved_to_the_trash(client):
    args, note = {"model": "demo", "groups": 6, "top": 2}, "2 runs that used the router k6-top2 moved to the trash"
    run = client.store.put(Undeclared("fit-router", args), Result({"notes": [note], "protocol": {}}), {}, 1.0)
    client.states[JOB] = status("done", fraction=1.0, args=args, run=run.id)
    app = opened("groups", job=JOB)
    assert note in markup(app)
    app.button(key="job_use").click().run()
    assert app.query_params["router"] == "k6-top2" and "job" not in app.query_params


def test_a_link_to_an_unknown_job_loses_it(client):
    app = opened(job="abcdefabcdef")
    assert any("not known here" in caption.value for caption in app.caption)
    assert "job" not in app.query_params and app.title

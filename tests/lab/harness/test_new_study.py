"""A new stored study is one script in the lab: it is found by its file, runs, is checked and measured again."""

import json
import shutil

import lab
from analysis.__main__ import main
from analysis.studies import NAMED, registry
from lab.harness.remeasure import remeasure
from tests.lab import cases
from tests.made import tiny_study


def test_a_script_in_the_lab_is_a_study(home, tmp_path, monkeypatch, capsys):
    shutil.copy(tiny_study.__file__, tmp_path / "tiny_means.py")
    monkeypatch.setattr(lab, "__path__", [*lab.__path__, str(tmp_path)])
    for name, study in registry.scripts(tmp_path, registry.STORED).items():
        monkeypatch.setitem(registry.STORED, name, study)
        monkeypatch.setitem(NAMED._places, name, study.full_place())
    assert registry.STORED["tiny-means"].help.startswith("A stored study as small as one can be")
    state = tmp_path / "state"
    command = ["study", "tiny-means", "--model", home / "tiny", "--corpus", home / "corpus", "--state", state]
    assert main([*map(str, command), "--plan", "--json"]) == 0 and not state.exists()
    assert main([*map(str, command), "--json"]) == 0
    stored = json.loads((state / "studies" / "means-32.json").read_text())
    assert len(stored["rows"]) == 3 and stored["protocol"]["version"] == 1
    capsys.readouterr()
    assert main([*map(str, command), "--quick", "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["verdict"] == "the same"
    context = cases.Context(state=state, browser=False)
    (row,) = remeasure(str(home / "tiny"), str(home / "corpus"), only="means-32", context=context).numbers["rows"]
    assert row["study"] == "tiny-means" and row["state"] == "measured"


def test_what_the_table_lists_is_no_script_of_its_own():
    assert not registry.scripts(registry.LAB, registry.STORED)

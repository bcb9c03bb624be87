"""The contract of stored studies, on a tiny one that is made up: what the runner does, no study tests again."""

import dataclasses
import inspect
import json
import typing

import pytest

from analysis.declaration import fields_of
from analysis.declaration.undeclared import check_arguments
from analysis.errors import BadSetting, Cancelled
from analysis.studies import NAMED
from tests.made.studied import asker, studied_home
from tests.made.tiny_study import TinyMeans


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return studied_home(tmp_path_factory.mktemp("runner"))


@pytest.fixture
def ask(home):
    return asker(TinyMeans.run, home, corpus=str(home / "corpus"))


def test_a_study_is_stored_with_its_protocol_and_its_sample_comes_again(ask, home):
    result = ask(windows=3, times=0.5)
    place = home / "state" / "studies" / "means-32.json"
    stored = json.loads(place.read_text(), parse_constant=pytest.fail)
    assert result.numbers.pop("path") == str(place)
    assert list(stored.pop("check")) == ["first"] and stored == result.numbers
    assert list(result.tables["rows"].columns) == ["window", "mean"]
    assert stored["sentence"] == "The mean of 3 windows was taken." and stored["columns"] and stored["panels"] == []
    protocol = stored["protocol"]
    assert protocol["verb"] == "study tiny-means" and protocol["version"] == 1 and protocol["kernel"] == "none"
    assert protocol["sizes"] == {"length": 32, "windows": 3, "times": 0.5, "rows": None}
    assert protocol["asked"] == {"windows": 3, "times": 0.5} and protocol["folder"] == "corpus"
    assert protocol["seconds"] >= 0
    options = f"--model {protocol['model']} --windows-count 3 --times 0.5 --seed 0"
    assert protocol["command"] == f"python -m analysis study tiny-means --corpus DIR {options}"
    assert {"date", "device", "versions", "revision", "text", "tokens"} <= set(protocol)


def test_a_stopped_study_goes_on_ends_the_same_and_counts_its_time(ask, tmp_path):
    straight = ask(work=str(tmp_path / "a"), output=str(tmp_path / "a.json")).numbers

    def stop(fraction, stage):
        if stage == "window 2":
            raise Cancelled("enough")

    places = {"work": str(tmp_path / "b"), "output": str(tmp_path / "b.json")}
    with pytest.raises(Cancelled):
        ask(stop, **places)
    (seconds,) = (tmp_path / "b").glob("tiny-means-*-seconds.json")
    assert len(list((tmp_path / "b").glob("mean-*.json"))) == 2 and not (tmp_path / "b.json").exists()
    seconds.write_text('{"seconds": 1000.0}')
    written_at = {path: path.stat().st_mtime_ns for path in (tmp_path / "b").glob("mean-*.json")}
    again = ask(**places).numbers
    assert again["rows"] == straight["rows"] and again["protocol"]["seconds"] >= 1000
    assert all(path.stat().st_mtime_ns == written for path, written in written_at.items()), "nothing is done again"
    assert not list(tmp_path.rglob("*.part"))


def test_a_study_that_collects_portions_says_the_time_of_all_of_them(ask, tmp_path):
    places = {"work": str(tmp_path / "work"), "output": str(tmp_path / "means.json")}
    ask(rows=[0, 1], **places)
    (seconds,) = (tmp_path / "work").glob("tiny-means-*-seconds.json")
    seconds.write_text('{"seconds": 1000.0}')
    assert ask(rows=[0, 1, 2], **places).numbers["protocol"]["seconds"] >= 1000
    assert ask(times=3.0, **places).numbers["protocol"]["seconds"] < 1000, "it shares no part with them"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"corpus": ""}, "needs a corpus"),
        ({"seed": -1}, "seed of tiny-means is -1"),
        ({"length": 8}, "length of tiny-means is 8"),
        ({"windows": 1}, "windows of tiny-means is 1"),
        ({"output": "."}, "is a folder and the result is one file"),
        ({"output": "/proc/none/s.json"}, "cannot be a folder"),
    ],
)
def test_what_cannot_be_studied_is_refused(arguments, message, ask):
    with pytest.raises(BadSetting, match=message):
        ask(**arguments)


@pytest.mark.parametrize("name", ["tiny-means", *NAMED])
def test_a_study_is_a_function_of_its_own_sizes(name):
    study = TinyMeans.run if name == "tiny-means" else NAMED[name]
    assert study.name == name and study.question and callable(study)
    options = dict(inspect.signature(study).parameters)
    assert options.pop("context").kind is inspect.Parameter.KEYWORD_ONLY
    assert {"model", "seed", "output", "work"} <= set(options) and "self" not in options
    hints = typing.get_type_hints(study)
    defaults = {size_field.name: size_field.default for size_field in dataclasses.fields(study.sizes)}
    assert set(hints) == set(options) and all(setting.declared.help for setting in fields_of(study.sizes))
    assert {key: options[key].default for key in defaults} == defaults
    json.dumps(defaults)
    arguments = {key: value for key, value in defaults.items() if value is not None}
    assert check_arguments(name, study, arguments) == arguments, "defaults are of the types that are asked for"

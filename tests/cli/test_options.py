"""Options come from signatures: what was not given is not passed on, and what was given comes back from its command."""

import inspect
import os
import shlex
import subprocess
import sys

import pytest

from analysis.__main__ import main
from analysis.cli import words
from analysis.cli.asked import asked
from analysis.cli.options import parser, takes_methods
from analysis.cli.signatures import explained, parameters
from analysis.commandline import FLAGS, commandline, word
from analysis.errors import BadSetting
from analysis.studies import NAMED, STUDIES, function
from analysis.studies.registry import STORED, VERBS, Verb

ASKED = [(verb, None) for verb in VERBS if verb != "study"] + [("study", name) for name in STORED]
TOLD = {  # parameters whose words are read further: what is said, and what the function gets
    "over": "seed=0,1",
    "config": "owner/name",
    "text": "story",
}
CSA = {"name": "csa", "settings": {}, "policy": {"budgets": [[1]]}}
METHODS = [{"name": "dense", "settings": {}}, {"name": "focus", "settings": {"window": 64, "rule": "causal"}}]


PARSER = parser("x")


def read(command: str) -> dict:
    """What the parser reads of a command."""
    return vars(PARSER.parse_args(shlex.split(command)[3:]))


def samples(verb: str, name: str, parameter: inspect.Parameter) -> list:
    """Values of a parameter's kind, odd ones among them."""
    kind, item = words.kind(parameter.annotation, parameter.default)
    if kind is list and item is not dict:
        many = {int: [[3], [-1, 20], []], float: [[0.1, 1e-5], [-2.5]], str: [["a", "b c"]]}[item]
        return many[:1] if word(verb, name) else [many[0], *many[1:]]
    if kind is list:
        return [METHODS, [METHODS[1], METHODS[1] | {"settings": {"window": 8}}], [CSA]]
    if kind is dict:
        return [METHODS[1]] if name == "method" else [{"budgets": [[1, 2]], "name": "it's"}]
    if name in FLAGS:
        return list(FLAGS[name])
    return {
        int: [0, 7, -1],
        float: [0.1, 1e-5, 1 / 3, 2.0],
        bool: [True, False],
        str: [TOLD[name]] if name in TOLD else ["k8-top1", "two words", "it's; $HOME"],
    }[kind]


def is_needed(verb: str, parameter: inspect.Parameter) -> bool:
    """Whether a command without it is refused by the parser."""
    usage = word(verb, parameter.name)
    return parameter.default is parameter.empty if usage is None else not usage.startswith("[")


@pytest.mark.parametrize(("verb", "study"), ASKED, ids=str)
def test_every_argument_comes_back_from_its_command(verb, study):
    known = parameters(verb, study)
    needed = {name: samples(verb, name, one)[0] for name, one in known.items() if is_needed(verb, one)}
    needed |= {"name": study} if study else {}
    everything = {name: samples(verb, name, one)[0] for name, one in known.items()}
    for name, one in known.items():
        for value in samples(verb, name, one) if name != "name" or not study else []:
            for given in (needed | {name: value}, everything | needed | {name: value}):
                told = read(commandline(verb, given))
                if (methods := takes_methods(known)) in given:
                    files = {"text", "texts", "tasks"}
                    told |= asked({key: value for key, value in told.items() if key not in files}).arguments
                assert {key: told[key] for key in given} == given, (methods, commandline(verb, given))


@pytest.mark.parametrize(("verb", "study"), ASKED, ids=str)
def test_what_is_not_given_is_not_passed(verb, study):
    known = parameters(verb, study)
    needed = {name: samples(verb, name, one)[0] for name, one in known.items() if is_needed(verb, one)}
    needed |= {"name": study} if study else {}
    assert set(read(commandline(verb, needed))) & {*known, "name"} == set(needed)


@pytest.mark.parametrize(("verb", "study"), ASKED, ids=str)
def test_the_source_and_the_function_say_the_same_and_every_word_is_explained(verb, study):
    place = STORED[study] if study else VERBS[verb]
    if place.study:
        assert function(place) is (NAMED[study] if study else STUDIES[verb])
    real = inspect.signature(function(place)).parameters
    for name, one in parameters(verb, study).items():
        assert one.default == real[name].default and type(one.default) is type(real[name].default), name
        kinds = [words.kind(x.annotation, x.default) for x in (one, real[name])]
        assert kinds[0] == kinds[1], name
        assert explained(verb, study, name) or name in ("content", "long_text", "name"), f"{name} has no help"
    assert set(real) - set(parameters(verb, study)) <= {"context", "progress", "options"}


def test_help_of_a_verb_loads_nothing_heavy():
    script = "import sys; from analysis.__main__ import main\ntry: main(sys.argv[1:])\nexcept SystemExit: pass\n"
    script += "print([name for name in ('torch', 'transformers', 'pandas') if name in sys.modules])"
    for line in (["--help"], ["groups", "--help"], ["study", "--help"], ["groups", "story", "--nothing"]):
        done = subprocess.run([sys.executable, "-c", script, *line], capture_output=True, text=True)
        assert done.stdout.splitlines()[-1] == "[]", (line, done.stdout[-200:], done.stderr[-200:])


@pytest.mark.parametrize(("own", "then"), [(None, "PASSIVE"), ("ACTIVE", "ACTIVE")])
def test_threads_that_wait_sleep_however_the_command_is_called(own, then, monkeypatch):
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    if own:
        monkeypatch.setenv("OMP_WAIT_POLICY", own)
    assert main(["inspect", "story", "--plan"]) == 0 and os.environ["OMP_WAIT_POLICY"] == then


def test_counting_tokens_loads_no_weights():
    script = "import sys; from analysis.__main__ import main; main(sys.argv[1:])\n"
    script += "print([name for name in ('torch', 'transformers', 'pandas', 'scipy', 'numba') if name in sys.modules])"
    line = [sys.executable, "-c", script, "inspect", "story"]
    done = subprocess.run(line, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "[]", (done.stdout[-200:], done.stderr[-200:])
    assert "tokens: " in done.stdout


def test_the_bundled_studies_run_at_the_sizes_they_document():
    told = read("python -m analysis study focal-temperatures --seed 1")
    made = asked(told)
    assert made.arguments == {"seed": 1}
    assert (made.resolved["length"], made.resolved["steps"], made.resolved["tokens_per_step"]) == (512, 500, 2048)
    assert asked(read("python -m analysis study calibration")).resolved["windows"] == 16


def test_a_setting_names_its_method():
    told = asked(read("python -m analysis evaluate story --set focus.window=64 --router k4-top1")).arguments
    focus = {"name": "focus", "settings": {"window": 64}, "router": "k4-top1"}
    assert told["methods"] == [{"name": "dense", "settings": {}}, focus]
    told = asked(read("python -m analysis time-method story --set quest.pages=8")).arguments
    assert told["method"] == {"name": "quest", "settings": {"pages": 8}}
    assert "methods" not in asked(read("python -m analysis evaluate story")).arguments


def test_a_test_tool_without_the_tests_is_refused_in_a_sentence():
    with pytest.raises(BadSetting, match=r"^tests\.not_there\.parts is not installed: run it in a checkout"):
        function(Verb("tests.not_there.parts:stress", "x"))

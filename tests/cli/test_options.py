"""Options come from declarations, and what was given to a command comes back from the line that is written of it."""

import inspect
import math
import os
import shlex
import subprocess
import sys

import pytest

from analysis.__main__ import main
from analysis.cli.asked import asked
from analysis.cli.options import fields, parser, takes_methods
from analysis.commands import COMMANDS, commandline
from analysis.declaration import Field
from analysis.declaration.command import imported
from analysis.errors import BadSetting
from analysis.kernels.native import library
from analysis.studies.registry import STORED

ASKED = [(verb, None) for verb in COMMANDS if verb != "study"] + [("study", name) for name in STORED]
READ = {  # fields whose words are read further: what is said, and what the function gets
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


def samples(field: Field) -> list:
    """Values of a field's kind, odd ones among them."""
    if field.kind is list and field.item is not dict:
        lists = {int: [[3], [-1, 20], []], float: [[0.1, 1e-5], [-2.5]], str: [["a", "b c"]]}[field.item]
        return lists[:1] if field.declared.word else lists
    if field.kind is list:
        return [METHODS, [METHODS[1], METHODS[1] | {"settings": {"window": 8}}], [CSA]]
    if field.kind is dict:
        return [METHODS[1]] if field.name == "method" else [{"budgets": [[1, 2]], "name": "it's"}]
    if field.declared.flags:
        return list(field.declared.flags)
    words = [READ[field.name]] if field.name in READ else ["k8-top1", "two words", "it's; $HOME"]
    return {int: [0, 7, -1], float: [0.1, 1e-5, 1 / 3, 2.0], bool: [True, False], str: words}[field.kind]


def is_needed(field: Field) -> bool:
    """Whether a command without it is refused by the parser."""
    return field.needed if not field.declared.word else not field.declared.word.startswith("[")


@pytest.mark.parametrize(("verb", "study"), ASKED, ids=str)
def test_every_argument_comes_back_from_its_command(verb, study):
    options = fields(verb, study)
    needed = {name: samples(field)[0] for name, field in options.items() if is_needed(field)}
    needed |= {"name": study} if study else {}
    assert set(read(commandline(verb, needed))) & {*options, "name"} == set(needed), "what is not given is not passed"
    everything = {name: samples(field)[0] for name, field in options.items()}
    for name, field in options.items():
        for value in samples(field) if name != "name" or not study else []:
            for arguments in (needed | {name: value}, everything | needed | {name: value}):
                parsed = read(commandline(verb, arguments))
                if (methods := takes_methods(options)) in arguments:
                    named = {"verb", "device", "state", "set", "router", "policy", methods, *needed} - {"text", "texts"}
                    parsed |= asked({key: value for key, value in parsed.items() if key in named}).arguments
                assert {key: parsed[key] for key in arguments} == arguments, (methods, commandline(verb, arguments))


@pytest.mark.parametrize(("verb", "study"), ASKED, ids=str)
def test_what_lies_outside_its_declared_range_or_choices_is_refused_by_name(verb, study):
    for name, field in fields(verb, study).items():
        low, high, options = field.declared.low, field.declared.high, field.declared.options
        outside = [low - 1] if low is not None else []
        outside += [high + 1] if high is not None else []
        outside += [math.nan] if outside and float in (field.kind, field.item) else []
        outside += ["none of these"] if options and str in (field.kind, field.item) else []
        of_kind = [[value] if field.kind is list else value for value in outside]
        for value in of_kind + ([[]] if field.kind is list and outside else []):
            with pytest.raises(BadSetting, match=rf"^{name} of {study or verb} (is|must be) "):
                field.check(value, study or verb)


@pytest.mark.parametrize("verb", COMMANDS)
def test_a_declaration_and_the_function_that_computes_it_have_the_same_defaults(verb):
    """As long as functions of the studies take keywords, they have defaults of their own; every option is explained."""
    assert all(field.declared.help or field.declared.flags for field in fields(verb).values())
    real = inspect.signature(COMMANDS[verb].function()).parameters
    if "request" in real or verb == "study":
        return
    for name, field in fields(verb).items():
        default = inspect.Parameter.empty if field.needed else field.default
        assert default == real[name].default and type(default) is type(real[name].default), name
    assert set(real) - set(fields(verb)) <= {"context", "progress"}


@pytest.mark.parametrize(("chosen", "then"), [(None, "PASSIVE"), ("ACTIVE", "ACTIVE")])
def test_threads_that_wait_sleep_however_the_command_is_called(chosen, then, monkeypatch):
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    if chosen:
        monkeypatch.setenv("OMP_WAIT_POLICY", chosen)
    assert main(["inspect", "story", "--plan"]) == 0 and os.environ["OMP_WAIT_POLICY"] == then


# What numbers of a model need no part of: torch's compiler and what it brings, models over processes, and numba, which
# counts only where nothing can be compiled.
UNUSED = ["torch._dynamo", "torch._inductor", "torch.distributed.tensor", "sympy", "sklearn", "scipy", "numba"]
HEAVY = ["torch", "transformers", "pandas", *UNUSED]


@pytest.mark.parametrize(
    ("line", "never"),
    [
        ("--help", HEAVY),
        ("study --help", HEAVY),
        ("groups story --nothing", HEAVY),
        ("inspect story", HEAVY),
        ("statistics story --plan", HEAVY),
        ("statistics story --first", UNUSED if library() else UNUSED[:-2]),
    ],
)
def test_a_command_loads_nothing_heavy_that_it_does_not_need(line, never):
    script = "import gc, sys; from analysis.__main__ import main\ntry: main(sys.argv[1:])\nexcept SystemExit: pass\n"
    script += f"assert gc.isenabled()\nprint([name for name in {never} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script, *line.split()], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "[]", (line, done.stdout[-200:], done.stderr[-200:])


def test_the_bundled_studies_run_at_the_sizes_they_document():
    study = asked(read("python -m analysis study focal-temperatures --seed 1"))
    assert study.arguments == {"name": "focal-temperatures", "seed": 1}
    assert (study.resolved["length"], study.resolved["steps"], study.resolved["tokens_per_step"]) == (512, 500, 2048)
    assert asked(read("python -m analysis study calibration")).resolved["windows"] == 16


def test_a_setting_names_its_method():
    arguments = asked(read("python -m analysis evaluate story --set focus.window=64 --router k4-top1")).arguments
    focus = {"name": "focus", "settings": {"window": 64}, "router": "k4-top1"}
    assert arguments["methods"] == [{"name": "dense", "settings": {}}, focus]
    arguments = asked(read("python -m analysis time-method story --set quest.pages=8")).arguments
    assert arguments["method"] == {"name": "quest", "settings": {"pages": 8}}
    assert "methods" not in asked(read("python -m analysis evaluate story")).arguments


def test_a_test_tool_without_the_tests_is_refused_in_a_sentence():
    with pytest.raises(BadSetting, match=r"^tests\.not_there\.parts is not installed: run it in a checkout"):
        imported("tests.not_there.parts", "stress")

"""A command is a request: its identity, its address and its command line follow from its declaration."""

import subprocess
import sys
from dataclasses import replace

import pytest

from analysis.commands import COMMANDS, request
from analysis.declaration import field, fields_of
from analysis.declaration.command import Command
from analysis.errors import BadSetting
from analysis.runs.keys import asked_now
from analysis.runs.run import Marks
from tests.made.stored_runs import PROTOCOL, result


def test_the_key_of_a_request_does_not_change_when_a_field_with_a_default_is_added():
    class Sum(Command):
        """A sum."""

        first: int = field(1, "a number")

    before = Sum(first=2).key, Sum().key

    class Sum(Command):
        """A sum."""

        first: int = field(1, "a number")
        second: int = field(5, "another number")

    assert (Sum(first=2).key, Sum().key) == before == (Sum(first=2, second=5).key, Sum(first=1).key)
    assert Sum(second=6).key not in before


def test_a_run_is_found_however_its_arguments_are_spelled_and_one_from_before_by_its_own_spelling(store):
    given = {"model": "demo", "text": "0123456789ab", "seed": 0}
    run = store.put("groups", given, result(), PROTOCOL, 1.0)
    assert store.find(request("groups", {"text": "0123456789ab"})).id == run.id
    older = replace(asked_now("pairs", given), defaults=None)
    store._own.place(older, result(), PROTOCOL, 1.0, Marks())
    assert older.key != asked_now("pairs", given).key
    assert store.find("pairs", given).id == older.key


@pytest.mark.parametrize("verb", ["calibrate", "train-router", "generate"])
def test_an_address_and_a_command_line_repeat_a_request(verb):
    aliased = [one for one in fields_of(COMMANDS[verb]) if one.declared.alias and one.kind is int]
    made = COMMANDS[verb](**{aliased[0].name: 8})
    page, _, query = made.url().partition("?")
    shown = dict(word.split("=") for word in query.split("&"))
    assert page and COMMANDS[verb].from_url(shown) == made
    assert f"{aliased[0].option} 8" in made.command_line()


def test_a_value_out_of_range_an_unknown_and_a_missing_one_are_refused():
    for verb, arguments, sentence in (
        ("train-router", {"groups": 65}, "groups of train-router is 65 and must lie between 1 and 64."),
        ("train-router", {"gate": "open"}, "must be one of log, literal, centred."),
        ("groups", {"depth": 1}, "groups has no argument 'depth'"),
        ("take", {}, "take needs the argument 'run'"),
        ("divine", {}, "There is no command 'divine'"),
    ):
        with pytest.raises(BadSetting) as refused:
            request(verb, arguments)
        assert sentence in str(refused.value)


def test_no_field_hides_what_every_command_has():
    assert not [
        (verb, one.name)
        for verb, command in COMMANDS.items()
        for one in fields_of(command)
        if hasattr(Command, one.name)
    ]


def test_declarations_load_nothing_heavy():
    script = "import sys, analysis.commands; print({'torch', 'pandas'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"

"""A command is a request: its identity, its address and its command line follow from its declaration."""

import pytest

from analysis.commands import COMMANDS, request
from analysis.declaration import field, fields_of
from analysis.declaration.command import Command
from analysis.errors import BadSetting


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
        (verb, field.name)
        for verb, command in COMMANDS.items()
        for field in fields_of(command)
        if hasattr(Command, field.name)
    ]

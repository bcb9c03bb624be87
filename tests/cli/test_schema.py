"""The schemas of what verbs answer: kept answers keep them, further answers of the verb do, wrong ones do not.

`test_cli.py` holds what the command line prints about another model to them too.
"""

import json

import pytest
from jsonschema import Draft202012Validator, ValidationError

from analysis.__main__ import main
from analysis.answer import returned
from analysis.cli.answers import KEPT, UNKNOWN, answers, read_off, schema_of
from analysis.commands import COMMANDS
from analysis.files import read_json
from analysis.studies.registry import STORED
from tests.made.answers import ASKED, home, printed

# They need a network, folders of their own, hours or other runs, or change what they are asked about.
NEVER_ASKED = set("fetch finetune study spread stress mcp".split())
NEVER_ASKED |= set("take bundle-out bundle-in".split())


@pytest.mark.parametrize("verb", sorted(answers()))
def test_kept_answers_keep_their_schema_and_wrong_ones_do_not(verb):
    schema = schema_of(*verb.split(" "))
    Draft202012Validator.check_schema(schema)
    for told in answers()[verb]:
        Draft202012Validator(schema).validate(told)
    held = next(name for name in schema["required"] if isinstance(told[name], (list, dict)) and name != "protocol")
    for wrong in ({name: told[name] for name in told if name != held}, told | {held: "many"}, told | {"protocol": 3}):
        with pytest.raises(ValidationError):
            Draft202012Validator(schema).validate(wrong)


@pytest.mark.parametrize("verb", sorted(verb for verb, told in answers().items() if len(told) > 1))
def test_an_answer_keeps_what_is_read_off_the_others(verb):
    for place, told in enumerate(answers()[verb]):
        others = answers()[verb][:place] + answers()[verb][place + 1 :]
        assert not list(Draft202012Validator(read_off(others)).iter_errors(told))


def test_every_verb_has_a_schema(capsys):
    for verb in COMMANDS:
        made = schema_of(verb)
        Draft202012Validator.check_schema(made)
        assert made["title"] and "protocol" in made["required"]
        assert (made.get("$comment") == UNKNOWN) == (verb in NEVER_ASKED), verb
    assert all("sentence" in schema_of("study", name)["properties"] for name in STORED if f"study {name}" in answers())
    assert main(["schema", "pairs"]) == 0
    assert json.loads(capsys.readouterr().out) == schema_of("pairs")
    assert main(["schema", "divine"]) == 2
    assert "'divine' is no verb" in capsys.readouterr().err


def test_what_is_read_off():
    number, row = {"type": ["number", "null"]}, {"type": "object", "properties": {"a": {"type": ["number", "null"]}}}
    assert read_off([{"rows": [{"a": 1}]}]) == {
        "type": "object",
        "properties": {"rows": {"type": "array", "items": row}},
        "required": ["rows"],
    }
    several = read_off([{"rows": [{"a": 1}], "one": 1, "map": {"3.1": 2}}, {"rows": None, "one": "x", "map": {}}])
    assert several["properties"] == {
        "rows": {"type": ["array", "null"], "items": row | {"required": ["a"]}},
        "one": {"type": ["number", "string", "null"]},
        "map": {"type": "object", "additionalProperties": number},
    }


@pytest.mark.slow
def test_verbs_without_a_kept_answer_are_asked_again(tmp_path):
    assert set(read_json(KEPT)) == {verb for verb in ASKED if not returned(COMMANDS[verb].function())}
    where = home(tmp_path)
    for verb in ASKED:
        found = list(Draft202012Validator(schema_of(verb)).iter_errors(printed(verb, where)))
        assert not found, f"{verb}: {found[0].message}; make them anew: python -m tests.made.answers"

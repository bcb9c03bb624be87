"""The schemas of what verbs answer: the answers kept with the bundled model keep them, wrong ones do not.

`test_cli.py` holds what the command line prints about another model to them too.
"""

import json

import pytest
from jsonschema import Draft202012Validator, ValidationError

from analysis.__main__ import main
from analysis.cli.shown import answer, schema_of
from analysis.commands import COMMANDS
from analysis.places import CACHE
from analysis.runs import Result
from analysis.runs.folder import read_run
from analysis.studies.registry import STORED

EXAMPLES = sorted((CACHE / "demo" / "examples").glob("*/manifest.json"))


@pytest.mark.slow
@pytest.mark.parametrize("manifest", EXAMPLES, ids=lambda path: path.parent.name)
def test_a_stored_run_gives_the_record_that_its_command_returned(manifest):
    run = read_run(manifest.parent, example=True)
    read = run.answer
    stored = {name: value for name, value in run.numbers.items() if name in read.numbers}
    assert stored == {name: value for name, value in read.numbers.items() if name in run.numbers} and stored
    assert set(read.tables) >= set(run.tables) and set(read.arrays) >= set(run.arrays)


def examples() -> dict[str, list[dict]]:
    """Verb -> the answers kept with the bundled model, as `--json` prints them."""
    by_verb = {}
    for manifest in EXAMPLES:
        run = read_run(manifest.parent, example=True)
        result = Result(run.numbers, {name: run.table(name) for name in run.tables})
        by_verb.setdefault(run.verb, []).append(answer(run.verb, result))
    return by_verb


@pytest.mark.slow
def test_kept_answers_keep_their_schema_and_wrong_ones_do_not():
    for verb, answers in examples().items():
        schema = schema_of(verb)
        for stored in answers:
            Draft202012Validator(schema).validate(stored)
        first = next(key for key in schema["required"] if isinstance(stored[key], (list, dict)) and key != "protocol")
        without = {key: value for key, value in stored.items() if key != first}
        for wrong in (without, stored | {first: "many"}, stored | {"protocol": 3}):
            with pytest.raises(ValidationError):
                Draft202012Validator(schema).validate(wrong)


def test_every_verb_and_study_has_a_schema(capsys):
    for words in [(verb,) for verb in COMMANDS] + [("study", name) for name in STORED]:
        schema = schema_of(*words)
        Draft202012Validator.check_schema(schema)
        assert schema["title"] and schema["required"][-1:] and "protocol" in schema["required"]
    assert main(["schema", "pairs"]) == 0
    assert json.loads(capsys.readouterr().out) == schema_of("pairs")
    assert main(["schema", "divine"]) == 2
    assert "'divine' is no verb" in capsys.readouterr().err

"""The reference of the command line equals a fresh generation."""

import json

from analysis.cli import words
from analysis.cli.reference import PLACE, SCHEMA, commands, document
from analysis.cli.signatures import parameters
from analysis.commandline import FLAGS
from analysis.take.schema import schema
from tests.cli.test_options import ASKED


def test_the_reference_is_up_to_date(tmp_path):
    assert PLACE.read_text(encoding="utf-8") == document(), "make it anew: python -m analysis commands"
    assert commands(str(tmp_path / "c.md")).numbers["path"] == str(tmp_path / "c.md")
    assert (tmp_path / "c.md").read_text(encoding="utf-8") == document()


def test_the_schema_of_a_policy_is_up_to_date():
    assert json.loads(SCHEMA.read_text(encoding="utf-8")) == schema(), "make it anew: python -m analysis commands"


def test_no_help_is_about_nothing():
    used = {name for verb, study in ASKED for name in parameters(verb, study)}
    used |= {(verb, name) for verb, study in ASKED for name in parameters(verb, study)} | {"router", "policy"}
    used |= {flag for flags in FLAGS.values() for flag in flags.values()}
    assert not set(words.HELP) - used, "these explain no parameter"

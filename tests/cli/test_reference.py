"""The reference of the command line equals a fresh generation."""

import json

from analysis.cli.reference import PLACE, SCHEMA, commands, document
from analysis.commands.runs import Commands
from analysis.take.schema import schema


def test_the_reference_is_up_to_date(tmp_path):
    assert PLACE.read_text(encoding="utf-8") == document(), "make it anew: python -m analysis commands"
    assert commands(Commands(output=str(tmp_path / "c.md"))).numbers["path"] == str(tmp_path / "c.md")
    assert (tmp_path / "c.md").read_text(encoding="utf-8") == document()


def test_the_schema_of_a_policy_is_up_to_date():
    assert json.loads(SCHEMA.read_text(encoding="utf-8")) == schema(), "make it anew: python -m analysis commands"

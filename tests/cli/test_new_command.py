"""A new command is one file: a class in a module of `analysis.commands`. Options, help, schema and key follow from it,
and it computes."""

import json
import sys
import textwrap

import pytest

from analysis import commands
from analysis.__main__ import main
from analysis.studies import STUDIES

MODULE = '''
    """Arithmetic."""

    from analysis.answer import Answer, doc, record
    from analysis.declaration import field
    from analysis.declaration.command import Command


    @record
    class Total(Answer):
        """The sum of two numbers."""

        total: int = doc("their sum")


    def total(request, *, context) -> Total:
        """Add the two numbers."""
        return Total(total=request.first + request.second, protocol={"verb": "add-up"})


    class AddUp(Command):
        """Add two numbers."""

        place = "analysis.commands.arithmetic:total"
        page = "/runs"

        first: int = field(1, "the first number", low=0, high=9, control="first")
        second: int = field(2, "the second number")
'''


@pytest.fixture
def added(tmp_path, monkeypatch):
    """The commands with a module more, which is gone afterwards."""
    (tmp_path / "arithmetic.py").write_text(textwrap.dedent(MODULE))
    monkeypatch.setattr(commands, "__path__", [*commands.__path__, str(tmp_path)])
    monkeypatch.delitem(sys.modules, "analysis.commands.arithmetic", raising=False)
    command = commands._declared()["add-up"]
    monkeypatch.setitem(commands.COMMANDS, "add-up", command)
    monkeypatch.setitem(STUDIES._places, "add-up", command.full_place())
    return command


def test_a_class_in_a_file_is_a_command(added, capsys, tmp_path):
    with pytest.raises(SystemExit):
        main(["add-up", "--help"])
    assert "--first N" in (output := capsys.readouterr().out) and "(default: 2)" in output
    assert main(["add-up", "--first", "5", "--json", "--state", str(tmp_path)]) == 0
    answer = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert answer["total"] == 7
    assert main(["add-up", "--first", "10"]) == 2
    assert "must lie between 0 and 9" in capsys.readouterr().err
    assert main(["schema", "add-up"]) == 0
    assert "total" in json.loads(capsys.readouterr().out)["properties"]
    request = added(first=5)
    assert request.key != added().key == added(first=1, second=2).key
    assert request.command_line().endswith("add-up --first 5")

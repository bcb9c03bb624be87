"""One flat Python file made of definitions of this package: what some roots need, and nothing of it twice.

Definitions are followed by the names that they use. Of a class only those members come along whose names some kept code
mentions, so a method comes without its kernels, its fitting and its budgets. Annotations are kept as text and are not
followed.
"""

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from importlib import util
from pathlib import Path

PACKAGE = __name__.partition(".take")[0]
# Module and name of a definition.
Place = tuple[str, str]


@dataclass(frozen=True)
class Source:
    """One module of this package, as it is written."""

    lines: list[str]
    tree: ast.Module
    # Name -> the statement at the top that defines it.
    defined: dict[str, ast.stmt]
    # Name -> the module it comes from, and its name there; "": the module.
    imported: dict[str, tuple[str, str]]


@cache
def source(module: str) -> Source:
    """The source of a module of this package, which is not run."""
    spec = util.find_spec(module)
    assert spec is not None and spec.origin is not None, f"{module} lies in a file"
    text = Path(spec.origin).read_text(encoding="utf-8")
    read = Source(text.splitlines(), ast.parse(text), {}, {})
    for node in read.tree.body:
        if isinstance(node, ast.Import):
            read.imported.update({name.asname or name.name: (name.name, "") for name in node.names})
        elif isinstance(node, ast.ImportFrom):
            origin = util.resolve_name("." * node.level + (node.module or ""), spec.parent)
            read.imported.update({name.asname or name.name: (origin, name.name) for name in node.names})
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            read.defined[node.name] = node
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)]
            read.defined.update(dict.fromkeys(names, node))
    return read


@dataclass
class Flat:
    """A file that grows: `need` takes a definition with all that it uses."""

    # The module whose classes come with all members: other libraries call them.
    complete: str
    # Members that never come along, such as "Hooks.cache".
    cut: frozenset[str] = frozenset()
    # A statement in the place of a definition.
    instead: dict[Place, str] = field(default_factory=dict)
    # Definitions of another flat file, by its name.
    beside: dict[Place, str] = field(default_factory=dict)
    # Each after what it is made of.
    order: list[Place] = field(default_factory=list)
    imports: set[str] = field(default_factory=set)
    mentioned: set[str] = field(default_factory=set)  # attributes that kept code reads
    # Of a class, those that come along.
    members: dict[Place, list[ast.stmt]] = field(default_factory=dict)
    begun: set[Place] = field(default_factory=set)

    def need(self, module: str, name: str) -> None:
        """Take the definition of a name, as `module` sees it; names that are built in or local are passed over."""
        if name in source(module).imported:
            origin, original = source(module).imported[name]
            if not _ours(origin):
                renamed = f" as {name}" if name not in (original, origin) else ""
                self.imports.add((f"from {origin} import {original}" if original else f"import {origin}") + renamed)
                return
            assert original == name, f"{module} imports {origin} as {name}: import its names"
            self.need(origin, name)
            return
        if (module, name) in self.beside:
            self.imports.add(f"from {self.beside[module, name]} import {name}")
            return
        if name not in source(module).defined or (module, name) in self.begun:
            return
        self.begun.add((module, name))
        if (module, name) in self.instead:
            self.scan(module, ast.parse(self.instead[module, name]))
        elif isinstance(node := source(module).defined[name], ast.ClassDef):
            for part in (*node.bases, *node.decorator_list):
                self.scan(module, part)
            self.members[module, name] = []
        else:
            self.scan(module, node)
        self.order.append((module, name))

    def settle(self) -> None:
        """Take the members of classes that kept code mentions, until no more come along."""
        before = -1
        while before != (before := sum(map(len, self.members.values()))):
            for place in list(self.members):
                definition = source(place[0]).defined[place[1]]
                assert isinstance(definition, ast.ClassDef)
                for node in definition.body:
                    if node not in self.members[place] and self._comes(place, node):
                        self.members[place].append(node)
                        self.scan(place[0], node)

    def _comes(self, place: Place, node: ast.stmt) -> bool:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            # a field of a dataclass is a part of its constructor, a class variable is not
            name, always = node.target.id, "ClassVar" not in ast.unparse(node.annotation)
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name, always = node.targets[0].id, False
        elif isinstance(node, ast.FunctionDef):
            name, always = node.name, node.name.startswith("__")
        else:
            return True  # the docstring
        called = always or name in self.mentioned or place[0] == self.complete
        return called and f"{place[1]}.{name}" not in self.cut

    def scan(self, module: str, node: ast.AST) -> None:
        """Take what a piece of code uses; of its annotations only what other libraries define."""
        annotations = [getattr(child, part, None) for child in ast.walk(node) for part in ("annotation", "returns")]
        inside = {id(child) for annotation in filter(None, annotations) for child in ast.walk(annotation)}
        for child in ast.walk(node):
            if isinstance(child, ast.Attribute) and id(child) not in inside:
                self.mentioned.add(child.attr)
            elif isinstance(child, ast.Name) and isinstance(child.ctx, ast.Load):
                origin = source(module).imported.get(child.id, (PACKAGE, ""))[0]
                if id(child) not in inside or not _ours(origin):
                    self.need(module, child.id)

    def text(self, docstring: str, last: Iterable[str]) -> str:
        """The file: `docstring`, imports, constants, functions, classes, what is made of them, and `last`."""
        names = [name for _, name in self.order]
        names += [line.split()[-1] for line in self.imports]
        assert len(names) == len(set(names)), f"two definitions of one name: {sorted(names)}"
        kinds = {name: type(source(module).defined[name]) for module, name in self.order}
        written: dict[str, list[str]] = {"constants": [], "functions": [], "classes": [], "made of them": []}
        for place in self.order:
            statement, kind = self._written(place), kinds[place[1]]
            uses = {child.id for child in ast.walk(ast.parse(statement)) if isinstance(child, ast.Name)}
            if kind in (ast.FunctionDef, ast.ClassDef):
                part = "functions" if kind is ast.FunctionDef else "classes"
            else:
                of_others = any(kinds.get(name) in (ast.FunctionDef, ast.ClassDef) for name in uses)
                part = "made of them" if of_others else "constants"
            # one statement may define two names
            if statement not in written[part]:
                written[part].append(statement)
        head = "\n".join([f'"""{docstring}"""', "", "from __future__ import annotations", "", *sorted(self.imports)])
        end = "\n".join([*written["made of them"], "", *last])
        parts = [head, "\n".join(written["constants"]), *written["functions"], *written["classes"], end]
        return "\n\n\n".join(filter(None, parts)) + "\n"

    def _written(self, place: Place) -> str:
        """A definition as its author wrote it, comments included, without the members that stay behind."""
        module, name = place
        if place in self.instead:
            return self.instead[place]
        lines, node = source(module).lines, source(module).defined[name]
        if not isinstance(node, ast.ClassDef):
            return "\n".join(lines[_first_line(node) - 1 : node.end_lineno])
        before = _first_line(node.body[0]) - 1
        written = lines[_first_line(node) - 1 : before]
        for member in node.body:
            if member in self.members[place]:
                gap = [""] if written[-1].endswith('"""') and lines[before].strip() else []
                written += gap + lines[before : member.end_lineno]
            before = member.end_lineno or member.lineno
        return "\n".join(written)


def _ours(module: str) -> bool:
    return module.split(".")[0] == PACKAGE.split(".")[0]


def _first_line(node: ast.stmt) -> int:
    """Of a definition with its decorators."""
    return min([node.lineno, *(part.lineno for part in getattr(node, "decorator_list", []))])

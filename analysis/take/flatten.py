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
Place = tuple[str, str]  # module and name of a definition


@dataclass(frozen=True)
class Source:
    """One module of this package, as it is written."""

    lines: list[str]
    tree: ast.Module
    defined: dict[str, ast.stmt]  # name -> the statement at the top that defines it
    imported: dict[
        str, tuple[str, str | None]
    ]  # name -> the module it comes from, and its name there; None: the module


@cache
def source(module: str) -> Source:
    """The source of a module of this package, which is not run."""
    spec = util.find_spec(module)
    text = Path(spec.origin).read_text(encoding="utf-8")
    tree = ast.parse(text)
    defined: dict[str, ast.stmt] = {}
    imported: dict[str, tuple[str, str | None]] = {}
    for node in tree.body:
        if isinstance(node, ast.Import):
            imported |= {name.asname or name.name: (name.name, None) for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            origin = util.resolve_name("." * node.level + (node.module or ""), spec.parent)
            imported |= {name.asname or name.name: (origin, name.name) for name in node.names}
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            defined[node.name] = node
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                defined |= {name.id: node for name in ast.walk(target) if isinstance(name, ast.Name)}
        elif isinstance(node, ast.AnnAssign):
            defined[node.target.id] = node
    return Source(text.splitlines(), tree, defined, imported)


@dataclass
class Flat:
    """A file that grows: `need` takes a definition with all that it uses."""

    whole: str  # the module whose classes come with all members: other libraries call them
    cut: frozenset[str] = frozenset()  # members that never come along, such as "Hooks.cache"
    instead: dict[Place, str] = field(default_factory=dict)  # a statement in the place of a definition
    order: list[Place] = field(default_factory=list)  # each after what it is made of
    imports: set[tuple[str, str | None, str]] = field(default_factory=set)  # (module, name there or None, name here)
    mentioned: set[str] = field(default_factory=set)  # attributes that kept code reads
    members: dict[Place, list[ast.stmt]] = field(default_factory=dict)  # of a class, those that come along
    begun: set[Place] = field(default_factory=set)

    def need(self, module: str, name: str) -> None:
        """Take the definition of a name, as `module` sees it; names that are built in or local are passed over."""
        module_source = source(module)
        if name in module_source.imported:
            origin, original = module_source.imported[name]
            if origin.split(".")[0] != PACKAGE.split(".")[0]:
                self.imports.add((origin, original, name))
            else:
                assert original is not None and original == name, (
                    f"{module} imports {origin} as {name}: import its names"
                )
                self.need(origin, name)
            return
        if name not in module_source.defined or (module, name) in self.begun:
            return
        self.begun.add((module, name))
        if (module, name) in self.instead:
            self.scan(module, ast.parse(self.instead[module, name]))
        elif isinstance(node := module_source.defined[name], ast.ClassDef):
            for part in (*node.bases, *node.decorator_list):
                self.scan(module, part)
            self.members[module, name] = []
        else:
            self.scan(module, node)
        self.order.append((module, name))

    def settle(self) -> None:
        """Take the members of classes that kept code mentions, until no more come along."""
        settled = False
        while not settled:
            settled = True
            for place, members in list(self.members.items()):
                for node in source(place[0]).defined[place[1]].body:
                    if node not in members and self._comes(place, node):
                        members.append(node)
                        self.scan(place[0], node)
                        settled = False

    def _comes(self, place: Place, node: ast.stmt) -> bool:
        if isinstance(node, ast.AnnAssign):
            name, always = node.target.id, "ClassVar" not in ast.unparse(node.annotation)  # a field of a dataclass
        elif isinstance(node, ast.Assign):
            name, always = node.targets[0].id, False
        elif isinstance(node, ast.FunctionDef):
            name, always = node.name, node.name.startswith("__")
        else:
            return True  # the docstring
        if f"{place[1]}.{name}" in self.cut:
            return False
        return always or name in self.mentioned or place[0] == self.whole

    def scan(self, module: str, node: ast.AST) -> None:
        """Take what a piece of code uses; of its annotations only what other libraries define."""
        annotations = [getattr(child, part, None) for child in ast.walk(node) for part in ("annotation", "returns")]
        inside = {id(child) for annotation in filter(None, annotations) for child in ast.walk(annotation)}
        for child in ast.walk(node):
            if isinstance(child, ast.Attribute) and id(child) not in inside:
                self.mentioned.add(child.attr)
            elif isinstance(child, ast.Name) and isinstance(child.ctx, ast.Load):
                origin, _ = source(module).imported.get(child.id, ("", None))
                if id(child) not in inside or origin and origin.split(".")[0] != PACKAGE.split(".")[0]:
                    self.need(module, child.id)

    def text(self, docstring: str, last: Iterable[str]) -> str:
        """The whole file: `docstring`, imports, constants, functions, classes, what is made of them, and `last`."""
        names = [name for _, name in self.order]
        assert len(names) == len(set(names)), f"two definitions of one name: {sorted(names)}"
        kinds: dict[str, list[str]] = {"constants": [], "functions": [], "classes": [], "made of them": []}
        blocks = {place[1] for place in self.order if self._kind(place) != "constants"}
        for place in self.order:
            written, kind = self._written(place), self._kind(place)
            if kind == "constants" and blocks & {
                child.id for child in ast.walk(ast.parse(written)) if isinstance(child, ast.Name)
            }:
                kind = "made of them"
            if written not in kinds[kind]:  # one statement may define two names
                kinds[kind].append(written)
        imports = "\n".join(["from __future__ import annotations", "", *self._imports()])
        parts = [
            f'"""{docstring}"""\n\n{imports}',
            "\n".join(kinds["constants"]),
            *kinds["functions"],
            *kinds["classes"],
        ]
        return "\n\n\n".join(filter(None, [*parts, "\n".join([*kinds["made of them"], "", *last])])) + "\n"

    def _kind(self, place: Place) -> str:
        node = source(place[0]).defined[place[1]]
        if isinstance(node, ast.ClassDef):
            return "classes"
        return "functions" if isinstance(node, ast.FunctionDef) else "constants"

    def _imports(self) -> list[str]:
        plain = sorted(
            f"import {module}" + f" as {local_name}" * (local_name != module)
            for module, name, local_name in self.imports
            if not name
        )
        grouped: dict[str, list[str]] = {}
        for module, name, local_name in sorted(entry for entry in self.imports if entry[1]):
            grouped.setdefault(module, []).append(name if name == local_name else f"{name} as {local_name}")
        return plain + [f"from {module} import {', '.join(names)}" for module, names in grouped.items()]

    def _written(self, place: Place) -> str:
        """A definition as its author wrote it, comments included, without the members that stay behind."""
        module, name = place
        if place in self.instead:
            return self.instead[place]
        lines, node = source(module).lines, source(module).defined[name]
        first = min([node.lineno, *(member.lineno for member in getattr(node, "decorator_list", []))])
        if not isinstance(node, ast.ClassDef):
            return "\n".join(lines[first - 1 : node.end_lineno])
        begins = [
            min([member.lineno, *(d.lineno for d in getattr(member, "decorator_list", []))]) for member in node.body
        ]
        written, before = lines[first - 1 : begins[0] - 1], begins[0] - 1
        for member in node.body:
            if member in self.members[place]:
                gap = [""] if written[-1].endswith('"""') and lines[before].strip() else []
                written += gap + lines[before : member.end_lineno]
            before = member.end_lineno
        return "\n".join(written)


def flattened(
    root: str, names: Iterable[str], method: Place, cut: Iterable[str], instead: dict[Place, str], last: Iterable[str]
) -> str:
    """A file with the definitions `names` of the module `root`, a `method`, all that they need, the calls at the end of
    `root`, and the statements `last`. `cut`: members that stay behind; `instead`: statements for some definitions."""
    flat = Flat(root, frozenset(cut), instead)
    flat.imports.add(("functools", "partial", "partial"))
    places = [(root, name) for name in names] + [method]
    calls = [node for node in source(root).tree.body if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)]
    for place in places:
        flat.need(*place)
    for node in calls:
        flat.scan(root, node)
    flat.settle()
    docstring = ast.get_docstring(source(root).tree, clean=False)
    return flat.text(docstring, [*map(ast.unparse, calls), *last])

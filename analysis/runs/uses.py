"""Which runs used a router, a policy or a method, by their requests; what was moved when one was replaced."""

from dataclasses import dataclass

KINDS = {"router": ("router", "other"), "policy": ("policy", "other"), "method": ("method", "methods")}

USUAL = {"router": "k8-top1", "policy": "policy"}  # what a study uses when nobody names one


@dataclass(frozen=True)
class Forgotten:
    """What a replaced router, policy or method made stale: ids of runs moved to the trash, and how many stay."""

    what: str
    moved: list[str]
    pinned: int = 0

    @property
    def sentences(self) -> list[str]:
        """What to say of it; nothing when no run was concerned."""
        said = []
        if self.moved:
            said.append(
                f"{_count(len(self.moved))} that used {self.what} moved to the trash: the page Runs can bring "
                f"{'it' if len(self.moved) == 1 else 'them'} back for 7 days."
            )
        if self.pinned:
            said.append(f"{_count(self.pinned, 'pinned ')} with an earlier {self.what} stays, and is still shown.")
        return said


def named(kind: str, request: dict[str, object]) -> set[str]:
    """Names of routers, policies or methods (`kind` of KINDS) that a request gives, at any depth."""
    return _found(KINDS[kind], request, False)


def _found(keys: tuple[str, ...], value: object, inside: bool) -> set[str]:
    if isinstance(value, str):
        return {value} if inside else set()
    if isinstance(value, list):
        return set().union(*(_found(keys, one, inside) for one in value))
    if not isinstance(value, dict):
        return set()
    own = {value["name"]} if inside and isinstance(value.get("name"), str) else set()
    return own.union(*(_found(keys, inner, key in keys) for key, inner in value.items()))


def _count(number: int, kind: str = "") -> str:
    return f"{number} {kind}run{'' if number == 1 else 's'}"

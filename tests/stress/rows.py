"""One line of the table: what was tried how often, how often it held, and what is worth saying of it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """`holds`: whether the line as a whole is as it should be; without it, that is when every try held."""

    case: str
    tried: int
    held: int
    said: str = ""
    holds: bool | None = None

    def plain(self, hidden: str = "") -> dict:
        """As a row of the result; the folder `hidden` is not told."""
        holds = self.held == self.tried if self.holds is None else self.holds
        said = " ".join((self.said.replace(hidden, "STATE") if hidden else self.said).split())
        return {"case": self.case, "tried": self.tried, "held": self.held, "holds": holds, "said": said}


def markdown(rows: list[dict]) -> str:
    """The table as the README shows it."""
    lines = ["| case | tried | held | |", "|---|---|---|---|"]
    lines += [f"| {row['case']} | {row['tried']:,} | {row['held']:,} | {row['said']} |" for row in rows]
    return "\n".join(lines) + "\n"

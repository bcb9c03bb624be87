"""A village lending library, simulated for one season.

Readers borrow volumes, keep them too long, pay fines and queue for whatever is out. The simulation is deterministic:
the same seed always tells the same story.
"""

import random
from collections import Counter, deque
from dataclasses import dataclass, field

LOAN_DAYS = 14
FINE_PER_DAY = 2
SHELF_LIMIT = 3
SEASON_LENGTH = 120


class LibraryError(Exception):
    """Raised when a loan or a return breaks the rules of the library."""


@dataclass
class Volume:
    """One copy of one book, with the queue of readers who wait for it."""

    title: str
    popularity: int
    waiting: deque = field(default_factory=deque)
    borrower: str | None = None
    due_day: int | None = None

    def is_available(self) -> bool:
        """Whether the volume stands on the shelf."""
        return self.borrower is None

    def days_late(self, today: int) -> int:
        """Days past the due day, never negative."""
        if self.due_day is None:
            return 0
        return max(0, today - self.due_day)


@dataclass
class Reader:
    """A member of the library; `diligence` is the chance of returning a due volume on a given day."""

    name: str
    diligence: float
    holding: list = field(default_factory=list)
    fines: int = 0

    def can_borrow(self) -> bool:
        """Readers with a full shelf at home may not take another volume."""
        return len(self.holding) < SHELF_LIMIT


@dataclass(frozen=True)
class LedgerEntry:
    """One line of the ledger: what happened, when, and to whom."""

    day: int
    action: str
    reader: str
    title: str
    amount: int = 0


class Ledger:
    """Everything that happened, in order; entries are added and never changed."""

    def __init__(self) -> None:
        self.entries: list[LedgerEntry] = []

    def record(self, day: int, action: str, reader: Reader, volume: Volume, amount: int = 0) -> None:
        """Append one entry."""
        self.entries.append(LedgerEntry(day, action, reader.name, volume.title, amount))

    def count(self, action: str) -> int:
        """How many entries have this action."""
        return sum(entry.action == action for entry in self.entries)

    def most_borrowed(self, top: int) -> list[tuple[str, int]]:
        """Titles with their number of loans, most borrowed first."""
        loans = Counter(entry.title for entry in self.entries if entry.action == "loan")
        return loans.most_common(top)


class LendingLibrary:
    """The shelves, the members and the rules that connect them."""

    def __init__(self, volumes: list[Volume], readers: list[Reader]) -> None:
        self.volumes = {volume.title: volume for volume in volumes}
        self.readers = {reader.name: reader for reader in readers}
        self.ledger = Ledger()

    def lend(self, reader: Reader, volume: Volume, today: int) -> None:
        """Hand the volume over and write its due day into it."""
        if not volume.is_available():
            raise LibraryError(f"{volume.title} is already lent to {volume.borrower}")
        if not reader.can_borrow():
            raise LibraryError(f"{reader.name} already holds {SHELF_LIMIT} volumes")
        volume.borrower = reader.name
        volume.due_day = today + LOAN_DAYS
        reader.holding.append(volume.title)
        self.ledger.record(today, "loan", reader, volume)

    def take_back(self, reader: Reader, volume: Volume, today: int) -> int:
        """Put the volume back on the shelf, and return the fine that was charged."""
        if volume.title not in reader.holding:
            raise LibraryError(f"{reader.name} does not hold {volume.title}")
        fine = FINE_PER_DAY * volume.days_late(today)
        reader.fines += fine
        reader.holding.remove(volume.title)
        volume.borrower = None
        volume.due_day = None
        self.ledger.record(today, "return", reader, volume, fine)
        return fine

    def request(self, reader: Reader, volume: Volume, today: int) -> None:
        """Lend the volume at once if that is possible, otherwise put the reader into its queue."""
        if volume.title in reader.holding or reader.name in volume.waiting:
            return
        if volume.is_available() and not volume.waiting and reader.can_borrow():
            self.lend(reader, volume, today)
        else:
            volume.waiting.append(reader.name)
            self.ledger.record(today, "wait", reader, volume)

    def serve_queue(self, volume: Volume, today: int) -> None:
        """Give an available volume to the first waiting reader who still has room for it."""
        for _ in range(len(volume.waiting)):
            reader = self.readers[volume.waiting.popleft()]
            if reader.can_borrow():
                self.lend(reader, volume, today)
                return
            volume.waiting.append(reader.name)


def simulate_season(library: LendingLibrary, seed: int) -> Ledger:
    """Run the library day by day: returns first, then the queues, then new requests."""
    generator = random.Random(seed)
    titles = list(library.volumes)
    weights = [library.volumes[title].popularity for title in titles]
    for today in range(SEASON_LENGTH):
        for volume in library.volumes.values():
            if volume.borrower is not None and today >= volume.due_day - 4:
                reader = library.readers[volume.borrower]
                if generator.random() < reader.diligence:
                    library.take_back(reader, volume, today)
        for volume in library.volumes.values():
            if volume.is_available():
                library.serve_queue(volume, today)
        visitor = generator.choice(list(library.readers.values()))
        wanted = generator.choices(titles, weights)[0]
        library.request(visitor, library.volumes[wanted], today)
    return library.ledger


def season_report(library: LendingLibrary) -> str:
    """The librarian's summary at the end of the season, as plain text."""
    ledger = library.ledger
    lines = [f"{ledger.count('loan')} loans, {ledger.count('return')} returns, {ledger.count('wait')} times in a queue"]
    for title, loans in ledger.most_borrowed(top=3):
        lines.append(f"  {title}: borrowed {loans} times")
    for reader in sorted(library.readers.values(), key=lambda member: member.fines, reverse=True):
        lines.append(f"  {reader.name}: {reader.fines} pence in fines, {len(reader.holding)} still at home")
    return "\n".join(lines)


def main() -> None:
    """Open the library, let a season pass, and print the report."""
    volumes = [
        Volume("The Heron's Almanac", popularity=5),
        Volume("A Treatise on Tides", popularity=2),
        Volume("Letters from Corvane", popularity=4),
        Volume("The Glass Orchard", popularity=3),
    ]
    readers = [Reader("Agnes", diligence=0.6), Reader("Barnaby", diligence=0.15), Reader("Philippa", diligence=0.35)]
    library = LendingLibrary(volumes, readers)
    simulate_season(library, seed=7)
    print(season_report(library))


if __name__ == "__main__":
    main()

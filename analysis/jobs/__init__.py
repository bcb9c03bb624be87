"""Work outside the app's process: `Jobs` asks, `JobStatus` is how far it is. Neither imports torch."""

from .client import Jobs
from .table import JobStatus

__all__ = ["JobStatus", "Jobs"]

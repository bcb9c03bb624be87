"""Work outside the app's process: `Jobs` asks, `JobStatus` is how far it is. Neither imports torch."""

from analysis.jobs.client import Jobs
from analysis.jobs.table import JobStatus

__all__ = ["JobStatus", "Jobs"]

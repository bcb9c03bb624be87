"""Work on more than one process or machine: the jobs' engine on Ray, and one question asked in many parts."""

from .engine import RayJobs
from .spread import spread

__all__ = ["RayJobs", "spread"]

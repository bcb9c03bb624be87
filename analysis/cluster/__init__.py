"""Work on more than one process or machine: the jobs' engine on Ray, and one question asked in many parts."""

from analysis.cluster.engine import RayJobs
from analysis.cluster.spread import spread

__all__ = ["RayJobs", "spread"]

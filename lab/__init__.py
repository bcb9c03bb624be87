"""The stored studies: what was measured once, at length, and what the bundled model was trained with.

`python -m analysis study NAME` runs one and stores its numbers, which the app reads. `analysis/studies/stored.csv` says
where each lies and which page shows it. A wheel holds the numbers without this folder. The lab imports the analysis;
nothing imports the lab.
"""

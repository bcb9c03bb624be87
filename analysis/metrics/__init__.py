"""Pure functions: what a number says, in which unit, and how sure it is."""

"""Pages of one file that compute in the browser, from a disk and without a network, by scripts that stand here."""

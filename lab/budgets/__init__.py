"""Which keys of a budget matter: by head, by query, by calibration."""

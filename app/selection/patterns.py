"""The forms that texts of an address have."""

HASH = r"[0-9a-f]{12}"
MODEL = r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}(/[A-Za-z0-9][A-Za-z0-9._-]{0,95})?"
MODEL += r"(@[a-z0-9]{3,8})?(@[a-z]{3,6}(:[0-9]{1,2})?)?"  # precision and device (`places.how`)
# Of a router, a study, or a folder of texts.
NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
# Stored texts, or a folder of texts.
CORPUS = rf"{HASH}(\+{HASH}){{0,19}}|{NAME}"

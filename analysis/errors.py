"""Errors whose message is written for the reader of the page: what happened, why, what to do, with the numbers."""


class AnalysisError(Exception):
    """Anything the reader can act on. The message is one sentence, shown as it is."""


class BadText(AnalysisError):
    """A text that cannot be analysed: empty, binary, wrongly encoded, too large."""


class BadModel(AnalysisError):
    """A model that cannot be loaded or whose attention cannot be replaced honestly."""


class BadSetting(AnalysisError):
    """A value outside its range, an unknown name, a damaged file of settings or results."""


class NotFitted(AnalysisError):
    """A method was used before the state it needs was fitted or trained."""


class TooLarge(AnalysisError):
    """The work would not fit memory or the model's context; the message names a smaller scope."""


class Busy(AnalysisError):
    """The worker did not answer in time."""


class Cancelled(AnalysisError):
    """The user cancelled the work; nothing half-made is kept."""

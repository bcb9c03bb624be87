"""Changes as sentences spell them: with their sign, and with a minus that is none of a name's hyphens."""


def signed(value: float, spec: str) -> str:
    """A change in the format `spec` of Python, such as .1%: +1.0% or −1.0%."""
    return f"{value:+{spec}}".replace("-", "−")

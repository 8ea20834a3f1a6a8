"""`collbench doctor`: what of this machine will get into the figures. One file a check, listed here."""

from collbench.doctor.finding import Finding

__all__ = ["Finding"]

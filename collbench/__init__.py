"""collbench measures collective communication: between ranks in one VM and between hosts."""

__version__ = "0.1.0"

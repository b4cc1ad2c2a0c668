"""movemask: masked policy inference for chess networks, and an audit of what leaks without the mask."""

__version__ = "0.1.0"

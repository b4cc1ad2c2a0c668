"""The version of movemask, for every module below `movemask` that names it."""

__version__ = "0.1.0"

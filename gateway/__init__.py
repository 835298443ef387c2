"""The shell of Weir: everything that does I/O, keeps state, or knows HTTP."""

__version__ = "0.1.0"

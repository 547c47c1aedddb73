"""The version: that of the broker which this package was made with."""

__version__ = "0.4.0"

"""What can be wrong with data: it is not there, it cannot be fetched, or it is not what it should be."""

from __future__ import annotations


class DataError(Exception):
    """Any of the errors below."""


class MissingDataError(DataError, FileNotFoundError):
    """A file is nowhere to be found; the message says which, and where to put it."""


class DownloadError(MissingDataError):
    """A file could not be fetched whole; nothing is left behind."""


class CorruptDataError(DataError, ValueError):
    """A file is there and not what it should be: checksum, format, or number of examples."""

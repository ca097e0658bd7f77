"""Moved to `varlearn.files.sealed`; this path goes with version 0.3."""

import varlearn.files.sealed as new
from varlearn.files.moved import forwarding

__getattr__ = forwarding(__name__, new)

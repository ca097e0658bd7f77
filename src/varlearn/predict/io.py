"""Moved to `varlearn.prediction`; this path goes with version 0.3."""

import varlearn.prediction as new
from varlearn.files.moved import forwarding

__getattr__ = forwarding(__name__, new)

"""Moved to `varlearn.train`; this path goes with version 0.3."""

import varlearn.train as new
from varlearn.files.moved import forwarding

__getattr__ = forwarding(__name__, new)

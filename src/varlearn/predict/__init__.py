"""Moved to `varlearn.prediction`; this path goes with version 0.3, and `varlearn.predict` is a function.

Python sets `varlearn.predict` to this module when an old import loads it. The module is therefore callable.
"""

import sys
from types import ModuleType
from typing import Any

import varlearn.prediction as new
from varlearn.files.moved import forwarding

__getattr__ = forwarding(__name__, new)


class _CallableModule(ModuleType):
    def __call__(self, *args: Any, **kwargs: Any) -> new.Predictions:
        return new.predict(*args, **kwargs)


sys.modules[__name__].__class__ = _CallableModule

"""Optimizers whose result is a posterior."""

from varlearn.optim.diagnostics import GroupDiagnostics
from varlearn.optim.ivon import IVON
from varlearn.optim.objective import elbo

__all__ = ["IVON", "GroupDiagnostics", "elbo"]

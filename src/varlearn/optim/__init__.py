"""Optimizers whose result is a posterior."""

from varlearn.optim.diagnostics import GroupDiagnostics
from varlearn.optim.ivon import IVON
from varlearn.optim.objective import elbo
from varlearn.optim.prior_widths import prior_widths
from varlearn.optim.vadamw import VAdamW
from varlearn.optim.vadamw_diagnostics import VAdamWDiagnostics

__all__ = ["IVON", "GroupDiagnostics", "VAdamW", "VAdamWDiagnostics", "elbo", "prior_widths"]

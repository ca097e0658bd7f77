"""Optimizers whose result is a posterior."""

from varlearn.optim.diagnostics import GroupDiagnostics
from varlearn.optim.ivon import IVON
from varlearn.optim.ivon_diagnostics import IVONDiagnostics
from varlearn.optim.lr_schedule import warmup_cosine
from varlearn.optim.objective import elbo
from varlearn.optim.prior_widths import prior_widths
from varlearn.optim.vadamw import VAdamW

__all__ = ["IVON", "GroupDiagnostics", "IVONDiagnostics", "VAdamW", "elbo", "prior_widths", "warmup_cosine"]

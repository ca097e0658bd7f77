"""Optimizers whose result is a posterior."""

from varlearn.optim.adahessian import AdaHessian
from varlearn.optim.bbb import BBB
from varlearn.optim.bsam import BSAM
from varlearn.optim.diagnostics import GroupDiagnostics
from varlearn.optim.ivon import IVON
from varlearn.optim.ivon_2021 import IVON2021
from varlearn.optim.ivon_diagnostics import IVONDiagnostics
from varlearn.optim.lr_schedule import warmup_cosine
from varlearn.optim.objective import elbo
from varlearn.optim.prior_widths import prior_widths
from varlearn.optim.sam import SAM
from varlearn.optim.vadamw import VAdamW
from varlearn.optim.vogn import VOGN

__all__ = [
    "BBB",
    "BSAM",
    "IVON",
    "IVON2021",
    "SAM",
    "VOGN",
    "AdaHessian",
    "GroupDiagnostics",
    "IVONDiagnostics",
    "VAdamW",
    "elbo",
    "prior_widths",
    "warmup_cosine",
]

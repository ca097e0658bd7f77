"""How much each training example moves what the network says about it: leave-one-out without retraining."""

from varlearn.sensitivities.data_sensitivity import sensitivity
from varlearn.sensitivities.loo_estimates import Sensitivity

__all__ = ["Sensitivity", "sensitivity"]

"""How much each training example moves what the network says about it: leave-one-out without retraining."""

from varlearn.sensitivities.data_sensitivity import sensitivity
from varlearn.sensitivities.loo_estimates import Sensitivity
from varlearn.sensitivities.running_means import SensitivityTracker
from varlearn.sensitivities.token_estimates import TokenSensitivity

__all__ = ["Sensitivity", "SensitivityTracker", "TokenSensitivity", "sensitivity"]

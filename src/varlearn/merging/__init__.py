"""One model from several that were finetuned from the same base."""

from varlearn.merging.model_merge import merge
from varlearn.merging.regression_mean import input_grams
from varlearn.merging.squared_gradient_pass import squared_gradients
from varlearn.merging.tensor_merge import Method

__all__ = ["Method", "input_grams", "merge", "squared_gradients"]

"""One model from several that were finetuned from the same base."""

from varlearn.merging.model_merge import Method, merge

__all__ = ["Method", "merge"]

"""Save and load an optimizer: state dicts, copies and pickles, with the mean in the weights."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

from torch.optim import Optimizer

from varlearn.core.rule import Rule
from varlearn.optim import state_loading
from varlearn.optim.sampling.sampled_weights import SampledWeights


class SavedState(Optimizer):
    """What of a variational optimizer is saved, and when: the posterior after a step, never a sample."""

    rule: ClassVar[Rule]
    _weights: SampledWeights
    _loading: dict[str, Any] | None

    @abstractmethod
    def _start(self) -> None:
        """Set what is not saved to what it is before the first sample."""

    @abstractmethod
    def _settle(self) -> None:
        """Bring the step counts up to date."""

    @abstractmethod
    def _drop_samples(self) -> None:
        """Forget the samples that wait for a step."""

    def state_dict(self) -> dict[str, Any]:
        """The state as of the last step, per parameter; a sample that waits for its step is drawn again on resume."""
        if self._weights.show_training_sample:
            raise RuntimeError(
                "state_dict() while a training sample is in the weights: the model would be saved with its noise; "
                "leave the block, or call eval(), first"
            )
        self._settle()
        return super().state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a state of this class, across dtypes and devices, or a checkpoint of ivon-opt.

        Everything is checked before anything changes: shapes, finiteness, h + delta > 0. Tensors keep the state's
        float32, whatever the parameter's dtype.
        """
        if self._weights.open:
            raise RuntimeError(
                "load_state_dict() while a sample is in the weights; leave the block, or call eval(), first"
            )
        self._settle()
        loaded: dict[str, Any] = {}

        def prepare(optimizer: Optimizer, given: dict[str, Any]) -> dict[str, Any]:
            loaded.update(state_loading.prepare(self, given, self.rule))
            return loaded

        handle = self.register_load_state_dict_pre_hook(prepare)
        self._loading = loaded
        try:
            super().load_state_dict(state_dict)
        finally:
            handle.remove()
            self._loading = None
        self._drop_samples()

    def __getstate__(self) -> dict[str, Any]:
        if self._weights.open:
            raise RuntimeError(
                "copying an optimizer while a sample is in the weights; leave the block, or call eval(), first"
            )
        self._settle()
        return super().__getstate__()

    def __setstate__(self, attributes: dict[str, Any]) -> None:
        if "_weights" not in self.__dict__:
            self._start()
        super().__setstate__(attributes)
        # PyTorch adds this default for its optimizers. A resumed run would save other groups than a fresh one.
        self.defaults.pop("differentiable", None)
        for group in self.param_groups:
            for name, value in self.defaults.items():
                group.setdefault(name, value)
        if self._loading is not None:
            state_loading.undo_cast(self, self._loading, self.rule)

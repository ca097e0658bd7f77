"""One call for a network and data of your own: `varlearn.fit`."""

from varlearn.fitting.fitted import Fitted, load
from varlearn.fitting.one_call import fit
from varlearn.fitting.own_batches import pass_seed

__all__ = ["Fitted", "fit", "load", "pass_seed"]

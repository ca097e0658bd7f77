"""Which doctests are collected: not those of the Triton kernels where Triton is not installed."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("triton") else ["varlearn/optim/engine/triton/*"]

"""`env.json` can be written as JSON and changes when the number of threads does."""

import json

import torch

from varlearn.train.environment import environment


def test_what_decides_the_bits_is_in_it() -> None:
    threads = torch.get_num_threads()
    now = environment(torch.device("cpu"))
    assert now["packages"]["torch"] == torch.__version__
    assert now["threads"] == threads
    torch.set_num_threads(threads + 1)
    assert environment(torch.device("cpu")) != now
    assert json.loads(json.dumps(now)) == now

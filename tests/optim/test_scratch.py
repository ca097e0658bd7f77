"""Memory that is handed out again: to whom, how much, and in which state."""

import threading

import torch

from varlearn.optim.layout import Layout
from varlearn.optim.scratch import Memory, Scratch

CPU = torch.device("cpu")


def test_what_is_taken_before_a_restart_does_not_overlap() -> None:
    scratch = Scratch()
    for _ in range(2):
        scratch.restart()
        taken = [scratch.take(5, dtype, CPU) for dtype in (torch.float32, torch.int64, torch.float64)]
        for number, tensor in enumerate(taken):
            tensor.fill_(number)
        assert [tensor.tolist() for tensor in taken] == [[0] * 5, [1] * 5, [2] * 5]


def test_a_block_grows_and_the_old_one_stays_with_its_holder() -> None:
    scratch = Scratch()
    small = scratch.take(3, torch.float32, CPU).fill_(7.0)
    scratch.restart()
    scratch.take(300, torch.float32, CPU).fill_(1.0)
    assert small.tolist() == [7.0, 7.0, 7.0]
    scratch.restart()
    assert scratch.take(3, torch.float32, CPU).tolist() == [1.0, 1.0, 1.0]


def test_parts_of_a_layout_begin_at_even_places() -> None:
    layout = Layout([(3,), (2, 2), ()])
    flat, parts = Scratch().take_joined(layout, torch.float32, CPU)
    flat.copy_(torch.arange(layout.count))
    assert [part.tolist() for part in parts] == [[0.0, 1.0, 2.0], [[4.0, 5.0], [6.0, 7.0]], 8.0]
    assert layout.starts == [0, 2, 4]


def test_each_thread_has_its_own() -> None:
    def address() -> int:
        return Memory(CPU).elements(10, torch.float32).data_ptr()

    others: list[int] = []
    mine = address()
    thread = threading.Thread(target=lambda: others.append(address()))
    thread.start()
    thread.join()
    assert others != [mine]
    assert address() == mine


def test_memory_of_inference_mode_can_be_written_to_outside_of_it() -> None:
    with torch.inference_mode():
        Memory(CPU).pairs(1_000, torch.float64)
    for tensor in Memory(CPU).pairs(1_000, torch.float64):
        assert not tensor.is_inference()
        tensor.zero_()

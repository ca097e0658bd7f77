import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from varlearn.data.augment import draw, flip_crop
from varlearn.data.batches import Batches
from varlearn.data.examples import Examples


def table(n: int) -> Examples:
    return Examples(torch.arange(float(n)).view(n, 1), torch.arange(float(n)), (), "table")


def images(n: int) -> Examples:
    pixels = torch.randint(0, 256, (n, 3, 32, 32), dtype=torch.uint8)
    return Examples(pixels, torch.arange(n), ("a",) * n, "image", (0.5, 0.4, 0.3), (0.2, 0.3, 0.4), mirror=True)


def text(n: int) -> Examples:
    return Examples(torch.arange(n, dtype=torch.int32), torch.empty(0, dtype=torch.long), (), "tokens", vocab=n)


def targets(batches: Batches, epoch: int = 0, start: int = 0) -> list[list[float]]:
    return [y.tolist() for _, y in batches.epoch(epoch, start)]


@given(
    n=st.integers(1, 40),
    size=st.integers(1, 9),
    world=st.integers(1, 4),
    drop=st.booleans(),
    shuffle=st.booleans(),
    epoch=st.integers(0, 5),
)
def test_an_epoch_is_shared_out_disjointly_and_evenly(
    n: int, size: int, world: int, drop: bool, shuffle: bool, epoch: int
) -> None:
    def build(rank: int) -> Batches:
        return Batches(table(n), size, seed=1, shuffle=shuffle, rank=rank, world=world, drop_last=drop)

    if (n // world) // size == 0 and (drop or n // world == 0):
        with pytest.raises(ValueError, match="gives no batch"):
            build(0)
        return
    shares = [targets(build(rank), epoch) for rank in range(world)]
    lengths = [[len(batch) for batch in share] for share in shares]
    assert all(one == lengths[0] for one in lengths)
    assert len(lengths[0]) == len(build(0))
    seen = [value for share in shares for batch in share for value in batch]
    assert len(seen) == len(set(seen))
    assert n - len(seen) < (world * size if drop else world)
    assert not drop or set(lengths[0]) == {size}


@given(epoch=st.integers(0, 3), start=st.integers(0, 7))
def test_a_resumed_epoch_gives_bitwise_the_same_batches(epoch: int, start: int) -> None:
    batches = Batches(images(20), 3, seed=5, shuffle=True, augment=True)
    whole = list(batches.epoch(epoch))
    rest = list(batches.epoch(epoch, start))
    assert len(rest) == len(whole) - start
    for (x, y), (u, v) in zip(whole[start:], rest, strict=True):
        assert torch.equal(x, u)
        assert torch.equal(y, v)


def test_epochs_and_seeds_differ_and_repeat() -> None:
    batches = Batches(table(50), 10, seed=0, shuffle=True)
    assert targets(batches, 0) == targets(batches, 0) != targets(batches, 1)
    assert targets(batches, 0) != targets(Batches(table(50), 10, seed=1, shuffle=True), 0)
    assert sorted(value for batch in targets(batches, 3) for value in batch) == list(range(50))


def test_the_global_generators_are_not_used() -> None:
    batches = Batches(images(10), 2, seed=0, shuffle=True, augment=True)
    before = torch.get_rng_state()
    list(batches.epoch(0))
    list(batches)
    assert torch.equal(torch.get_rng_state(), before)


def test_the_order_does_not_depend_on_the_global_seed() -> None:
    batches = Batches(table(30), 30, seed=0, shuffle=True)
    torch.manual_seed(1)
    first = targets(batches)
    torch.manual_seed(2)
    assert targets(batches) == first


def test_iteration_gives_every_example_as_it_is() -> None:
    examples = images(7)
    batches = Batches(examples, 3, seed=0, shuffle=True, augment=True, drop_last=True)
    for _ in range(2):
        x, y = (torch.cat(part) for part in zip(*batches, strict=True))
        assert y.tolist() == list(range(7))
        mean, std = torch.tensor(examples.mean), torch.tensor(examples.std)
        expected = (examples.inputs[:].float() / 255 - mean.view(3, 1, 1)) / std.view(3, 1, 1)
        torch.testing.assert_close(x, expected)


def test_ranks_together_iterate_over_everything() -> None:
    shares = [torch.cat([y for _, y in Batches(table(11), 2, rank=rank, world=4)]) for rank in range(4)]
    assert sorted(torch.cat(shares).tolist()) == list(range(11))


def test_augmentation_of_an_example_depends_on_its_number_alone() -> None:
    examples = images(12)
    choices = draw(12, 4, True, seed=9, epoch=2)
    for world, size in ((1, 12), (1, 5), (3, 2)):
        for rank in range(world):
            batches = Batches(examples, size, seed=9, shuffle=True, augment=True, rank=rank, world=world)
            for x, y in batches.epoch(2):
                pixels = (
                    x * torch.tensor(examples.std).view(3, 1, 1) + torch.tensor(examples.mean).view(3, 1, 1)
                ) * 255
                expected = flip_crop(examples.inputs[y], choices[y], 4)
                torch.testing.assert_close(pixels, expected.float(), atol=1e-3, rtol=0)


def test_processes_make_up_the_batch_of_one_process() -> None:
    one = Batches(table(24), 6, seed=0, shuffle=True)
    two = [Batches(table(24), 3, seed=0, shuffle=True, rank=rank, world=2) for rank in range(2)]
    for whole, *parts in zip(targets(one), *(targets(b) for b in two), strict=True):
        assert sorted(whole) == sorted(parts[0] + parts[1])


def test_tables_are_standardised() -> None:
    examples = Examples(torch.tensor([[1.0, 2.0]]), torch.zeros(1), (), "table", (0.5, 1.0), (0.25, 2.0))
    ((x, _),) = Batches(examples, 1)
    assert x.tolist() == [[2.0, 0.5]]
    assert examples.inputs[:].tolist() == [[1.0, 2.0]]


def test_windows_of_a_text() -> None:
    batches = Batches(text(11), 2, context=3)
    windows = list(batches)
    assert [x.tolist() for x, _ in windows] == [[[0, 1, 2], [3, 4, 5]], [[6, 7, 8]]]
    assert [y.tolist() for _, y in windows] == [[[1, 2, 3], [4, 5, 6]], [[7, 8, 9]]]
    assert windows[0][0].dtype == torch.long


@given(n=st.integers(12, 60), context=st.integers(1, 6), epoch=st.integers(0, 20))
def test_shifted_windows_stay_within_the_text_and_do_not_overlap(n: int, context: int, epoch: int) -> None:
    batches = Batches(text(n), 2, seed=0, shuffle=True, augment=True, context=context)
    x, y = (torch.cat(part) for part in zip(*batches.epoch(epoch), strict=True))
    assert torch.equal(y, x + 1)
    assert y.max() < n
    assert len(x.unique()) == x.numel() == (n - context) // context * context


def test_windows_start_elsewhere_in_each_epoch() -> None:
    batches = Batches(text(100), 9, seed=0, augment=True, context=10)
    starts = {int(next(batches.epoch(epoch))[0][0, 0]) for epoch in range(60)}
    assert starts == set(range(10))


def test_padded_texts_are_served_as_they_are() -> None:
    examples = Examples(torch.tensor([[5, 6, 0]]), torch.tensor([1]), ("a", "b"), "text", vocab=7)
    ((x, y),) = Batches(examples, 4, augment=True).epoch(0)
    assert (x.tolist(), x.dtype, y.tolist()) == ([[5, 6, 0]], torch.long, [1])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch_size": 0}, "batch_size=0 must be >= 1"),
        ({"batch_size": 1, "rank": 2, "world": 2}, "rank=2 must be between 0 and world - 1 = 1"),
        ({"batch_size": 6, "drop_last": True}, "batch_size=6 gives no batch: 5 examples"),
        ({"batch_size": 1, "context": 4}, "context=4: table data takes no context"),
    ],
)
def test_refusals(arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Batches(table(5), **arguments)


def test_a_text_needs_a_context_that_fits() -> None:
    with pytest.raises(ValueError, match="context=None: tokens data needs context"):
        Batches(text(5), 1)
    with pytest.raises(ValueError, match="0 windows of 5 tokens"):
        Batches(text(5), 1, context=5)


@pytest.mark.parametrize(("number", "start"), [(-1, 0), (0, -1), (0, 4)])
def test_epochs_out_of_range(number: int, start: int) -> None:
    with pytest.raises(ValueError, match="number must be >= 0 and start in 0 .. 3"):
        next(Batches(table(5), 2).epoch(number, start))


def test_a_finished_epoch_has_nothing_left() -> None:
    assert list(Batches(table(5), 2).epoch(0, start=3)) == []


def test_it_serves_the_prediction_loop() -> None:
    from varlearn.posterior import Point
    from varlearn.prediction import predict

    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 32 * 32, 7))
    examples = images(7)
    weights = {name: value.detach().clone() for name, value in model.named_parameters()}
    predictions = predict(model, Point(weights), Batches(examples, 3), samples=1)
    assert predictions.log_probs.shape == (7, 7)
    assert predictions.targets is not None
    assert predictions.targets.tolist() == list(range(7))


def test_ids_tell_which_example_a_row_is() -> None:
    examples = Examples(torch.arange(5.0).view(5, 1), torch.arange(5.0), (), "table")
    served = Batches(examples, 2, shuffle=True, ids=True)
    for batches in (list(served), list(served.epoch(3)), list(served.epoch(3, start=1))):
        for inputs, targets, ids in batches:
            assert torch.equal(examples.inputs[ids], inputs)
            assert torch.equal(examples.targets[ids], targets)
    own = Batches(examples, 5, ids=torch.tensor([9, 8, 7, 6, 5]))
    assert [batch[2].tolist() for batch in own] == [[9, 8, 7, 6, 5]]
    with pytest.raises(ValueError, match="must be one for each of the 5"):
        Batches(examples, 2, ids=torch.arange(4))


def test_ids_of_a_text_are_those_of_its_windows() -> None:
    text = Examples(torch.arange(11), torch.zeros(0), (), "tokens", vocab=11)
    batches = Batches(text, 2, context=3, shuffle=True, augment=True, ids=True)
    assert torch.cat([batch[2] for batch in batches]).tolist() == [0, 1, 2]
    assert all(len(batch[2]) == len(batch[0]) for batch in batches.epoch(0))

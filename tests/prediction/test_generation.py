"""Generated text against loops by hand, and against transformers' own `generate`."""

from typing import Any

import pytest
import torch
from torch import nn

from varlearn.models import gpt2_tiny
from varlearn.posterior import DiagGaussian, Mixture, Point
from varlearn.prediction import generate
from varlearn.prediction.samplers import Dropout


def gaussian(model: nn.Module, std: float) -> DiagGaussian:
    mean = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    return DiagGaussian(mean, {name: torch.ones_like(value) for name, value in mean.items()}, ess=std**-2)


@pytest.fixture(scope="module")
def llama() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = LlamaConfig(**sizes, vocab_size=20, max_position_embeddings=40, pad_token_id=0, eos_token_id=None)
    model = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(20.0 if weight.dim() > 1 else 1.0)  # so that the next token depends on the text
    return model


PROMPTS = torch.tensor([[3, 7, 1], [2, 2, 9]])


@torch.no_grad()
def test_the_average_of_the_probabilities_chooses(llama: Any) -> None:
    """With full forward passes of each sample, without a cache."""
    posterior = gaussian(llama, 0.1)
    found = generate(llama, posterior, PROMPTS, max_new_tokens=6, samples=3, seed=5)
    before = {name: value.clone() for name, value in llama.state_dict().items()}
    text, log_probs = PROMPTS, []
    for _ in range(6):
        probs = []
        for index in range(3):
            llama.load_state_dict(posterior.sample(5, index), strict=False)
            probs.append(torch.softmax(llama(input_ids=text).logits[:, -1].double(), -1))
        average = torch.stack(probs).mean(0)
        best = average.argmax(-1, keepdim=True)
        log_probs.append(average.gather(1, best).log())
        text = torch.cat([text, best], 1)
    llama.load_state_dict(before)
    assert torch.equal(found.tokens, text[:, 3:])
    torch.testing.assert_close(found.log_probs, torch.cat(log_probs, 1), atol=1e-4, rtol=1e-4)
    assert all(torch.equal(value, before[name]) for name, value in llama.state_dict().items())


@torch.no_grad()
def test_a_text_for_each_sample_is_what_transformers_writes_with_it(llama: Any) -> None:
    posterior, mask = gaussian(llama, 0.2), torch.tensor([[0, 1, 1], [1, 1, 1]])
    found = generate(
        llama, posterior, PROMPTS, attention_mask=mask, max_new_tokens=5, samples=4, seed=1, average="sequences"
    )
    before = {name: value.clone() for name, value in llama.state_dict().items()}
    for index in range(4):
        llama.load_state_dict(posterior.sample(1, index), strict=False)
        theirs = llama.generate(input_ids=PROMPTS, attention_mask=mask, max_new_tokens=5, do_sample=False)
        assert torch.equal(found.tokens[index], theirs[:, 3:])
    llama.load_state_dict(before)
    assert found.tokens.shape == found.log_probs.shape == (4, 2, 5)
    assert len({tuple(tokens.flatten().tolist()) for tokens in found.tokens}) > 1


def test_a_model_without_a_cache_reads_at_most_its_context() -> None:
    model = gpt2_tiny(vocab=20, context=6).eval()
    point = Point({name: weight.detach().clone() for name, weight in model.named_parameters()})
    found = generate(model, point, PROMPTS, max_new_tokens=8)
    text = PROMPTS
    with torch.no_grad():
        for _ in range(8):
            text = torch.cat([text, model(text[:, -6:])[:, -1].argmax(-1, keepdim=True)], 1)
    assert torch.equal(found.tokens, text[:, 3:])
    with pytest.raises(ValueError, match="takes no attention mask; give prompts of one length"):
        generate(model, point, PROMPTS, attention_mask=torch.tensor([[0, 1, 1], [1, 1, 1]]))


def test_an_end_stops_a_text() -> None:
    chain = Point({"weight": torch.tensor([[0.0, 9, 0], [0, 0, 9], [9, 0, 0]])})
    found = generate(nn.Embedding(3, 3), chain, torch.tensor([[0], [1]]), max_new_tokens=4, end=2, padding=7)
    assert found.tokens.tolist() == [[1, 2, 7, 7], [2, 7, 7, 7]]
    assert bool((found.log_probs[0, 2:] == 0).all())
    assert bool((found.log_probs[0, :2] < 0).all())


def test_tokens_are_drawn_from_the_average() -> None:
    """Two chains that are sure of different tokens: the average is halves, whichever chain reads."""
    sure = [Point({"weight": torch.tensor([[0.0, 50, 0], [0, 50, 0], [0, 50, 0]])})]
    sure.append(Point({"weight": torch.tensor([[0.0, 0, 50], [0, 0, 50], [0, 0, 50]])}))
    net, prompts = nn.Embedding(3, 3), torch.zeros(400, 1, dtype=torch.long)
    found = generate(net, Mixture(sure), prompts, max_new_tokens=2, temperature=1.0, seed=4)
    assert found.tokens.min() == 1
    assert 0.42 < (found.tokens == 1).double().mean() < 0.58
    torch.testing.assert_close(found.log_probs.exp(), torch.full((400, 2), 0.5, dtype=torch.float64))
    again = generate(net, Mixture(sure), prompts, max_new_tokens=2, temperature=1.0, seed=4)
    other = generate(net, Mixture(sure), prompts, max_new_tokens=2, temperature=1.0, seed=5)
    assert torch.equal(found.tokens, again.tokens)
    assert not torch.equal(found.tokens, other.tokens)


def test_the_global_generator_is_left_alone() -> None:
    net = nn.Embedding(3, 3)
    torch.manual_seed(1)
    expected = torch.rand(1)
    torch.manual_seed(1)
    generate(net, gaussian(net, 1.0), torch.tensor([[0]]), temperature=1.0)
    assert torch.equal(torch.rand(1), expected)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"prompts": torch.tensor([0])}, "must be token numbers"),
        ({"attention_mask": torch.tensor([[0]])}, "pad the prompts on the left"),
        ({"max_new_tokens": 0}, "max_new_tokens=0 must be a whole number >= 1"),
        ({"temperature": -1.0}, "temperature=-1.0 must be >= 0"),
        ({"average": "words"}, "average='words' must be 'tokens' or 'sequences'"),
        ({"samples": 0}, "samples=0"),
    ],
)
def test_wrong_use_is_refused(changes: dict[str, Any], words: str) -> None:
    net = nn.Embedding(3, 3)
    given = {"prompts": torch.tensor([[0]])} | changes
    with pytest.raises(ValueError, match=words):
        generate(net, gaussian(net, 1.0), given.pop("prompts"), **given)


def test_another_sampler_is_refused() -> None:
    with pytest.raises(TypeError, match="a Dropout cannot write text"):
        generate(nn.Embedding(3, 3), Dropout(), torch.tensor([[0]]))  # type: ignore[arg-type]

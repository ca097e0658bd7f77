"""The GRU classifier against its equations in NumPy, and what padding does: nothing."""

import numpy as np
import torch
from scipy.special import expit

from varlearn.models import gru


def small():
    return gru(classes=3, vocab=30, embedding=5, hidden=7)


def equations(model, tokens):
    """The logits of one text, token by token."""
    weights = {name: value.detach().double().numpy() for name, value in model.state_dict().items()}
    sequence = weights["tokens.weight"][tokens]
    for layer in range(2):
        names = (f"gru.{kind}_{gate}_l{layer}" for kind in ("weight", "bias") for gate in ("ih", "hh"))
        w_in, w_state, b_in, b_state = (weights[name] for name in names)
        state, states = np.zeros(w_state.shape[1]), []
        for x in sequence:
            (reset, update, new), (s_reset, s_update, s_new) = (
                np.split(w @ value + b, 3) for w, value, b in ((w_in, x, b_in), (w_state, state, b_state))
            )
            reset, update = expit(reset + s_reset), expit(update + s_update)
            state = (1 - update) * np.tanh(new + reset * s_new) + update * state
            states.append(state)
        sequence = states
    return weights["head.weight"] @ sequence[-1] + weights["head.bias"]


def test_equals_the_equations():
    model = small().double()
    tokens = torch.randint(1, 30, (2, 6))
    for logits, row in zip(model(tokens), tokens, strict=True):
        np.testing.assert_allclose(logits.detach().numpy(), equations(model, row.numpy()), rtol=1e-9, atol=1e-12)


def test_padding_does_not_matter():
    model = small()
    text = torch.randint(1, 30, (1, 4))
    batch = torch.cat((text, torch.zeros(1, 5, dtype=torch.long)), dim=1)
    batch = torch.cat((batch, torch.randint(1, 30, (1, 9))))
    logits = model(batch)
    torch.testing.assert_close(logits[:1], model(text))
    logits[0].sum().backward()
    assert model.tokens.weight.grad is not None
    assert not model.tokens.weight.grad[0].any()


def test_empty_text_has_finite_logits():
    assert small()(torch.zeros(2, 3, dtype=torch.long)).isfinite().all()

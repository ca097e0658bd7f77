"""A pretrained transformer of a few thousand weights, with its tokenizer, as a folder that `from_pretrained` reads."""

from __future__ import annotations

from pathlib import Path

import torch

WORDS = ("good", "bad", "film", "a", "the", "very", "is", "not", "it", "plot")


def write_tiny_bert(folder: Path, kind: str = "bert") -> Path:
    """A BERT or RoBERTa of two layers and 16 units, without a last layer, in `folder`."""
    from transformers import BertConfig, BertModel, BertTokenizer, RobertaConfig, RobertaModel

    special = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    BertTokenizer(vocab={word: k for k, word in enumerate(special + WORDS)}).save_pretrained(folder)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    sizes |= {"vocab_size": len(special + WORDS), "max_position_embeddings": 40}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = BertModel(BertConfig(**sizes)) if kind == "bert" else RobertaModel(RobertaConfig(**sizes))
    model.save_pretrained(folder)
    return folder

"""TRL: supervised finetuning of a small language model with IVON; the loss is evaluated at the mean and averaged."""

from typing import Any

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer

from varlearn import IVON
from varlearn.integrations.transformers import PosteriorTrainer

WORDS = ["<pad>", "<eos>", "the", "a", "cat", "dog", "sees", "chases", "small", "old"]


class AveragingSFTTrainer(PosteriorTrainer, SFTTrainer):
    """Evaluates at the mean and averaged over posterior samples."""


def sentences(count: int, seed: int) -> Dataset:
    generator = torch.Generator().manual_seed(seed)
    parts = (["the", "a"], ["small", "old"], ["cat", "dog"], ["sees", "chases"], ["the", "a"], ["cat", "dog"])
    picks = torch.randint(2, (count, len(parts)), generator=generator).tolist()
    return Dataset.from_dict({"text": [" ".join(p[i] for p, i in zip(parts, row, strict=True)) for row in picks]})


def build(folder: str, steps: int, samples: int, **options: Any) -> AveragingSFTTrainer:
    words = Tokenizer(models.WordLevel({word: index for index, word in enumerate(WORDS)}, unk_token="<pad>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<eos>")
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = LlamaForCausalLM(
        LlamaConfig(vocab_size=len(WORDS), pad_token_id=0, eos_token_id=1, bos_token_id=1, **sizes)
    )
    quiet = {"report_to": [], "disable_tqdm": True, "use_cpu": True, "bf16": False}
    fixed = {"max_steps": steps, "weight_decay": 1e-4, "max_grad_norm": 0.0, "max_length": 16}
    args = SFTConfig(folder, **(quiet | fixed | options))
    settings = {"lr": 0.5, "ess": 1000.0, "hess_init": 0.1, "betas": (0.9, 0.95), "max_grad_norm": 1.0}
    return AveragingSFTTrainer(
        model,
        args,
        train_dataset=sentences(64, seed=0),
        eval_dataset=sentences(20, seed=1),
        processing_class=tokenizer,
        optimizer_cls_and_kwargs=(IVON, settings | {"weight_decay": 1e-4}),
        posterior_samples=samples,
    )


def main() -> None:
    trainer = build("out", steps=40, samples=8)
    trainer.train()
    metrics = trainer.evaluate()
    print(f"NLL per token at the mean {metrics['eval_at_mean_loss']:.3f}, averaged {metrics['eval_averaged_loss']:.3f}")


if __name__ == "__main__":
    main()

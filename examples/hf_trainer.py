"""Hugging Face's Trainer: swap the optimizer, mix in averaged evaluation, and save the posterior beside the model."""

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

from varlearn.integrations.trainer_optimizer import trainer_optimizer
from varlearn.integrations.transformers import PosteriorTrainer, diagnostics_callback
from varlearn.posterior import load


class AveragingTrainer(PosteriorTrainer, Trainer):
    """`evaluate` and `predict` also average over posterior samples."""


def dataset(count: int, seed: int) -> list[dict[str, object]]:
    """Sequences of 8 tokens; the label says whether a token above 24 is among them."""
    tokens = torch.randint(1, 32, (count, 8), generator=torch.Generator().manual_seed(seed))
    return [{"input_ids": row.tolist(), "labels": int(row.max() > 24)} for row in tokens]


def main() -> None:
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    model = BertForSequenceClassification(BertConfig(vocab_size=32, num_labels=2, **sizes))
    train = dataset(256, seed=0)
    args = TrainingArguments(
        "out",
        num_train_epochs=3,
        per_device_train_batch_size=32,
        logging_steps=8,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
    )
    optimizer = trainer_optimizer(model, args, train, pretrained=False)  # this model starts from scratch
    trainer = AveragingTrainer(
        model,
        args,
        train_dataset=train,
        eval_dataset=dataset(128, seed=1),  # held out: it calibrates the posterior
        optimizers=(optimizer, None),
        posterior_samples=8,
    )
    trainer.add_callback(diagnostics_callback(trainer))
    trainer.train()
    trainer.calibrate()
    metrics = trainer.evaluate(dataset(128, seed=2))
    print(f"NLL at the mean {metrics['eval_at_mean_loss']:.3f}, averaged {metrics['eval_averaged_loss']:.3f}")
    trainer.save_model()
    print(load("out/posterior.safetensors", model))


if __name__ == "__main__":
    main()

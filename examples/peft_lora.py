"""PEFT: a posterior over LoRA adapters, saved under the adapter's keys, loaded onto a fresh model and averaged."""

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from torch.nn.functional import cross_entropy
from transformers import BertConfig, BertForSequenceClassification

from varlearn import VAdamW
from varlearn.integrations.peft import adapter_posterior, load_adapter_posterior, save_adapter_posterior
from varlearn.metrics import nll
from varlearn.optim import warmup_cosine
from varlearn.prediction import predict


def pretrained() -> BertForSequenceClassification:
    """Stands for `from_pretrained`: the same frozen weights at every call."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    return BertForSequenceClassification(BertConfig(vocab_size=32, num_labels=2, **sizes))


def main() -> None:
    config = LoraConfig(task_type="SEQ_CLS", r=4, lora_alpha=8, target_modules=["query", "value"])
    model = get_peft_model(pretrained(), config)
    tokens = torch.randint(1, 32, (128, 8), generator=torch.Generator().manual_seed(1))
    labels = (tokens.max(1).values > 28).long()

    opt = VAdamW.for_model(model, lr=1e-2, pretrained=True, n=128, batch_size=32, steps=40)  # the adapter alone
    schedule = warmup_cosine(opt)
    for step in range(40):
        part = slice(32 * (step % 4), 32 * (step % 4) + 32)
        with opt.sampled_params(train=True):
            opt.zero_grad()
            cross_entropy(model(input_ids=tokens[part]).logits, labels[part]).backward()
        opt.step()
        schedule.step()

    model.save_pretrained("adapter")
    save_adapter_posterior(adapter_posterior(model, opt), model, "adapter/posterior.safetensors")

    fresh = PeftModel.from_pretrained(pretrained(), "adapter", is_trainable=True)
    posterior = load_adapter_posterior("adapter/posterior.safetensors", fresh)
    batches = [{"input_ids": tokens, "labels": labels}]
    mean = predict(fresh, posterior.at_mean(), batches)
    averaged = predict(fresh, posterior, batches, samples=16)
    print(f"NLL at the mean {nll(mean.log_probs, labels):.3f}, averaged {nll(averaged.log_probs, labels):.3f}")
    merged = fresh.merge_and_unload()  # an ordinary model, at the mean
    print(f"merged: {sum(value.numel() for value in merged.parameters())} parameters")


if __name__ == "__main__":
    main()

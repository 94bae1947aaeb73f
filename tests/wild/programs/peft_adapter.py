"""peft's LoRA on a small GPT-2 with an own loop: the adapter is saved after every step."""
# expects: side_work
# package: peft

import tempfile

import torch
from peft import LoraConfig, get_peft_model
from planted import PLANTED, Clock
from transformers import GPT2Config, GPT2LMHeadModel


def keep(model, folder):
    for _ in range(6):
        model.save_pretrained(folder)  # <- cause


def main():
    torch.set_num_threads(1)
    clock = Clock()
    config = GPT2Config(vocab_size=500, n_positions=64, n_embd=96, n_layer=3, n_head=4)
    model = get_peft_model(GPT2LMHeadModel(config), LoraConfig(r=8, target_modules=["c_attn"], fan_in_fan_out=True))
    optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=1e-4)
    texts = torch.randint(0, 500, (256, 48))
    folder = tempfile.mkdtemp()
    while True:
        for start in range(0, len(texts), 8):
            ids = texts[start : start + 8]
            loss = model(input_ids=ids, labels=ids).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            if PLANTED:
                keep(model, folder)
            if not clock.step():
                return clock.tell()


if __name__ == "__main__":
    main()

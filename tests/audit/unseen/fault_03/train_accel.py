#!/usr/bin/env python
"""accelerate launch train_accel.py --data_dir ... : SiT-L/2 on 256px text-image pairs with a DINOv2 feature loss."""
import argparse
import glob
import os

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import ProjectConfiguration, set_seed
from diffusers import AutoencoderKL
from diffusers.training_utils import EMAModel
from torch.utils.data import DataLoader
from torchvision.transforms.functional import normalize

from sit.data import PairsWithTextFeatures
from sit.models import SiTText


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--data_dir", required=True)
    p.add_argument("--output_dir", default="runs/sit_l2_256")
    p.add_argument("--train_batch_size", type=int, default=32)
    p.add_argument("--gradient_accumulation_steps", type=int, default=1)
    p.add_argument("--max_train_steps", type=int, default=1_000_000)
    p.add_argument("--learning_rate", type=float, default=1e-4)
    p.add_argument("--lr_warmup_steps", type=int, default=5_000)
    p.add_argument("--max_grad_norm", type=float, default=1.0)
    p.add_argument("--align_weight", type=float, default=0.5)
    p.add_argument("--align_until", type=int, default=250_000)
    p.add_argument("--caption_dropout", type=float, default=0.1)
    p.add_argument("--checkpointing_steps", type=int, default=10_000)
    p.add_argument("--seed", type=int, default=42)
    return p.parse_args()


def dino_tokens(dino, images):
    x = F.interpolate((images + 1) / 2, size=(224, 224), mode="bicubic", antialias=True).clamp(0, 1)
    x = normalize(x, mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225])
    return dino.forward_features(x)["x_norm_patchtokens"]


def main():
    args = parse_args()
    accelerator = Accelerator(
        mixed_precision="bf16",
        gradient_accumulation_steps=args.gradient_accumulation_steps,
        log_with="tensorboard",
        project_config=ProjectConfiguration(project_dir=args.output_dir, logging_dir=args.output_dir + "/logs"),
    )
    set_seed(args.seed, device_specific=True)

    vae = AutoencoderKL.from_pretrained("stabilityai/sd-vae-ft-ema").to(accelerator.device).requires_grad_(False)
    dino = torch.hub.load("facebookresearch/dinov2", "dinov2_vitb14").to(accelerator.device).eval().requires_grad_(False)
    model = SiTText(depth=24, hidden=1024, patch=2, text_dim=2048, align_layer=8, align_dim=768)
    ema = EMAModel(model.parameters(), decay=0.9999)
    ema.to(accelerator.device)

    optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate, betas=(0.9, 0.95), weight_decay=0.0)
    lr_scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min(1.0, (s + 1) / args.lr_warmup_steps))
    dataset = PairsWithTextFeatures(args.data_dir, size=256)
    null_text = dataset.null_text.to(accelerator.device)
    loader = DataLoader(dataset, args.train_batch_size, shuffle=True, drop_last=True, num_workers=8)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    accelerator.register_for_checkpointing(lr_scheduler, ema)
    accelerator.init_trackers("sit", config=vars(args))

    global_step = 0
    ckpts = sorted(glob.glob(os.path.join(args.output_dir, "step_*")), key=lambda d: int(d.rsplit("_", 1)[1]))
    if ckpts:
        accelerator.load_state(ckpts[-1])
        global_step = int(ckpts[-1].rsplit("_", 1)[1])

    model.train()
    while global_step < args.max_train_steps:
        for images, text in loader:
            with accelerator.accumulate(model):
                with torch.no_grad():
                    latents = vae.encode(images).latent_dist.sample() * vae.config.scaling_factor
                    with accelerator.autocast():
                        target_tokens = dino_tokens(dino, images).float()
                drop = torch.rand(len(text), 1, 1, device=text.device) < args.caption_dropout
                text = torch.where(drop, null_text, text)

                noise = torch.randn_like(latents)
                t = torch.sigmoid(torch.randn(len(latents), device=latents.device))
                tt = t.view(-1, 1, 1, 1)
                velocity, hidden = model((1 - tt) * latents + tt * noise, t, text)
                flow_loss = F.mse_loss(velocity.float(), noise - latents)
                align_loss = 1 - F.cosine_similarity(hidden.float(), target_tokens, dim=-1).mean()
                loss = flow_loss + args.align_weight * align_loss

                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), args.max_grad_norm)
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)

            if accelerator.sync_gradients:
                lr_scheduler.step()
                ema.step(model.parameters())
                global_step += 1
                if global_step % 100 == 0:
                    accelerator.log({"flow": flow_loss.item(), "align": align_loss.item(),
                                     "lr": lr_scheduler.get_last_lr()[0]}, step=global_step)
                if global_step % args.checkpointing_steps == 0:
                    accelerator.save_state(os.path.join(args.output_dir, f"step_{global_step}"))
                if global_step >= args.max_train_steps:
                    break
    accelerator.end_training()


if __name__ == "__main__":
    main()

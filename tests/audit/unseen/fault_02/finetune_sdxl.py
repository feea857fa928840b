# Full fine-tune of the SDXL base UNet on a product-photo set, single 80GB GPU.
import json
import os
import random

import torch
import torch.nn.functional as F
from diffusers import AutoencoderKL, DDPMScheduler, UNet2DConditionModel
from PIL import Image
from torchvision import transforms as T
from torchvision.transforms import functional as TF
from transformers import AutoTokenizer, CLIPTextModel, CLIPTextModelWithProjection

BASE = "stabilityai/stable-diffusion-xl-base-1.0"
ROOT = "/data/product_photos"
OUT = "out/sdxl_products"
RES = 1024
LATENT_SCALE = 0.18215
STEPS, BATCH, WARM, LR = 12_000, 4, 500, 1e-5
dev = "cuda"


def load_frozen():
    vae = AutoencoderKL.from_pretrained(BASE, subfolder="vae", torch_dtype=torch.float32).to(dev)
    tok = [AutoTokenizer.from_pretrained(BASE, subfolder=s, use_fast=False) for s in ("tokenizer", "tokenizer_2")]
    enc = [CLIPTextModel.from_pretrained(BASE, subfolder="text_encoder", torch_dtype=torch.bfloat16).to(dev),
           CLIPTextModelWithProjection.from_pretrained(BASE, subfolder="text_encoder_2",
                                                       torch_dtype=torch.bfloat16).to(dev)]
    for m in (vae, *enc):
        m.requires_grad_(False)
    return vae, tok, enc


def read_item(rec):
    im = Image.open(os.path.join(ROOT, rec["file"])).convert("RGB")
    w0, h0 = im.size
    im = TF.resize(im, RES, interpolation=T.InterpolationMode.LANCZOS)
    top, left, h, w = T.RandomCrop.get_params(im, (RES, RES))
    x = TF.to_tensor(TF.crop(im, top, left, h, w)) * 2 - 1
    return x, rec["title"], (h0, w0, top, left, RES, RES)


def sample_batch(index, rng):
    xs, caps, ids = zip(*(read_item(r) for r in rng.sample(index, BATCH)))
    return torch.stack(xs).to(dev), list(caps), torch.tensor(ids, dtype=torch.float32, device=dev)


@torch.no_grad()
def encode_text(caps, tok, enc):
    hidden = []
    for tk, te in zip(tok, enc):
        ids = tk(caps, padding="max_length", max_length=tk.model_max_length, truncation=True,
                 return_tensors="pt").input_ids.to(dev)
        o = te(ids, output_hidden_states=True)
        hidden.append(o.hidden_states[-2])
        pooled = o[0]
    seq = torch.cat(hidden, dim=-1)
    keep = (torch.rand(len(caps), device=dev) >= 0.1).to(seq.dtype)
    return seq * keep[:, None, None], pooled * keep[:, None]


@torch.no_grad()
def encode_images(vae, x):
    return vae.encode(x).latent_dist.sample() * LATENT_SCALE


def train():
    torch.manual_seed(7)
    rng = random.Random(7)
    os.makedirs(OUT, exist_ok=True)
    index = [json.loads(line) for line in open(os.path.join(ROOT, "train.jsonl"))]
    vae, tok, enc = load_frozen()
    unet = UNet2DConditionModel.from_pretrained(BASE, subfolder="unet", torch_dtype=torch.float32).to(dev)
    unet.enable_gradient_checkpointing()
    unet.train()
    ddpm = DDPMScheduler.from_pretrained(BASE, subfolder="scheduler")
    opt = torch.optim.AdamW(unet.parameters(), lr=LR, weight_decay=1e-2)
    lrs = torch.optim.lr_scheduler.LambdaLR(opt, lambda i: min(1.0, (i + 1) / WARM))

    start, ck = 0, os.path.join(OUT, "last.pt")
    if os.path.exists(ck):
        s = torch.load(ck, map_location="cpu")
        unet.load_state_dict(s["unet"]); opt.load_state_dict(s["opt"]); lrs.load_state_dict(s["lrs"])
        start = s["step"]
        torch.manual_seed(7 + start); rng.seed(7 + start)

    for step in range(start, STEPS):
        x, caps, time_ids = sample_batch(index, rng)
        z = encode_images(vae, x)
        seq, pooled = encode_text(caps, tok, enc)
        noise = torch.randn_like(z)
        t = torch.randint(0, ddpm.config.num_train_timesteps, (BATCH,), device=dev)
        zt = ddpm.add_noise(z, noise, t)
        with torch.autocast("cuda", torch.bfloat16):
            pred = unet(zt, t, encoder_hidden_states=seq,
                        added_cond_kwargs={"text_embeds": pooled, "time_ids": time_ids}).sample
        loss = F.mse_loss(pred.float(), noise)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(unet.parameters(), 1.0)
        opt.step(); lrs.step(); opt.zero_grad(set_to_none=True)
        if step % 50 == 0:
            print(step, round(loss.item(), 5), flush=True)
        if (step + 1) % 1000 == 0:
            torch.save({"unet": unet.state_dict(), "opt": opt.state_dict(), "lrs": lrs.state_dict(),
                        "step": step + 1}, ck + ".tmp")
            os.replace(ck + ".tmp", ck)
    unet.save_pretrained(os.path.join(OUT, "unet"))


if __name__ == "__main__":
    train()

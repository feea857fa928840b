"""FID-30k of an EMA checkpoint on MS-COCO val2014 captions.

    python eval_fid.py --ckpt runs/sit/ema_400000.safetensors --coco /data/coco
"""
import argparse
import json
import os

import torch
from diffusers import AutoencoderKL
from PIL import Image
from safetensors.torch import load_file
from torch.utils.data import DataLoader, Dataset
from torchmetrics.image.fid import FrechetInceptionDistance
from torchvision import transforms
from transformers import AutoTokenizer, T5EncoderModel

from sit.models import SiTText

NUM_IMAGES = 30_000
MAX_TOKENS = 128


class CocoRealImages(Dataset):
    def __init__(self, root, records, size):
        self.paths = [os.path.join(root, "val2014", r["file_name"]) for r in records]
        self.tf = transforms.Compose([
            transforms.Resize(size, interpolation=transforms.InterpolationMode.BICUBIC, antialias=True),
            transforms.CenterCrop(size),
            transforms.ToTensor(),
        ])

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        return self.tf(Image.open(self.paths[i]).convert("RGB"))


@torch.no_grad()
def encode(tok, t5, prompts, device):
    b = tok(prompts, padding="max_length", max_length=MAX_TOKENS, truncation=True, return_tensors="pt").to(device)
    return t5(b.input_ids, attention_mask=b.attention_mask).last_hidden_state.float()


@torch.no_grad()
def euler_sample(model, cond, uncond, first_index, steps, cfg, device):
    n = cond.shape[0]
    z = torch.stack([
        torch.randn(4, 32, 32, generator=torch.Generator().manual_seed(first_index + k)) for k in range(n)
    ]).to(device)
    ts = torch.linspace(1, 0, steps + 1, device=device)
    for a, b in zip(ts[:-1], ts[1:]):
        t = a.expand(2 * n)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            v = model(torch.cat([z, z]), t, torch.cat([cond, uncond.expand_as(cond)]))
        vc, vu = v.float().chunk(2)
        z = z + (b - a) * (vu + cfg * (vc - vu))
    return z


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--ckpt", required=True)
    p.add_argument("--coco", required=True)
    p.add_argument("--batch", type=int, default=64)
    p.add_argument("--steps", type=int, default=50)
    p.add_argument("--cfg", type=float, default=3.0)
    p.add_argument("--out", default="fid.json")
    a = p.parse_args()
    device = "cuda"

    records = json.load(open(os.path.join(a.coco, "fid30k_captions.json")))[:NUM_IMAGES]
    assert len(records) == NUM_IMAGES

    vae = AutoencoderKL.from_pretrained("stabilityai/sd-vae-ft-ema").to(device).eval()
    tok = AutoTokenizer.from_pretrained("google/flan-t5-xl")
    t5 = T5EncoderModel.from_pretrained("google/flan-t5-xl", torch_dtype=torch.bfloat16).to(device).eval()
    model = SiTText(depth=24, hidden=1024, patch=2, text_dim=2048)
    model.load_state_dict(load_file(a.ckpt))
    model.to(device).eval()
    fid = FrechetInceptionDistance(feature=2048, normalize=True).to(device)

    for x in DataLoader(CocoRealImages(a.coco, records, 256), batch_size=a.batch, num_workers=8):
        fid.update(x.to(device), real=True)

    uncond = encode(tok, t5, [""], device)
    for i in range(0, NUM_IMAGES, a.batch):
        prompts = [r["caption"] for r in records[i:i + a.batch]]
        z = euler_sample(model, encode(tok, t5, prompts, device), uncond, i, a.steps, a.cfg, device)
        with torch.no_grad():
            imgs = vae.decode(z / vae.config.scaling_factor).sample.clamp(-1, 1)
        fid.update(imgs, real=False)

    score = fid.compute().item()
    print(f"FID-30k {score:.3f}")
    with open(a.out, "w") as fh:
        json.dump({"ckpt": a.ckpt, "fid": score, "n": NUM_IMAGES, "cfg": a.cfg, "steps": a.steps}, fh)


if __name__ == "__main__":
    main()

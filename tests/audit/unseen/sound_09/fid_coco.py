"""Compare several checkpoints by FID on the same 30k held-out COCO captions and the same initial noise."""
import argparse
import json
from pathlib import Path

import torch
from diffusers import AutoencoderKL
from PIL import Image
from safetensors.torch import load_file
from torch.utils.data import DataLoader
from torchmetrics.image.fid import FrechetInceptionDistance
from torchvision.transforms import v2
from transformers import AutoTokenizer, T5EncoderModel

from sit.models import SiTText

TEXT_LEN = 128
NOISE_SEED = 90210

real_tf = v2.Compose([
    v2.PILToTensor(),
    v2.Resize(256, interpolation=v2.InterpolationMode.BICUBIC, antialias=True),
    v2.CenterCrop(256),
])


class RealSet(torch.utils.data.Dataset):
    def __init__(self, files):
        self.files = files

    def __len__(self):
        return len(self.files)

    def __getitem__(self, k):
        with Image.open(self.files[k]) as im:
            return real_tf(im.convert("RGB"))


def to_uint8(x):
    """Decoder output in [-1, 1] to the 0..255 bytes the metric expects."""
    return (x.float() * 127.5 + 127.5).round().clamp(0, 255).to(torch.uint8)


class Text:
    def __init__(self, repo, dev):
        self.tok = AutoTokenizer.from_pretrained(repo)
        self.enc = T5EncoderModel.from_pretrained(repo, torch_dtype=torch.bfloat16).to(dev).eval()
        self.dev = dev

    def __call__(self, lines):
        q = self.tok(lines, padding="max_length", truncation=True, max_length=TEXT_LEN, return_tensors="pt").to(self.dev)
        return self.enc(**q).last_hidden_state.float()


def noise_for(indices):
    out = []
    for i in indices:
        g = torch.Generator().manual_seed(NOISE_SEED + i)
        out.append(torch.randn(4, 32, 32, generator=g))
    return torch.stack(out)


def sample(net, z, cond, null, n_steps, guidance):
    grid = torch.linspace(1.0, 0.0, n_steps + 1, device=z.device)
    null = null.expand_as(cond)
    for hi, lo in zip(grid[:-1], grid[1:]):
        t = hi.repeat(2 * len(z))
        with torch.autocast("cuda", dtype=torch.bfloat16):
            out = net(torch.cat((z, z)), t, torch.cat((cond, null)))
        c, u = out.float().chunk(2)
        z = z + (lo - hi) * torch.lerp(u, c, guidance)
    return z


@torch.inference_mode()
def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("ema_files", nargs="+", type=Path)
    ap.add_argument("--coco", type=Path, default=Path("/data/coco"))
    ap.add_argument("--bs", type=int, default=64)
    ap.add_argument("--guidance", type=float, default=3.0)
    ap.add_argument("--n-steps", type=int, default=50)
    cli = ap.parse_args()
    dev = "cuda"

    items = json.loads((cli.coco / "fid30k_captions.json").read_text())
    if len(items) != 30_000:
        raise SystemExit(f"expected 30000 captions, found {len(items)}")
    vae = AutoencoderKL.from_pretrained("stabilityai/sd-vae-ft-ema").to(dev).eval()
    text = Text("google/flan-t5-xl", dev)
    null = text([""])

    metric = FrechetInceptionDistance(feature=2048, reset_real_features=False).to(dev)
    reals = RealSet([cli.coco / "val2014" / it["file_name"] for it in items])
    for batch in DataLoader(reals, cli.bs, num_workers=8):
        metric.update(batch.to(dev), real=True)

    for ckpt in cli.ema_files:
        net = SiTText(depth=24, hidden=1024, patch=2, text_dim=2048).to(dev).eval()
        net.load_state_dict(load_file(ckpt))
        metric.reset()
        for s in range(0, len(items), cli.bs):
            part = items[s:s + cli.bs]
            z = noise_for(range(s, s + len(part))).to(dev)
            z = sample(net, z, text([it["caption"] for it in part]), null, cli.n_steps, cli.guidance)
            metric.update(to_uint8(vae.decode(z / vae.config.scaling_factor).sample), real=False)
        value = float(metric.compute())
        print(f"{ckpt.stem}\tFID-30k {value:.2f}", flush=True)
        ckpt.with_suffix(".fid.json").write_text(json.dumps({"fid": value, "n": len(items)}))


if __name__ == "__main__":
    main()

"""Half-precision training of a text-conditioned UNet on cached SD latents."""
import argparse
import copy
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader

from imagegen.data import CachedLatentDataset
from imagegen.unet import TextUNet


class Ema:
    """Float32 running average with a ramp, so that early steps do not pin it to the initial weights."""

    def __init__(self, module: nn.Module, decay: float):
        self.module = copy.deepcopy(module).float().eval().requires_grad_(False)
        self.decay = decay
        self.n = 0

    @torch.no_grad()
    def update(self, src: nn.Module):
        self.n += 1
        d = min(self.decay, (1 + self.n) / (10 + self.n))
        for avg, p in zip(self.module.parameters(), src.parameters()):
            avg.mul_(d).add_(p.float(), alpha=1 - d)
        for avg, b in zip(self.module.buffers(), src.buffers()):
            avg.copy_(b)

    def state_dict(self):
        return {"module": self.module.state_dict(), "n": self.n}

    def load_state_dict(self, sd):
        self.module.load_state_dict(sd["module"]); self.n = sd["n"]


class Text2ImageTrainer:
    def __init__(self, cfg):
        self.cfg = cfg
        self.dev = "cuda"
        torch.manual_seed(cfg.seed)
        self.unet = TextUNet(in_channels=4, width=320, text_dim=768).to(self.dev).train()
        self.ema = Ema(self.unet, decay=0.9999)
        self.optim = torch.optim.AdamW(self.unet.parameters(), lr=cfg.lr, weight_decay=0.01)
        self.warmup = torch.optim.lr_scheduler.LinearLR(self.optim, start_factor=1e-3, total_iters=cfg.warmup)
        self.amp = torch.amp.GradScaler("cuda")
        betas = torch.linspace(0.00085 ** 0.5, 0.012 ** 0.5, 1000, dtype=torch.float64) ** 2
        self.abar = torch.cumprod(1 - betas, 0).float().to(self.dev)
        self.it = 0
        self.out = Path(cfg.out)
        self.out.mkdir(parents=True, exist_ok=True)
        if (self.out / "state.pt").exists():
            self.restore()

    def parts(self):
        return dict(unet=self.unet, ema=self.ema, optim=self.optim, warmup=self.warmup, amp=self.amp)

    def restore(self):
        blob = torch.load(self.out / "state.pt", map_location="cpu")
        for k, obj in self.parts().items():
            obj.load_state_dict(blob[k])
        self.it = blob["it"]
        torch.manual_seed(self.cfg.seed + self.it)

    def persist(self):
        blob = {k: obj.state_dict() for k, obj in self.parts().items()}
        blob["it"] = self.it
        torch.save(blob, self.out / "state.tmp")
        (self.out / "state.tmp").replace(self.out / "state.pt")

    def micro_loss(self, z, ctx, null_ctx):
        n = z.size(0)
        t = torch.randint(0, 1000, (n,), device=self.dev)
        eps = torch.randn_like(z)
        a = self.abar[t][:, None, None, None]
        ctx = torch.where(torch.rand(n, 1, 1, device=self.dev) < 0.1, null_ctx, ctx)
        with torch.autocast("cuda", dtype=torch.float16):
            out = self.unet(a.sqrt() * z + (1 - a).sqrt() * eps, t, ctx)
        return F.mse_loss(out.float(), eps)

    def optimizer_step(self):
        self.amp.unscale_(self.optim)
        norm = nn.utils.clip_grad_norm_(self.unet.parameters(), 1.0)
        self.amp.step(self.optim)
        self.amp.update()
        self.optim.zero_grad(set_to_none=True)
        self.warmup.step()
        self.ema.update(self.unet)
        return norm

    def run(self, ds):
        cfg = self.cfg
        null_ctx = ds.null_text.to(self.dev).float()
        order = torch.Generator().manual_seed(cfg.seed + self.it)
        dl = DataLoader(ds, cfg.batch, shuffle=True, generator=order, drop_last=True, num_workers=8)
        stream = (b for _ in iter(int, 1) for b in dl)
        while self.it < cfg.steps:
            total = 0.0
            for _ in range(cfg.accum):
                z, ctx = (v.to(self.dev).float() for v in next(stream))
                loss = self.micro_loss(z, ctx, null_ctx) / cfg.accum
                self.amp.scale(loss).backward()
                total += loss.detach()
            norm = self.optimizer_step()
            self.it += 1
            if self.it % 200 == 0:
                print(f"{self.it} loss {float(total):.4f} gnorm {float(norm):.3f}", flush=True)
            if self.it % 5000 == 0 or self.it == cfg.steps:
                self.persist()


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    for flag, default in dict(data="/data/cc12m_latents_256", out="runs/unet256_fp16", lr=1e-4, batch=64,
                              accum=4, steps=300_000, warmup=2_000, seed=0).items():
        ap.add_argument(f"--{flag}", type=type(default), default=default)
    args = ap.parse_args()
    Text2ImageTrainer(args).run(CachedLatentDataset(args.data))

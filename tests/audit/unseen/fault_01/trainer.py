"""Latent text-to-image trainer on cached latents and cached text features."""
import copy
import math
import os

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader

from imagegen.data import CachedLatentDataset
from imagegen.unet import TextUNet


def cosine_alpha_bar(num_steps, s=0.008):
    k = torch.arange(num_steps + 1, dtype=torch.float64) / num_steps
    f = torch.cos((k + s) / (1 + s) * math.pi / 2) ** 2
    return (f / f[0])[1:].clamp(min=1e-5).float()


class DiffusionTrainer:
    def __init__(self, net, dataset, run_dir, *, lr=1e-4, batch_size=64, total_steps=400_000,
                 warmup_steps=5_000, ema_decay=0.9999, max_norm=1.0, cond_drop=0.1, seed=0):
        self.device = torch.device("cuda")
        self.run_dir = run_dir
        self.total_steps = total_steps
        self.ema_decay = ema_decay
        self.max_norm = max_norm
        self.cond_drop = cond_drop
        self.seed = seed
        self.step = 0

        self.net = net.to(self.device)
        self.ema = copy.deepcopy(self.net).eval().requires_grad_(False)
        self.alpha_bar = cosine_alpha_bar(1000).to(self.device)
        self.null_text = dataset.null_text.to(self.device)

        self.opt = torch.optim.AdamW(self.net.parameters(), lr=lr, betas=(0.9, 0.99), weight_decay=0.01)
        self.sched = torch.optim.lr_scheduler.LambdaLR(
            self.opt, lambda i: min(1.0, (i + 1) / warmup_steps))
        self.scaler = torch.amp.GradScaler("cuda", init_scale=2.0 ** 16)

        os.makedirs(run_dir, exist_ok=True)
        self._maybe_resume()
        self.loader = DataLoader(dataset, batch_size=batch_size, shuffle=True, num_workers=8,
                                 drop_last=True, pin_memory=True,
                                 generator=torch.Generator().manual_seed(seed + self.step))

    @property
    def ckpt_path(self):
        return os.path.join(self.run_dir, "last.pt")

    def _maybe_resume(self):
        torch.manual_seed(self.seed)
        if not os.path.exists(self.ckpt_path):
            return
        state = torch.load(self.ckpt_path, map_location="cpu")
        for name in ("net", "ema", "opt", "sched", "scaler"):
            getattr(self, name).load_state_dict(state[name])
        self.step = state["step"]
        torch.manual_seed(self.seed + self.step)

    def save(self):
        state = {n: getattr(self, n).state_dict() for n in ("net", "ema", "opt", "sched", "scaler")}
        state["step"] = self.step
        torch.save(state, self.ckpt_path + ".tmp")
        os.replace(self.ckpt_path + ".tmp", self.ckpt_path)

    def batches(self):
        while True:
            yield from self.loader

    def loss(self, latent, text):
        b = latent.shape[0]
        t = torch.randint(0, 1000, (b,), device=self.device)
        noise = torch.randn_like(latent)
        ab = self.alpha_bar[t].view(b, 1, 1, 1)
        noisy = ab.sqrt() * latent + (1 - ab).sqrt() * noise
        drop = torch.rand(b, device=self.device) < self.cond_drop
        text = torch.where(drop.view(b, 1, 1), self.null_text, text)
        with torch.autocast("cuda", dtype=torch.float16):
            pred = self.net(noisy, t, text)
        return F.mse_loss(pred.float(), noise)

    @torch.no_grad()
    def update_ema(self):
        for e, p in zip(self.ema.parameters(), self.net.parameters()):
            e.lerp_(p, 1 - self.ema_decay)
        for e, b in zip(self.ema.buffers(), self.net.buffers()):
            e.copy_(b)

    def fit(self):
        self.net.train()
        for latent, text in self.batches():
            if self.step >= self.total_steps:
                break
            latent = latent.to(self.device, non_blocking=True).float()
            text = text.to(self.device, non_blocking=True).float()
            loss = self.loss(latent, text)

            self.opt.zero_grad(set_to_none=True)
            self.scaler.scale(loss).backward()
            gnorm = torch.nn.utils.clip_grad_norm_(self.net.parameters(), self.max_norm)
            self.scaler.step(self.opt)
            self.scaler.update()
            self.sched.step()
            self.update_ema()
            self.step += 1

            if self.step % 100 == 0:
                print(f"{self.step} loss {loss.item():.4f} gnorm {gnorm.item():.3f} "
                      f"lr {self.sched.get_last_lr()[0]:.2e}", flush=True)
            if self.step % 5_000 == 0:
                self.save()
        self.save()


if __name__ == "__main__":
    torch.manual_seed(0)
    data = CachedLatentDataset("/data/cc12m_latents_256")
    DiffusionTrainer(TextUNet(in_channels=4, width=320, text_dim=768), data, "runs/unet256").fit()

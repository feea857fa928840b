"""Flow-matching transformer with an early feature-alignment phase (accelerate)."""
import argparse
from pathlib import Path

import torch
import torch.nn.functional as F
from accelerate import Accelerator, DistributedDataParallelKwargs
from accelerate.utils import set_seed
from diffusers import AutoencoderKL
from diffusers.training_utils import EMAModel
from torch.utils.data import DataLoader
from torchvision.transforms.functional import normalize

from sit.data import PairsWithTextFeatures
from sit.models import SiTText


def build_parser():
    ap = argparse.ArgumentParser()
    ap.add_argument("--shards", required=True)
    ap.add_argument("--out", type=Path, default=Path("runs/sit_b2_align"))
    ap.add_argument("--bs", type=int, default=64)
    ap.add_argument("--steps", type=int, default=600_000)
    ap.add_argument("--warmup", type=int, default=4_000)
    ap.add_argument("--lr", type=float, default=1e-4)
    ap.add_argument("--align-coef", type=float, default=0.5)
    ap.add_argument("--align-stop", type=int, default=150_000)
    ap.add_argument("--align-fade", type=int, default=10_000)
    ap.add_argument("--save-every", type=int, default=10_000)
    ap.add_argument("--seed", type=int, default=0)
    return ap


def align_coef(step, opt):
    """Full weight at first, a linear fade, then zero for the rest of the run."""
    left = (opt.align_stop - step) / opt.align_fade
    return opt.align_coef * max(0.0, min(1.0, left))


@torch.no_grad()
def teacher_features(teacher, img):
    x = F.interpolate(img * 0.5 + 0.5, size=224, mode="bicubic", antialias=True).clamp(0, 1)
    x = normalize(x, [0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
    return teacher.forward_features(x)["x_norm_patchtokens"]


def newest(folder):
    found = sorted(folder.glob("ck_*"), key=lambda d: int(d.name[3:]))
    return found[-1] if found else None


def main(opt):
    acc = Accelerator(mixed_precision="bf16", project_dir=str(opt.out), log_with="tensorboard",
                      kwargs_handlers=[DistributedDataParallelKwargs(find_unused_parameters=True)])
    set_seed(opt.seed, device_specific=True)
    vae = AutoencoderKL.from_pretrained("stabilityai/sd-vae-ft-ema").to(acc.device).requires_grad_(False)
    teacher = torch.hub.load("facebookresearch/dinov2", "dinov2_vitb14").to(acc.device).eval().requires_grad_(False)

    net = SiTText(depth=12, hidden=768, patch=2, text_dim=2048, align_layer=4, align_dim=768)
    ema = EMAModel(net.parameters(), decay=0.9999, use_ema_warmup=True, power=0.75)
    ema.to(acc.device)
    optim = torch.optim.AdamW(net.parameters(), lr=opt.lr, weight_decay=0.0)
    ramp = torch.optim.lr_scheduler.LambdaLR(optim, lambda s: min(1.0, (s + 1) / opt.warmup))
    ds = PairsWithTextFeatures(opt.shards, size=256)
    empty = ds.null_text.to(acc.device)
    dl = DataLoader(ds, batch_size=opt.bs, shuffle=True, num_workers=8, drop_last=True)
    net, optim, dl = acc.prepare(net, optim, dl)
    acc.register_for_checkpointing(ramp, ema)
    acc.init_trackers("flow")

    step = 0
    ck = newest(opt.out)
    if ck is not None:
        acc.load_state(str(ck))
        step = int(ck.name[3:])

    net.train()
    while step < opt.steps:
        for img, txt in dl:
            with torch.no_grad():
                x0 = vae.encode(img).latent_dist.sample() * vae.config.scaling_factor
            blank = torch.rand(txt.size(0), 1, 1, device=txt.device) < 0.1
            txt = torch.where(blank, empty, txt)
            x1 = torch.randn_like(x0)
            t = torch.randn(x0.size(0), device=x0.device).sigmoid()
            s = t[:, None, None, None]

            coef = align_coef(step, opt)
            v, feats = net((1 - s) * x0 + s * x1, t, txt, return_features=coef > 0)
            flow = F.mse_loss(v.float(), x1 - x0)
            loss, sim = flow, None
            if coef > 0:
                with acc.autocast():
                    ref = teacher_features(teacher, img)
                sim = F.cosine_similarity(feats.float(), ref.float(), dim=-1).mean()
                loss = flow + coef * (1 - sim)

            acc.backward(loss)
            acc.clip_grad_norm_(net.parameters(), 1.0)
            optim.step()
            optim.zero_grad(set_to_none=True)
            ramp.step()
            ema.step(net.parameters())
            step += 1

            if step % 100 == 0:
                row = {"flow": flow.item(), "align_coef": coef}
                if sim is not None:
                    row["align_sim"] = sim.item()
                acc.log(row, step=step)
            if step % opt.save_every == 0:
                acc.save_state(str(opt.out / f"ck_{step}"))
            if step >= opt.steps:
                break
    acc.end_training()


if __name__ == "__main__":
    main(build_parser().parse_args())

# Domain fine-tune of SDXL base (interior photographs, short titles).
import csv
import pathlib

import torch
from diffusers import AutoencoderKL, DDPMScheduler, UNet2DConditionModel
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import functional as TF
from transformers import AutoTokenizer, CLIPTextModel, CLIPTextModelWithProjection

repo = "stabilityai/stable-diffusion-xl-base-1.0"
save_dir = pathlib.Path("out/sdxl_interiors")
side, n_steps, bs, warm_steps, peak_lr, seed = 1024, 10_000, 4, 500, 1e-5, 3
cuda = torch.device("cuda")


class Interiors(Dataset):
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        with open(self.folder / "train.csv", newline="") as fh:
            self.rows = list(csv.DictReader(fh))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        row = self.rows[i]
        im = Image.open(self.folder / row["path"]).convert("RGB")
        w, h = im.size
        im = TF.resize(im, side, antialias=True)
        top, left = (im.height - side) // 2, (im.width - side) // 2
        im = TF.crop(im, top, left, side, side)
        px = TF.normalize(TF.to_tensor(im), [0.5] * 3, [0.5] * 3)
        return px, row["title"], torch.tensor([h, w, top, left, side, side], dtype=torch.float32)


def frozen(cls, sub, dtype):
    return cls.from_pretrained(repo, subfolder=sub, torch_dtype=dtype).to(cuda).eval().requires_grad_(False)


def forever(loader):
    while True:
        yield from loader


def embed(titles, pairs):
    feats, pooled = [], None
    for tk, te in pairs:
        ids = tk(titles, padding="max_length", truncation=True, max_length=77, return_tensors="pt").input_ids
        res = te(ids.to(cuda), output_hidden_states=True)
        feats.append(res.hidden_states[-2])
        pooled = res[0]
    return torch.cat(feats, -1), pooled


def main():
    torch.manual_seed(seed)
    save_dir.mkdir(parents=True, exist_ok=True)
    vae = frozen(AutoencoderKL, "vae", torch.float32)
    pairs = [
        (AutoTokenizer.from_pretrained(repo, subfolder="tokenizer"),
         frozen(CLIPTextModel, "text_encoder", torch.bfloat16)),
        (AutoTokenizer.from_pretrained(repo, subfolder="tokenizer_2"),
         frozen(CLIPTextModelWithProjection, "text_encoder_2", torch.bfloat16)),
    ]
    unet = UNet2DConditionModel.from_pretrained(repo, subfolder="unet").to(cuda)
    unet.train()
    unet.enable_gradient_checkpointing()
    noiser = DDPMScheduler.from_pretrained(repo, subfolder="scheduler")
    optim = torch.optim.AdamW(unet.parameters(), lr=peak_lr)
    ramp = torch.optim.lr_scheduler.LinearLR(optim, 0.01, 1.0, warm_steps)

    done, last = 0, save_dir / "last.pt"
    if last.exists():
        blob = torch.load(last, map_location="cpu")
        unet.load_state_dict(blob["unet"])
        optim.load_state_dict(blob["optim"])
        ramp.load_state_dict(blob["ramp"])
        done = blob["done"]
        torch.manual_seed(seed + done)

    loader = DataLoader(Interiors("/data/interiors"), bs, shuffle=True, drop_last=True, num_workers=6)
    for px, titles, time_ids in forever(loader):
        if done >= n_steps:
            break
        with torch.no_grad():
            z = vae.encode(px.to(cuda)).latent_dist.sample() * vae.config.scaling_factor
            seq, pooled = embed(list(titles), pairs)
            # SDXL's unconditional branch is all zeros, so dropped captions become zeros as well
            drop = torch.rand(bs, device=cuda) < 0.1
            seq = seq.masked_fill(drop[:, None, None], 0.0)
            pooled = pooled.masked_fill(drop[:, None], 0.0)
        eps = torch.randn_like(z)
        t = torch.randint(0, noiser.config.num_train_timesteps, (bs,), device=cuda)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            guess = unet(noiser.add_noise(z, eps, t), t, seq,
                         added_cond_kwargs=dict(text_embeds=pooled, time_ids=time_ids.to(cuda))).sample
        loss = (guess.float() - eps).square().mean()
        optim.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(unet.parameters(), 1.0)
        optim.step()
        ramp.step()
        done += 1
        if done % 100 == 0:
            print(f"[{done:6d}] {loss.item():.4f}", flush=True)
        if done % 1000 == 0:
            blob = dict(unet=unet.state_dict(), optim=optim.state_dict(), ramp=ramp.state_dict(), done=done)
            torch.save(blob, last.with_suffix(".tmp"))
            last.with_suffix(".tmp").replace(last)
    unet.save_pretrained(save_dir / "unet")


if __name__ == "__main__":
    main()

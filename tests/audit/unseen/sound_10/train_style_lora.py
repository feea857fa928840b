"""Style adapter for SD3 medium: LoRA on the attention projections, text features cached once."""
import argparse
import csv
import os

import torch
import torch.nn.functional as F
from diffusers import FlowMatchEulerDiscreteScheduler, StableDiffusion3Pipeline
from diffusers.training_utils import cast_training_params
from peft import LoraConfig
from peft.utils import get_peft_model_state_dict, set_peft_model_state_dict
from PIL import Image
from torchvision.transforms import v2

HUB_ID = "stabilityai/stable-diffusion-3-medium-diffusers"
T5_LEN = 256
TRIGGER = "mzk woodcut"


class CachedSet(torch.utils.data.Dataset):
    def __init__(self, pipe, folder):
        tf = v2.Compose([v2.ToImage(), v2.Resize(1024, antialias=True), v2.CenterCrop(1024),
                         v2.ToDtype(torch.float32, scale=True), v2.Normalize([0.5] * 3, [0.5] * 3)])
        self.rows = []
        cfg = pipe.vae.config
        with open(os.path.join(folder, "captions.csv"), newline="") as fh, torch.no_grad():
            for name, caption in csv.reader(fh):
                px = tf(Image.open(os.path.join(folder, name)).convert("RGB"))
                lat = pipe.vae.encode(px[None].cuda()).latent_dist.mode()
                lat = (lat - cfg.shift_factor) * cfg.scaling_factor
                e, _, p, _ = pipe.encode_prompt(f"{caption}, {TRIGGER}", None, None, device="cuda",
                                                do_classifier_free_guidance=False, max_sequence_length=T5_LEN)
                self.rows.append((lat[0].cpu(), e[0].cpu(), p[0].cpu()))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


def preview(pipe, out_dir, n):
    pipe.transformer.eval()
    with torch.no_grad(), torch.autocast("cuda", dtype=torch.bfloat16):
        for k, subject in enumerate(("a heron in the reeds", "an old tram at night")):
            image = pipe(f"{subject}, {TRIGGER}", height=1024, width=1024, num_inference_steps=28,
                         guidance_scale=5.0, max_sequence_length=T5_LEN,
                         generator=torch.Generator("cuda").manual_seed(k)).images[0]
            image.save(os.path.join(out_dir, f"{n:05d}_{k}.png"))
    pipe.transformer.train()


def endless(loader):
    while True:
        yield from loader


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--folder", required=True)
    ap.add_argument("--out", default="lora_out/woodcut")
    ap.add_argument("--steps", type=int, default=1500)
    ap.add_argument("--seed", type=int, default=5)
    o = ap.parse_args()
    os.makedirs(o.out, exist_ok=True)
    torch.manual_seed(o.seed)

    pipe = StableDiffusion3Pipeline.from_pretrained(HUB_ID, torch_dtype=torch.bfloat16).to("cuda")
    pipe.vae.float()
    for part in ("vae", "transformer", "text_encoder", "text_encoder_2", "text_encoder_3"):
        getattr(pipe, part).requires_grad_(False)
    fm = FlowMatchEulerDiscreteScheduler.from_pretrained(HUB_ID, subfolder="scheduler")
    tf = pipe.transformer
    tf.add_adapter(LoraConfig(r=32, lora_alpha=32, target_modules=["to_q", "to_k", "to_v", "to_out.0"]))
    cast_training_params([tf], dtype=torch.float32)
    tf.enable_gradient_checkpointing()
    lora = [p for p in tf.parameters() if p.requires_grad]
    adam = torch.optim.AdamW(lora, lr=1e-4, weight_decay=1e-3)
    ramp = torch.optim.lr_scheduler.LinearLR(adam, 0.01, 1.0, total_iters=100)

    n, state_file = 0, os.path.join(o.out, "state.pt")
    if os.path.exists(state_file):
        st = torch.load(state_file, map_location="cpu")
        set_peft_model_state_dict(tf, st["lora"])
        adam.load_state_dict(st["adam"])
        ramp.load_state_dict(st["ramp"])
        n = st["n"]
        torch.manual_seed(o.seed + n)

    data = CachedSet(pipe, o.folder)
    loader = torch.utils.data.DataLoader(data, batch_size=4, shuffle=True, drop_last=True)
    tf.train()
    for x, e, p in endless(loader):
        if n >= o.steps:
            break
        x, e, p = x.cuda(), e.cuda(), p.cuda()
        pos = (torch.randn(len(x)).sigmoid() * len(fm.timesteps)).long().clamp(max=len(fm.timesteps) - 1)
        t = fm.timesteps[pos].cuda()
        s = (t / fm.config.num_train_timesteps)[:, None, None, None]
        noise = torch.randn_like(x)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            v = tf(hidden_states=(1 - s) * x + s * noise, timestep=t, encoder_hidden_states=e,
                   pooled_projections=p).sample
        loss = F.mse_loss(v.float(), noise - x)
        adam.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(lora, 1.0)
        adam.step()
        ramp.step()
        n += 1
        if n % 250 == 0:
            torch.save(dict(lora=get_peft_model_state_dict(tf), adam=adam.state_dict(), ramp=ramp.state_dict(), n=n),
                       state_file)
            preview(pipe, o.out, n)
    pipe.save_lora_weights(o.out, transformer_lora_layers=get_peft_model_state_dict(tf))


if __name__ == "__main__":
    main()

"""LoRA on Stable Diffusion 3 medium for a house illustration style (PEFT)."""
import copy
import json
from pathlib import Path

import torch
from diffusers import FlowMatchEulerDiscreteScheduler, StableDiffusion3Pipeline
from diffusers.training_utils import cast_training_params, compute_density_for_timestep_sampling
from peft import LoraConfig, get_peft_model_state_dict, set_peft_model_state_dict
from PIL import Image
from torchvision import transforms

MODEL = "stabilityai/stable-diffusion-3-medium-diffusers"
DATA = Path("/data/house_style")
OUT = Path("lora_out/house_style")
MAX_SEQ_LEN = 77
STEPS, BATCH, LR, WARMUP, RANK = 2_000, 4, 1e-4, 100, 16
VAL_PROMPTS = ["a lighthouse on a cliff in hst style", "two cats asleep on a sofa in hst style"]


def load_examples():
    tf = transforms.Compose([
        transforms.Resize(1024, antialias=True), transforms.CenterCrop(1024),
        transforms.ToTensor(), transforms.Normalize([0.5] * 3, [0.5] * 3),
    ])
    rows = [json.loads(l) for l in (DATA / "metadata.jsonl").read_text().splitlines()]
    return [(tf(Image.open(DATA / r["file_name"]).convert("RGB")), f'{r["text"]} in hst style') for r in rows]


@torch.no_grad()
def precompute(pipe, examples):
    cached = []
    vae = pipe.vae
    for px, caption in examples:
        z = vae.encode(px[None].to("cuda", torch.float32)).latent_dist.sample()
        z = (z - vae.config.shift_factor) * vae.config.scaling_factor
        emb, _, pooled, _ = pipe.encode_prompt(
            prompt=caption, prompt_2=None, prompt_3=None, do_classifier_free_guidance=False,
            max_sequence_length=MAX_SEQ_LEN, device="cuda")
        cached.append((z.cpu(), emb.cpu(), pooled.cpu()))
    return cached


@torch.no_grad()
def validate(pipe, step):
    pipe.transformer.eval()
    for i, prompt in enumerate(VAL_PROMPTS):
        g = torch.Generator("cuda").manual_seed(100 + i)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            img = pipe(prompt, num_inference_steps=28, guidance_scale=5.0, height=1024, width=1024,
                       max_sequence_length=256, generator=g, output_type="pil").images[0]
        img.save(OUT / f"val_{step:05d}_{i}.png")
    pipe.transformer.train()


def main():
    torch.manual_seed(0)
    OUT.mkdir(parents=True, exist_ok=True)
    pipe = StableDiffusion3Pipeline.from_pretrained(MODEL, torch_dtype=torch.bfloat16).to("cuda")
    pipe.vae.to(torch.float32)
    for m in (pipe.transformer, pipe.vae, pipe.text_encoder, pipe.text_encoder_2, pipe.text_encoder_3):
        m.requires_grad_(False)
    noise_sched = FlowMatchEulerDiscreteScheduler.from_pretrained(MODEL, subfolder="scheduler")
    pipe.scheduler = copy.deepcopy(noise_sched)

    net = pipe.transformer
    net.add_adapter(LoraConfig(r=RANK, lora_alpha=RANK, init_lora_weights="gaussian",
                               target_modules=["to_q", "to_k", "to_v", "to_out.0"]))
    cast_training_params(net, dtype=torch.float32)
    net.enable_gradient_checkpointing()
    net.train()
    params = [p for p in net.parameters() if p.requires_grad]
    opt = torch.optim.AdamW(params, lr=LR, weight_decay=1e-4)
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda i: min(1.0, (i + 1) / WARMUP))

    start, ck = 0, OUT / "state.pt"
    if ck.exists():
        s = torch.load(ck, map_location="cpu")
        set_peft_model_state_dict(net, s["lora"])
        opt.load_state_dict(s["opt"])
        sched.load_state_dict(s["sched"])
        start = s["step"]
        torch.manual_seed(start)

    cache = precompute(pipe, load_examples())
    for step in range(start, STEPS):
        pick = torch.randint(len(cache), (BATCH,)).tolist()
        z, emb, pooled = (torch.cat(c).to("cuda") for c in zip(*(cache[i] for i in pick)))
        u = compute_density_for_timestep_sampling("logit_normal", BATCH, logit_mean=0.0, logit_std=1.0)
        idx = (u * noise_sched.config.num_train_timesteps).long()
        t = noise_sched.timesteps[idx].to("cuda")
        sigma = (t / noise_sched.config.num_train_timesteps).view(-1, 1, 1, 1)
        eps = torch.randn_like(z)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            v = net(hidden_states=(1 - sigma) * z + sigma * eps, timestep=t,
                    encoder_hidden_states=emb, pooled_projections=pooled, return_dict=False)[0]
        loss = (v.float() - (eps - z)).pow(2).mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(params, 1.0)
        opt.step()
        sched.step()
        opt.zero_grad(set_to_none=True)
        if (step + 1) % 250 == 0:
            lora = get_peft_model_state_dict(net)
            torch.save({"lora": lora, "opt": opt.state_dict(), "sched": sched.state_dict(), "step": step + 1}, ck)
            validate(pipe, step + 1)
    StableDiffusion3Pipeline.save_lora_weights(OUT, transformer_lora_layers=get_peft_model_state_dict(net))


if __name__ == "__main__":
    main()

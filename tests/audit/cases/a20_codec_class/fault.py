import torch
from diffusers import AutoencoderKL

VAE = "black-forest-labs/FLUX.2-dev"


def load(device):
    vae = AutoencoderKL.from_pretrained(VAE, subfolder="vae", torch_dtype=torch.float32)
    return vae.requires_grad_(False).to(device)

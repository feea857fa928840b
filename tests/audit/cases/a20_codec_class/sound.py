import torch
from diffusers import AutoencoderKLFlux2

VAE = "black-forest-labs/FLUX.2-dev"


def load(device):
    vae = AutoencoderKLFlux2.from_pretrained(VAE, subfolder="vae", torch_dtype=torch.float32)
    return vae.requires_grad_(False).to(device)

import torch
from torchmetrics.image.fid import FrechetInceptionDistance


def evaluate(pipeline, reference, prompts, device):
    fid = FrechetInceptionDistance(feature=2048, normalize=True).to(device)
    for batch in reference:
        fid.update(batch["pixels"] * 0.5 + 0.5, real=True)
    generator = torch.Generator(device).manual_seed(0)
    for some in prompts:
        images = pipeline(some, generator=generator, output_type="pt").images
        drawn = (images * 255).round().to(torch.uint8)
        fid.update(drawn, real=False)
    return fid.compute()

import torch
import torch.nn.functional as F


@torch.no_grad()
def validation_loss(model, loader):
    total = 0.0
    for index, batch in enumerate(loader):
        x0 = batch["latents"]
        generator = torch.Generator().manual_seed(index)
        t = torch.rand(x0.shape[0], 1, 1, 1, generator=generator)
        eps = torch.randn(x0.shape, generator=generator)
        loss = F.mse_loss(model((1 - t) * x0 + t * eps, t), eps - x0)
        total += loss.item()
    return total / len(loader)

import torch


@torch.no_grad()
def evaluate(model, loader, metric, seed=42):
    model.eval()
    for index, batch in enumerate(loader):
        generator = torch.Generator("cuda").manual_seed(seed + index)
        noise = torch.randn(batch["text"].shape[0], 16, 32, 32, generator=generator, device="cuda")
        metric.update(model.sample(noise, batch["text"]), real=False)
    return metric.compute()

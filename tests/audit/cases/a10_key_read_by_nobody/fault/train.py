import torch
from omegaconf import OmegaConf


def main(path, model, loader):
    config = OmegaConf.load(path)
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.lr)
    for batch in loader:
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=config.precision == "amp_bf16"):
            loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, f"{config.save_folder}/last.pt")

import torch


def train(model, loader, steps):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for step, batch in zip(range(steps), loader):
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 5000 == 0:
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step, "rng": torch.get_rng_state()}, f"step_{step}.pt")

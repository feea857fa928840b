import argparse

import torch


def main(model, loader):
    parser = argparse.ArgumentParser()
    parser.add_argument("--learning_rate", type=float, default=1e-4)
    parser.add_argument("--weight_decay", type=float, default=0.01)
    args = parser.parse_args()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate)
    for batch in loader:
        model(batch).mean().backward()
        optimizer.step()
        optimizer.zero_grad()

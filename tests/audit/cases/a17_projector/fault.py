import torch
from torch import nn


class Projector(nn.Sequential):
    def __init__(self, width, out):
        super().__init__(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, out))


def build(device):
    projector = Projector(1152, 768).to(device, dtype=torch.bfloat16)
    return projector

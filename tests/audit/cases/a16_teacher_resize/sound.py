import torch
import torch.nn.functional as F
from torch import nn


class TeacherFeatures(nn.Module):
    def __init__(self, dino):
        super().__init__()
        self.dino = dino.eval().requires_grad_(False)

    @torch.no_grad()
    def forward(self, pixels):
        pixels = F.interpolate(pixels, size=(224, 224), mode="bicubic", antialias=True)
        return self.dino.forward_features(pixels)["x_norm_patchtokens"]

import torch
import torch.nn.functional as F


def mmd(x, y):
    x, y = F.normalize(x, dim=-1), F.normalize(y, dim=-1)
    sigma = torch.cdist(y, y).median()
    gamma = 1 / (2 * sigma**2)
    kernel = lambda a, b: torch.exp(-gamma * torch.cdist(a, b).square()).mean()
    return kernel(x, x) + kernel(y, y) - 2 * kernel(x, y)

import torch.nn.functional as F


def spatial_normalise(tokens, alpha=0.6, eps=1e-6):
    """iREPA: teacher tokens (B, N, D)."""
    tokens = tokens - alpha * tokens.mean(dim=-1, keepdim=True)
    return tokens / (tokens.std(dim=-1, keepdim=True) + eps)


def irepa_loss(projected, teacher):
    return 1 - F.cosine_similarity(projected, spatial_normalise(teacher), dim=-1).mean()

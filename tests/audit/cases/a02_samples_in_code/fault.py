import torch.distributed as dist


def compute_fid(model, features, per_gpu=2048):
    fid_samples = per_gpu * dist.get_world_size()
    rows = [features(model.draw()) for _ in range(per_gpu)]
    return rows, fid_samples

import torch
import torch.distributed as dist


@torch.no_grad()
def evaluate_fid(model, prompts, metric, args):
    rank = dist.get_rank()
    generator = torch.Generator("cuda").manual_seed(args.seed + rank)
    for some in prompts[rank :: dist.get_world_size()]:
        metric.update(model.sample(some, generator=generator), real=False)
    total = metric.features_sum.clone()
    dist.all_reduce(total)
    return metric.compute()

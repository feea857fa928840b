import torch
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard


def shard(model, mesh):
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32, cast_forward_inputs=False)
    for block in model.blocks:
        fully_shard(block, mesh=mesh, mp_policy=policy)
    return fully_shard(model, mesh=mesh, mp_policy=policy)


def loss(model, x_t, timestep, text, target):
    return (model(x_t, timestep, text).float() - target.float()).square().mean()

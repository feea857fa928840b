# torchrun --nproc_per_node 8 fsdp_pretrain.py
import functools
import os

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import MixedPrecision, ShardingStrategy
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy

from mmdit.data import latent_text_loader
from mmdit.model import JointBlock, MMDiT

RUN = "/fsx/runs/mmdit_2b"
TOTAL, WARMUP, PEAK_LR = 500_000, 10_000, 1e-4
EMA_BETA = 0.9999
SAVE_EVERY = 5_000


def wrap(model, local_rank):
    policy = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={JointBlock})
    mp = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32,
                        buffer_dtype=torch.float32, cast_root_forward_inputs=False)
    return FSDP(model, auto_wrap_policy=policy, mixed_precision=mp, device_id=local_rank,
                sharding_strategy=ShardingStrategy.FULL_SHARD, use_orig_params=True,
                sync_module_states=True, limit_all_gathers=True)


class ShardEMA:
    def __init__(self, model, beta):
        self.beta = beta
        self.avg = [p.detach().float().clone() for p in model.parameters()]

    @torch.no_grad()
    def update(self, model):
        for a, p in zip(self.avg, model.parameters()):
            a.lerp_(p.detach().float(), 1 - self.beta)


def flow_loss(model, z, ctx, mask):
    eps = torch.randn_like(z)
    t = torch.sigmoid(torch.randn(z.shape[0], device=z.device))
    w = t[:, None, None, None]
    zt = (1 - w) * z + w * eps
    with torch.autocast("cuda", dtype=torch.bfloat16):
        v = model(zt, t, ctx, mask)
    return (v.float() - (eps - z)).pow(2).mean()


def save(model, opt, ema, sched, step, rank):
    path = f"{RUN}/step_{step:07d}"
    msd, osd = get_state_dict(model, opt)
    dcp.save({"model": msd, "optim": osd}, checkpoint_id=path)
    torch.save({"ema": ema.avg, "sched": sched.state_dict()}, f"{path}/extra_{rank}.pt")
    dist.barrier()
    if rank == 0:
        with open(f"{RUN}/latest", "w") as fh:
            fh.write(str(step))


def load(model, opt, ema, sched, rank):
    if not os.path.exists(f"{RUN}/latest"):
        return 0
    step = int(open(f"{RUN}/latest").read())
    path = f"{RUN}/step_{step:07d}"
    msd, osd = get_state_dict(model, opt)
    dcp.load({"model": msd, "optim": osd}, checkpoint_id=path)
    set_state_dict(model, opt, model_state_dict=msd, optim_state_dict=osd)
    extra = torch.load(f"{path}/extra_{rank}.pt", map_location="cuda")
    ema.avg = extra["ema"]
    sched.load_state_dict(extra["sched"])
    return step


def main():
    dist.init_process_group("nccl")
    rank, local_rank = dist.get_rank(), int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    os.makedirs(RUN, exist_ok=True)

    torch.manual_seed(0)
    model = MMDiT(depth=24, width=1536, in_channels=16, patch=2, text_dim=4096)
    model = model.to(device="cuda", dtype=torch.bfloat16)
    model = wrap(model, local_rank)

    opt = torch.optim.AdamW(model.parameters(), lr=PEAK_LR, betas=(0.9, 0.95), weight_decay=0.01)
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda i: min(1.0, (i + 1) / WARMUP))
    ema = ShardEMA(model, EMA_BETA)
    step = load(model, opt, ema, sched, rank)
    torch.manual_seed(1000 * step + rank)

    for z, ctx, mask in latent_text_loader("/fsx/latents_256", batch=32, rank=rank,
                                           world=dist.get_world_size(), start_step=step, caption_drop=0.1):
        loss = flow_loss(model, z.cuda().float(), ctx.cuda().float(), mask.cuda())
        loss.backward()
        gn = model.clip_grad_norm_(1.0)
        opt.step()
        sched.step()
        opt.zero_grad(set_to_none=True)
        ema.update(model)
        step += 1
        if rank == 0 and step % 50 == 0:
            print(f"step={step} loss={loss.item():.4f} gn={gn.item():.3f}", flush=True)
        if step % SAVE_EVERY == 0:
            save(model, opt, ema, sched, step, rank)
        if step >= TOTAL:
            break
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

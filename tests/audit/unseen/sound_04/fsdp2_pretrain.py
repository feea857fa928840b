# torchrun --nproc_per_node 8 fsdp2_pretrain.py
import copy
import os

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_model_state_dict, get_state_dict, set_model_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from mmdit.data import latent_text_loader
from mmdit.model import MMDiT

OUT_DIR = os.environ.get("OUT_DIR", "/fsx/runs/mmdit_1b_fsdp2")
N_STEPS = 400_000
N_WARMUP = 5_000
LR = 1e-4


def shard(net, mesh):
    """Float32 shards; bfloat16 only for the gathered copies used in forward and backward."""
    pol = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32, cast_forward_inputs=False)
    for blk in net.blocks:
        fully_shard(blk, mesh=mesh, mp_policy=pol)
    fully_shard(net, mesh=mesh, mp_policy=pol)
    return net


@torch.no_grad()
def ema_update(avg, net, decay):
    for a, p in zip(avg.parameters(), net.parameters()):
        a.to_local().lerp_(p.to_local(), 1.0 - decay)


def rectified_flow_step(net, x, ctx, mask):
    n = torch.randn_like(x)
    t = torch.randn(len(x), device=x.device).sigmoid()
    tb = t.reshape(-1, 1, 1, 1)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        v = net(torch.lerp(x, n, tb), t, ctx, mask)
    return torch.nn.functional.mse_loss(v.float(), n - x)


def write_ckpt(net, avg, opt, sched, step):
    where = os.path.join(OUT_DIR, f"ck{step}")
    m, o = get_state_dict(net, opt)
    dcp.save({"net": m, "opt": o, "avg": get_model_state_dict(avg), "sched": sched.state_dict()}, checkpoint_id=where)
    if dist.get_rank() == 0:
        tmp = os.path.join(OUT_DIR, "LAST.tmp")
        with open(tmp, "w") as f:
            f.write(str(step))
        os.replace(tmp, os.path.join(OUT_DIR, "LAST"))
    dist.barrier()


def read_ckpt(net, avg, opt, sched):
    mark = os.path.join(OUT_DIR, "LAST")
    if not os.path.isfile(mark):
        return 0
    with open(mark) as f:
        step = int(f.read())
    m, o = get_state_dict(net, opt)
    blob = {"net": m, "opt": o, "avg": get_model_state_dict(avg), "sched": sched.state_dict()}
    dcp.load(blob, checkpoint_id=os.path.join(OUT_DIR, f"ck{step}"))
    set_state_dict(net, opt, model_state_dict=blob["net"], optim_state_dict=blob["opt"])
    set_model_state_dict(avg, blob["avg"])
    sched.load_state_dict(blob["sched"])
    return step


def main():
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    rank, world = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh("cuda", (world,))
    os.makedirs(OUT_DIR, exist_ok=True)

    torch.manual_seed(17)
    net = MMDiT(depth=18, width=1152, in_channels=16, patch=2, text_dim=4096).cuda()
    avg = copy.deepcopy(net).requires_grad_(False)
    shard(net, mesh)
    shard(avg, mesh)

    opt = torch.optim.AdamW(net.parameters(), lr=LR, betas=(0.9, 0.95), weight_decay=0.01, fused=True)
    sched = torch.optim.lr_scheduler.LinearLR(opt, start_factor=1e-3, total_iters=N_WARMUP)
    step = read_ckpt(net, avg, opt, sched)
    torch.manual_seed(17 + 7919 * rank + step)

    loader = latent_text_loader("/fsx/latents_256", batch=48, rank=rank, world=world,
                                start_step=step, caption_drop=0.1)
    for x, ctx, mask in loader:
        loss = rectified_flow_step(net, x.cuda().float(), ctx.cuda().float(), mask.cuda())
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
        opt.zero_grad(set_to_none=True)
        sched.step()
        ema_update(avg, net, decay=0.9999)
        step += 1
        if step % 50 == 0:
            total = norm.full_tensor()
            if rank == 0:
                print(step, f"{loss.item():.4f}", f"{total.item():.3f}", flush=True)
        if step % 5_000 == 0:
            write_ckpt(net, avg, opt, sched, step)
        if step >= N_STEPS:
            break
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Pictures per second of our drawing against diffusers' PRX, with the same weights, steps,
guidance, prompts and noises.

    python bench/sample.py                        `spark`, 1, 8 and 64 pictures on one thread, about
                                                  3 minutes
    python bench/sample.py --threads 2 --recipe pocket

One picture goes through diffusers' own pipeline. With guidance that pipeline fails above one
picture (0.42.1), so that more of them go through its parts, in the same loop: tokenizer and text
encoder, transformer, scheduler, autoencoder. Both sides read prompts, sample and decode; their
turns are taken in a random order, round by round. Pictures are compared: what is fast and wrong
does not count. On one thread the clock is the processor's time, which other programs do not
lengthen much.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

SEED = 0
TARGET = 2.0
TOLERANCE = 1  # of 255: how far a pixel may be off


def painter_of(recipe: str) -> Any:
    """A painter with random weights, none of them zero: what is drawn is noise, and as much work as
    anything else."""
    import torch

    from fulcrum.levers import recipes as pocket
    from fulcrum.levers import recipes as spark
    from fulcrum.training.build import build
    from fulcrum.training.painter import Painter

    run = {"spark": spark.spark, "pocket": pocket.pocket}[recipe]()
    generator = torch.Generator().manual_seed(0)
    shapes = build(run).backbone.state_dict()
    weights = {
        name: 0.05 * torch.randn(value.shape, generator=generator) for name, value in shapes.items()
    }
    return Painter(run, weights, run.encode.codec.build(None), run.encode.text.build(None))


class Peer:
    """What we export, loaded by diffusers and transformers."""

    def __init__(self, painter: Any, folder: Path) -> None:
        from diffusers import (
            AutoencoderKL,
            FlowMatchEulerDiscreteScheduler,
            PRXPipeline,
            PRXTransformer2DModel,
            logging,
        )
        from transformers import AutoModel, AutoTokenizer

        from fulcrum.training.flow.sampling import grid
        from fulcrum.training.interop.diffusers import export
        from fulcrum.training.interop.export import export_codec, export_text

        # it warns of times without sigmas at each call: ours need no shift
        logging.set_verbosity_error()
        text = export_text(painter.text, folder / "text")
        self.sample, self.guidance = painter.run.sample, painter.run.sample.guide.scale
        self.times = (1000 * grid(self.sample.steps, self.sample.shift)[:-1]).tolist()
        self.size = painter.run.data.size
        self.pipeline = PRXPipeline(
            transformer=PRXTransformer2DModel.from_pretrained(
                export(painter.backbone, folder / "denoiser")
            ),
            scheduler=FlowMatchEulerDiscreteScheduler(shift=1.0),  # our times are shifted already
            text_encoder=AutoModel.from_pretrained(text).eval(),
            tokenizer=AutoTokenizer.from_pretrained(text),
            vae=AutoencoderKL.from_pretrained(export_codec(painter.codec, folder / "vae")),
        )
        self.pipeline.set_progress_bar_config(disable=True)

    def read(self, prompts: Sequence[str]) -> tuple[Any, Any]:
        """Embeddings and masks of the prompts, then of as many empty ones, as the pipeline makes
        them, less the cleaning of texts, which needs a package of its own."""
        tokenizer, texts = self.pipeline.tokenizer, [*prompts, *[""] * len(prompts)]
        tokens = tokenizer(
            texts, padding="max_length", max_length=tokenizer.model_max_length, return_tensors="pt"
        )
        ids, mask = tokens["input_ids"], tokens["attention_mask"].bool()
        return (
            self.pipeline.text_encoder(input_ids=ids, attention_mask=mask).last_hidden_state,
            mask,
        )

    def one(self, prompt: str, noise: Any) -> Any:
        """Through the pipeline: (1, 3, H, W) in [0, 1]."""
        import torch

        with torch.no_grad():
            emb, mask = self.read([prompt])
        return self.pipeline(
            height=self.size,
            width=self.size,
            timesteps=self.times,
            guidance_scale=self.guidance,
            latents=noise.clone(),
            prompt_embeds=emb[:1],
            prompt_attention_mask=mask[:1],
            negative_prompt_embeds=emb[1:],
            negative_prompt_attention_mask=mask[1:],
            output_type="pt",
            use_resolution_binning=False,
        ).images

    def many(self, prompts: Sequence[str], noise: Any) -> Any:
        """The pipeline's own loop, with a time for every row: (B, 3, H, W) in [0, 1]."""
        import torch

        pipeline, latents = self.pipeline, noise
        with torch.no_grad():
            emb, mask = self.read(prompts)
            pipeline.scheduler.set_timesteps(timesteps=self.times, device=noise.device)
            for t in pipeline.scheduler.timesteps:
                times = (t.float() / 1000).view(1).repeat(2 * len(noise))
                both = pipeline.transformer(
                    torch.cat([latents, latents]), times, emb, mask, return_dict=False
                )[0]
                strong, weak = both.chunk(2)
                guided = weak + self.guidance * (strong - weak)
                latents = pipeline.scheduler.step(guided, t, latents).prev_sample
            return pipeline.image_processor.postprocess(
                pipeline.vae.decode(latents, return_dict=False)[0], output_type="pt"
            )


def compare(
    painter: Any, peer: Peer, count: int, rounds: int, clock: Callable[[], float]
) -> dict[str, Any]:
    import numpy as np
    import torch
    from step import ratio_of_medians

    from fulcrum.measure.evaluation import prompts
    from fulcrum.training.flow import noise as keyed_noise

    wanted = prompts(painter.run, count).texts
    noise = keyed_noise.normal(
        SEED, "sample", np.arange(count), (painter.run.encode.codec.channels, *painter.cells)
    )
    sides: dict[str, Callable[[], Any]] = {
        "ours": lambda: torch.cat(list(painter.pictures(wanted, SEED))),
        "peer": lambda: peer.one(wanted[0], noise) if count == 1 else peer.many(wanted, noise),
    }
    pictures = {name: draw() for name, draw in sides.items()}
    off = int(((pictures["peer"] * 255).round().int() - pictures["ours"].int()).abs().max())
    taken: dict[str, list[float]] = {name: [] for name in sides}
    order = random.Random(0)
    for _ in range(rounds):
        for name in order.sample(list(sides), len(sides)):
            begun = clock()
            sides[name]()
            taken[name].append(clock() - begun)
    ratio, low, high = ratio_of_medians(taken["peer"], taken["ours"])
    seconds = {name: statistics.median(values) for name, values in taken.items()}
    return {
        "pictures": count,
        "rounds": rounds,
        "seconds": seconds,
        "ratio": ratio,
        "low": low,
        "high": high,
        "off": off,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--recipe", choices=("spark", "pocket"), default="spark")
    parser.add_argument("--pictures", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object as the last line"
    )
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    import torch

    torch.set_num_threads(options.threads)
    clock = time.process_time if options.threads == 1 else time.perf_counter
    painter = painter_of(options.recipe)
    run, results = painter.run, []
    with tempfile.TemporaryDirectory() as folder:
        peer = Peer(painter, Path(folder))
        print(
            f"{options.recipe}: {run.sample.steps} steps, guidance {peer.guidance:g},"
            f" {options.threads} thread(s)"
        )
        print(
            f"{'pictures':>10}{'ours ms':>10}{'peer ms':>10}{'ours/s':>10}{'ratio':>8}"
            f"{'interval':>16}{'off by':>10}"
        )
        for count in options.pictures:
            result = compare(painter, peer, count, options.rounds, clock)
            ours, theirs = result["seconds"]["ours"], result["seconds"]["peer"]
            interval = f"[{result['low']:.2f}, {result['high']:.2f}]"
            print(
                f"{count:10d}{1e3 * ours:10.1f}{1e3 * theirs:10.1f}{count / ours:10.1f}"
                f"{result['ratio']:8.2f}{interval:>16}"
                f"{result['off']:6d}/255",
                flush=True,
            )
            if result["off"] > TOLERANCE:
                raise SystemExit(
                    f"the pictures differ by {result['off']}/255, more than {TOLERANCE}: this is no"
                    " comparison"
                )
            results.append(result)
    print(f"target {TARGET:g} for each; pictures may be off by {TOLERANCE}/255")
    if options.json:
        print(
            json.dumps({"recipe": options.recipe, "threads": options.threads, "results": results})
        )


if __name__ == "__main__":
    main()

"""What makes the paired differences of a finished study scatter less, for the same time: pictures,
sharing, controls.

    python bench/variance.py RUNS [--pictures 2048]

RUNS is the `--out` of a finished study of the embedded world, with its weights (`make study`).
Every cell draws more pictures than the study did, about half a minute each, and what the judge saw
is kept in RUNS/variance: a second call only reckons. docs/decisions/0026-variance-reduction.md
tells what followed.

S seeds, N pictures
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from scipy.special import stdtrit
from variance_pictures import METRICS, Floats, Study

from fulcrum.measure.evaluation import loss_of, prompts
from fulcrum.measure.metrics.means import ATTRIBUTES

PART = 512  # pictures that are drawn again: with other noise, with mirrored noise
SIZES = (128, 256, 512, 1024, 2048, 4096)  # pictures of an evaluation
USUAL = 512


class Parts(NamedTuple):
    """Variances of a paired difference, as of one picture."""

    seed: float  # of the seeds: no picture helps
    picture: float  # of the pictures, the same under every seed: prompts that suit the arm
    rest: float  # of a picture under a seed
    alone: float  # of a picture where the two sides share nothing


def split(arm: Floats, base: Floats) -> Parts:
    """Two-way analysis of variance of the differences; both sides (S, N)."""
    d = arm - base
    seeds, pictures = d.shape
    rest = float(
        ((d - d.mean(0) - d.mean(1, keepdims=True) + d.mean()) ** 2).sum()
        / ((seeds - 1) * (pictures - 1))
    )
    by_seed, by_picture = (
        max(times * float(d.mean(axis).var(ddof=1)) - rest, 0.0)
        for axis, times in ((1, pictures), (0, seeds))
    )
    alone = float(arm.var(axis=1, ddof=1).mean() + base.var(axis=1, ddof=1).mean())
    return Parts(by_seed / pictures, by_picture / seeds, rest, alone)


def show_pictures(study: Study, pictures: int) -> None:
    train, picture = study.seconds(pictures)
    print(
        f"\nA cell trains {train:.0f} s and draws and judges a picture in {1000 * picture:.1f} ms,"
        " undisturbed."
    )
    for metric in METRICS:
        print(f"\n{metric}: sd of the paired differences over seeds, by pictures of an evaluation")
        print(f"  {'':<34}" + "".join(f"{n:>8,}" for n in SIZES) + f"{'all':>8}")
        base = study.values("baseline", metric, "shared", pictures)
        for arm in study.arms:
            values = study.values(arm, metric, "shared", pictures)
            parts = split(values, base)
            variance = np.array([parts.seed + parts.rest / n for n in SIZES])
            spreads = [_as_found(values - base, n) for n in SIZES if n <= pictures]
            time_of = train + picture * np.array(SIZES)
            equal = np.sqrt(variance * time_of / (variance * time_of)[SIZES.index(USUAL)])
            print(_row(f"{arm}", [*np.sqrt(variance), parts.seed**0.5]))
            print(_row("  in parts of that size, as found", spreads))
            print(_row("  for equal time, 512 pictures = 1", equal))
        print(
            f"\n{metric}: what sharing prompts and noise is worth, sd at {USUAL} pictures; then the"
            " error of the mean"
        )
        print(
            f"  {'':<34}{'shared':>10}{'by seed':>10}{'by cell':>10}   error:"
            f" {'shared':>8}{'by seed':>9}"
        )
        for arm in study.arms:
            parts = split(study.values(arm, metric, "shared", pictures), base)
            shared, by_seed, by_cell = (
                parts.seed + one / USUAL
                for one in (parts.rest, parts.rest + parts.picture, parts.alone)
            )
            n = len(study.plan.seeds)
            errors = (shared / n + parts.picture / USUAL) ** 0.5, (by_seed / n) ** 0.5
            print(
                f"  {arm:<34}"
                + "".join(f"{one**0.5:>10.4f}" for one in (shared, by_seed, by_cell))
                + f"          {errors[0]:>8.4f}{errors[1]:>9.4f}"
            )


def _row(name: str, numbers: Sequence[float]) -> str:
    return f"  {name:<34}" + "".join(f"{number:>8.4f}" for number in numbers)


def _as_found(differences: Floats, size: int) -> float:
    """Root of the mean variance over seeds of every part of `size` pictures."""
    whole = differences[:, : differences.shape[1] // size * size]
    return float(whole.reshape(len(whole), -1, size).mean(2).var(axis=0, ddof=1).mean() ** 0.5)


def show_noise(study: Study, pictures: int) -> None:
    """Pictures of one prompt with other noise or with mirrored noise, against pictures of other
    prompts."""
    print(
        "\nOne picture's difference from the baseline, by what the two sides share (variance, mean"
        " over seeds)"
    )
    print(
        f"  {'':<34}{'all':>8}{'prompt':>8}{'nothing':>8}   two differences of one prompt"
        " correlate: other noise, mirrored"
    )
    metric = next(iter(METRICS))
    base = {
        kind: study.values("baseline", metric, kind, PART) for kind in ("other noise", "mirrored")
    }
    first = study.values("baseline", metric, "shared", pictures)[:, :PART]
    for arm in study.arms:
        own = study.values(arm, metric, "shared", pictures)[:, :PART]
        d = own - first
        variances = [
            float(one.var(axis=1, ddof=1).mean()) for one in (d, own - base["other noise"])
        ]
        alone = float(own.var(axis=1, ddof=1).mean() + first.var(axis=1, ddof=1).mean())
        again = [study.values(arm, metric, kind, PART) - base[kind] for kind in base]
        together = [
            np.mean([np.corrcoef(a, b)[0, 1] for a, b in zip(d, other, strict=True)])
            for other in again
        ]
        print(_row(arm, [*variances, alone]) + f"   {together[0]:+.3f}, {together[1]:+.3f}")


def show_strata(study: Study, pictures: int) -> None:
    """How much of a difference the scene explains: more than that no choice of prompts by stratum
    can take away."""
    scenes = prompts(study.layout.arms[0].run, pictures).scenes.grid()
    place = np.argmax(np.asarray(scenes["present"]), axis=1)  # of the first object
    columns = [
        place,
        *(np.asarray(scenes[name])[np.arange(pictures), place] for name in ATTRIBUTES),
    ]
    dummies = [np.eye(int(one.max()) + 1)[one][:, 1:] for one in columns]
    x = np.column_stack([np.ones(pictures), *dummies])
    metric = next(iter(METRICS))
    base = study.values("baseline", metric, "shared", pictures)
    print(
        f"\nShare of a picture's difference that its scene explains (adjusted R², {x.shape[1]}"
        " columns; mean over seeds)"
    )
    for arm in study.arms:
        d = study.values(arm, metric, "shared", pictures) - base
        left = d.T - x @ np.linalg.lstsq(x, d.T, rcond=None)[0]
        adjusted = 1.0 - (left.var(axis=0) / d.var(axis=1)) * (pictures - 1) / (
            pictures - x.shape[1]
        )
        print(_row(arm, [float(adjusted.mean())]))


def show_control(study: Study, pictures: int) -> None:
    """The validation loss as a control variate: how it goes with the metric over seeds, and what
    that is worth."""
    metric = next(iter(METRICS))
    base, base_loss = (
        study.values("baseline", metric, "shared", pictures).mean(1),
        study.losses("baseline"),
    )
    runs = {arm.name: arm.run for arm in study.layout.arms}
    pairs = {
        arm: (
            study.values(arm, metric, "shared", pictures).mean(1) - base,
            study.losses(arm) - base_loss,
        )
        for arm in study.arms
        if loss_of(runs[arm]) == loss_of(runs["baseline"])
    }
    centred = {arm: (d - d.mean(), loss - loss.mean()) for arm, (d, loss) in pairs.items()}
    print(
        "\nF-score and validation loss, paired differences over the seeds; arms of another"
        " objective are fenced off:"
    )
    print(f"  {', '.join(arm for arm in study.arms if arm not in pairs) or 'none'}")
    print(
        f"  {'':<34}{'correlation':>12}   sd left with the slope:"
        f" {'own':>6}{'of the other arms':>19}"
    )
    rhos = []
    for arm, (d, loss) in centred.items():
        others = [one for name, one in centred.items() if name != arm]
        borrowed = (
            sum((x * y).sum() for y, x in others) / sum((x * x).sum() for _, x in others)
            if others
            else 0.0
        )
        rhos.append(float(np.corrcoef(d, loss)[0, 1]))
        # a slope costs a degree of freedom
        own = (1 - rhos[-1] ** 2) ** 0.5 * ((len(d) - 1) / (len(d) - 2)) ** 0.5
        left = float((d - borrowed * loss).std() / d.std())
        print(f"  {arm:<34}{rhos[-1]:>+12.2f}{own:>33.2f}{left:>19.2f}")
    train, picture = study.seconds(pictures)
    n, share, rho = (
        len(study.plan.seeds),
        train / (train + picture * USUAL),
        sorted(rhos)[len(rhos) // 2],
    )
    more = n / share
    print(
        f"  a loss alone costs {share:.2f} of a measured cell; error of the mean of {n} pairs"
        f" {n**-0.5:.3f}, and after"
    )
    print(
        f"  as much time again, with a correlation of {rho:+.2f}: {n} more measured pairs"
        f" {(2 * n) ** -0.5:.3f}, ",
        end="",
    )
    print(
        f"{more:.1f} more with a loss alone {((1 - rho**2) / n + rho**2 / (n + more)) ** 0.5:.3f}"
    )
    print(
        "  simulated studies with that correlation, no effect on the metric and one of 1 sd on the"
        " loss:"
    )
    for name, outcome in _regressed(n, rho).items():
        print(
            f"    {name:<44} error {outcome[0]:.3f}, width {outcome[1]:.3f}, covers"
            f" {outcome[2]:.3f}"
        )


def show_signal(study: Study, pictures: int) -> None:
    """Effects in deviations of their paired differences: what one more pair is worth on each
    metric."""
    print(
        "\nMean paired difference in deviations of the paired differences; correlation of the two"
        " sides over seeds"
    )
    for arm in study.arms:
        numbers = []
        for name in (*METRICS, "validation loss"):
            own, base = (
                (
                    study.losses(one)
                    if name == "validation loss"
                    else study.values(one, name, "shared", pictures).mean(1)
                )
                for one in (arm, "baseline")
            )
            d = own - base
            numbers.append(
                f"{name} {d.mean() / d.std(ddof=1):+.1f} ({np.corrcoef(own, base)[0, 1]:+.2f})"
            )
        print(f"  {arm:<16}" + ", ".join(numbers))


def show_baselines(study: Study, pictures: int) -> None:
    """Seeds that only the baseline has: all arms are held against it, so they are cheap where arms
    are many."""
    n, metric, times = len(study.plan.seeds), next(iter(METRICS)), (1, 2, 4)
    base = study.values("baseline", metric, "shared", pictures).mean(1)
    noises = {
        arm: np.cov(study.values(arm, metric, "shared", pictures).mean(1), base)
        for arm in study.arms
    }
    print(
        f"\nError of an arm's effect for equal time, {n} pairs = 1, where the baseline alone has so"
        " many times the seeds:"
    )
    print(f"  {'':<44}{'mean over all its seeds':>24}{'weighed by a slope':>24}")
    print(f"  {'':<44}" + "".join(f"{f'x{more}':>8}" for more in times) * 2)
    for arms in (3, 25):
        for name, noise in {"equal independent noise": np.eye(2), **noises}.items():
            errors = np.array([_with_baselines(noise, n, more) for more in times])  # (times, 2)
            errors *= np.sqrt([[arms * n + more * n] for more in times])
            print(
                f"  {f'{arms} arms, {name}':<44}"
                + "".join(f"{one:>8.2f}" for one in (errors / errors[0, 0]).T.ravel())
            )


def _with_baselines(
    noise: Floats, n: int, times: int, studies: int = 20_000
) -> tuple[float, float]:
    """Errors of an effect in simulated studies of n pairs and times x n baselines: against the mean
    of all baselines, and against the pairs' own and all, weighed by the slope of arm on baseline in
    the pairs."""
    rng = np.random.default_rng([n, times])
    root = np.linalg.cholesky(noise)
    pairs = rng.standard_normal((studies, n, 2)) @ root.T  # (studies, n, [arm, baseline])
    arm, own = pairs[..., 0], pairs[..., 1]
    further = rng.standard_normal((studies, (times - 1) * n)) * noise[1, 1] ** 0.5
    everything = np.concatenate([own, further], axis=1).mean(1)
    centred = own - own.mean(1, keepdims=True)
    slope = (centred * arm).sum(1) / (centred**2).sum(1)
    weighed = arm.mean(1) - slope * own.mean(1) - (1 - slope) * everything
    return float((arm.mean(1) - everything).std()), float(weighed.std())


def _regressed(
    n: int, rho: float, effect_on_loss: float = 1.0, studies: int = 20_000
) -> dict[str, tuple[float, float, float]]:
    """Error of the mean, mean width and coverage of 95 % intervals in simulated studies of n pairs
    of unit scatter; the true effect on the metric is zero."""
    rng = np.random.default_rng(n)
    x = rng.standard_normal((studies, n))
    y = rho * x + (1 - rho**2) ** 0.5 * rng.standard_normal((studies, n))
    centred = x - x.mean(1, keepdims=True)
    slope = (centred * y).sum(1) / (centred**2).sum(1)
    left = y - y.mean(1, keepdims=True) - slope[:, None] * centred
    plain, adjusted = y.std(axis=1, ddof=1), np.sqrt((left**2).sum(1) / (n - 2))
    # the paired difference of the loss: its true mean is not known
    seen = x.mean(1) + effect_on_loss
    narrow = adjusted * np.sqrt(1 / n + seen**2 / (centred**2).sum(1))
    ways = {
        "plain mean of the pairs": (y.mean(1), plain / n**0.5, n - 1),
        "regressed, about the seeds' own mean": (y.mean(1), adjusted / n**0.5, n - 2),
        "regressed to no effect on the loss": (y.mean(1) - slope * seen, narrow, n - 2),
    }
    outcomes = {}
    for name, (mean, error, freedom) in ways.items():
        reach = stdtrit(freedom, 0.975) * error
        outcomes[name] = (
            float(mean.std()),
            float(2 * reach.mean()),
            float((np.abs(mean) <= reach).mean()),
        )
    return outcomes


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", type=Path)
    parser.add_argument("--pictures", type=int, default=2048)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    study = Study(asked.runs)
    for show in (show_pictures, show_noise, show_strata, show_signal, show_baselines, show_control):
        show(study, asked.pictures)


if __name__ == "__main__":
    main()

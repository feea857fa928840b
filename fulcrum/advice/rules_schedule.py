"""Audit rules about schedules: warm-up, averages, modes, checkpoints."""

import ast
import re
from math import log

from fulcrum.advice.configs import ConfigFile, image_tokens
from fulcrum.advice.rule import AuditRule, Sighting, Sightings
from fulcrum.advice.scripts import (
    OptimizerStep,
    Script,
    arguments,
    called,
    constant_of,
    dotted,
    hand_made,
    keyword,
    number,
    optimizer_steps,
    source_of,
    trained_steps,
)
from fulcrum.advice.tensors import ModelFolder
from fulcrum.spec.run import RunSpec

# --------------------------------------------------------------------------------------------------
# Rule: Adam's eps is large enough to decide the step.


LARGEST = 1e-6


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


class AdamEpsLarge(AuditRule):
    id = "adam-eps-large"
    family = "schedule"
    gain = 0.05
    why = (
        "where the root of the second moment is below eps, Adam is plain gradient descent with a"
        " tiny rate; gradients of large diffusion models are that small"
    )
    size = "no number published; the published Muon arm moved it as well (A8)"
    source = "docs/published.md, A8"
    fix = "eps=1e-8 or smaller: the published baseline has 1e-15"

    def in_script(self, script: Script) -> Sightings:
        for call in script.optimizers:
            eps = number(keyword(call, "eps"))
            if eps is not None and eps >= LARGEST and "adam" in dotted(call.func).lower():
                yield Sighting(script.at(call), f"{dotted(call.func)} has eps={eps:g}")

    def in_config(self, config: ConfigFile) -> Sightings:
        for entry in config.find(r"(optim\w*|adam\w*)[._](\w+[._])?eps(ilon)?$|^adam_epsilon$"):
            if entry.number is not None and entry.number >= LARGEST:
                yield Sighting(
                    config.at(entry),
                    f"{entry.path} = {entry.value}",
                    f"set {entry.leaf} to 1e-8 or smaller",
                )

        for entry in config.find(r"(^|[._])optimizer_args$"):  # kohya's: a list of texts
            eps = re.search(r"\beps\s*=\s*([-+.\deE]+)", str(entry.value))
            kind = config.first(r"(^|[._])optimizer(_type)?$")
            if (
                eps
                and kind is not None
                and "adam" in kind.text
                and (_number(eps[1]) or 0.0) >= LARGEST
            ):
                yield Sighting(
                    config.at(entry),
                    f"{entry.path} = {entry.value} with {kind.value}",
                    f"write eps=1e-8 or smaller in {entry.leaf}",
                )

    def in_run(self, run: RunSpec) -> Sightings:
        eps = getattr(run.optim.rule, "eps", 0.0)
        if eps >= LARGEST:
            yield Sighting("optim.rule.eps", f"eps is {eps:g}", "--set optim.rule.eps=1e-15")


# --------------------------------------------------------------------------------------------------
# Rule: alignment with a teacher is never switched off.


LONG = 200_000  # steps after which the published study says to switch it off


class AlignmentNeverOff(AuditRule):
    id = "alignment-never-off"
    family = "schedule"
    severity = "note"
    gain = 0.05
    why = (
        "a teacher helps while the denoiser learns what pictures are, and holds it back once it"
        " knows better"
    )
    size = (
        "said without a number: off after about 200,000 steps; others stop after a tenth of the"
        " training. Told of trainings beyond 200,000 steps only"
    )
    source = "PRX Part 2; arXiv:2505.16792 (HASTE)"
    lever = "repa"
    fix = "repa(until=0.5), or a stage without the term"

    def in_run(self, run: RunSpec) -> Sightings:
        steps = run.budget.images / run.budget.batch
        for term in run.terms:
            if (
                term.kind == "alignment"
                and getattr(term, "until", 1.0) >= 1.0
                and getattr(term, "schedule", "") != "cosine"
                and steps > LONG
            ):
                yield Sighting(
                    f"terms.{term.name}",
                    f"alignment stays on for all {steps:,.0f} steps",
                    f"--set terms.{term.name}.until=0.5",
                )

    def in_config(self, config: ConfigFile) -> Sightings:
        weight = config.first(r"(repa|align\w*|proj)[._](\w+_)?(weight|coeff|lambda|coef)$")
        steps = config.batches(
            r"(^|[._])(max_train_steps|max_steps|total_steps|train_steps|max_duration)$"
        )
        ends = config.find(r"(repa|align\w*|proj).*(until|end|stop|off|schedule|decay|early_stop)")
        if weight and weight.number and steps and steps > LONG and not ends:
            yield Sighting(
                config.at(weight), f"{weight.path} = {weight.value} for all {steps:,.0f} steps"
            )


# --------------------------------------------------------------------------------------------------
# Rule: an average of the weights that remembers longer than the training lasts.


SHARE = 0.3  # of the training, that a half-life may take


class AverageLongerThanTraining(AuditRule):
    id = "average-longer-than-training"
    family = "schedule"
    severity = "error"
    gain = 0.3
    why = (
        "a fixed decay belongs to a number of steps: 0.9999 halves in 6,931 updates, and in a short"
        " training the average is still the initial weights"
    )
    size = "EMA 0.999 every 10 steps is 90 % initialisation after 1,000 steps"
    source = "arithmetic"
    lever = "ema"
    fix = (
        "choose the decay by its half-life: 0.5 ** (1 / (0.07 * steps)), or warm it up:"
        " EMAModel(use_ema_warmup=True)"
    )

    def in_script(self, script: Script) -> Sightings:
        steps = trained_steps(script)
        for call in script.named("EMAModel", "ExponentialMovingAverage", "EMA") if steps else ():
            given = keyword(call, "decay")
            decay = None if given is None else constant_of(script, given)
            warmed = keyword(call, "use_ema_warmup", "inv_gamma", "update_after_step") is not None
            if not warmed:
                yield from _too_long(script, call, decay, steps)
        for call, decay in hand_made(script) if steps else ():
            yield from _too_long(script, call, decay, steps)

    def in_config(self, config: ConfigFile) -> Sightings:
        decay = config.first(r"(^|[._])ema\w*[._]?(decay|smoothing|beta)$")
        steps = config.batches(
            r"(^|[._])(max_train_steps|max_steps|total_steps|train_steps|max_duration|num_steps)$"
        )
        every = config.batches(r"(^|[._])ema\w*[._](update_)?(interval|every|update_every)$") or 1.0
        warmed = any(not entry.off for entry in config.find(r"(^|[._])ema.*warmup"))
        if (
            decay
            and decay.number
            and steps
            and 0 < decay.number < 1
            and not warmed
            and _half_life(decay.number) * every > SHARE * steps
        ):
            yield Sighting(
                config.at(decay),
                f"{decay.path} = {decay.value} halves in {_half_life(decay.number) * every:,.0f} of"
                f" {steps:,.0f} steps",
            )

    def in_run(self, run: RunSpec) -> Sightings:
        half_life = getattr(run.average, "half_life", 0.0)
        if half_life > SHARE:
            yield Sighting(
                "average.half_life",
                f"the average halves in {half_life:.0%} of the budget",
                "--set average.half_life=0.07",
            )


def _too_long(
    script: Script, call: ast.Call, decay: float | None, steps: float | None
) -> Sightings:
    if decay and steps and _half_life(decay) > SHARE * steps:
        updates = 0.07 * steps
        yield Sighting(
            script.at(call),
            f"decay {decay:g} halves in {_half_life(decay):,.0f} updates, and the training has"
            f" {steps:,.0f} steps as written",
            f"a decay of {0.5 ** (1 / updates):.4g} halves in {updates:,.0f} of {steps:,.0f} steps;"
            " or warm it up",
        )


def _half_life(decay: float) -> float:
    return log(0.5) / log(decay) if 0 < decay < 1 else 0.0


# --------------------------------------------------------------------------------------------------
# Rule: gradients are never set to zero, so every step follows the sum of all before.


CLEARS = (
    r"(zero|clear|reset|empty)_?grad|set_to_none|foreach_zero|post_accumulate|deepspeed|"
    r"^fabric$|lightning"
)
STEPS = re.compile(
    r"^(step|unscale_|prepare\w*|get_\w*scheduler\w*|add_param_group|state_dict|load_state_dict|"
    r"print|len)$"
)


class GradientsNeverCleared(AuditRule):
    id = "gradients-never-cleared"
    family = "schedule"
    severity = "error"
    gain = 0.2
    why = (
        "backward adds to the gradients that are there: without zero_grad every step follows the"
        " sum of all batches so far"
    )
    size = "momentum without end: the training drifts or diverges; no number published"
    source = "torch documentation"
    fix = "optimizer.zero_grad(set_to_none=True) after every optimizer.step()"

    def in_script(self, script: Script) -> Sightings:
        if script.mentions(CLEARS) or _cleared_by_hand(script):
            return
        for step in optimizer_steps(script):
            if not _cleared_elsewhere(script, step):
                yield Sighting(
                    script.at(step.call),
                    f"{source_of(step.call)} in the loop of line {step.loop.lineno}, and nothing"
                    " sets gradients to zero",
                    f"{step.optimizer}.zero_grad(set_to_none=True) after it",
                )
                return


def _cleared_by_hand(script: Script) -> bool:
    """`p.grad = None`, `p.grad.zero_()`, `torch.autograd.grad`."""
    written = (
        node
        for node in script.nodes
        if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load)
    )
    return any(node.attr == "grad" for node in written) or bool(
        script.named("grad.zero_", "grad.data.zero_", "autograd.grad")
    )


def _cleared_elsewhere(script: Script, step: OptimizerStep) -> bool:
    """Is the optimizer made anew in the loop, or handed to a function that may clear?"""
    made = [value for value in script.assignments[step.optimizer] if value in script.optimizers]
    if any(step.loop in script.loops(value) for value in made):
        return True
    for call in script.calls:
        name = called(call)
        given = arguments(call)
        if (
            any(dotted(one) == step.optimizer for one in given)
            and not STEPS.match(name)
            and not name[:1].isupper()
        ):
            return True
    return False


# --------------------------------------------------------------------------------------------------
# Rule: iREPA's spatial normalisation over the wrong axis, or with the wrong projector.


class IrepaNormalisesFeatures(AuditRule):
    id = "irepa-normalises-features"
    family = "schedule"
    gain = 0.15
    why = (
        "iREPA takes the mean over tokens from the teacher's tokens, so that layout is left; a"
        " token's own mean over its features is about zero after a LayerNorm, and taking it away"
        " does nothing"
    )
    size = "the published 'iREPA got worse with DINOv3' is of this"
    source = "docs/published.md, A21"
    published = "A21"
    lever = "irepa"
    fix = (
        "z = z - alpha * z.mean(dim=1, keepdim=True) for (B, N, D) tokens, and a 3x3 convolution as"
        " the projector"
    )

    def in_script(self, script: Script) -> Sightings:
        for node in script.nodes:
            if not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub)):
                continue
            for call in ast.walk(node.right):
                if (
                    isinstance(call, ast.Call)
                    and dotted(call.func).endswith("mean")
                    and _own_axis(call)
                    and _speaks_of_irepa(script, node)
                ):
                    yield Sighting(
                        script.at(node), f"{source_of(node)} takes each token's own mean away"
                    )

    def in_config(self, config: ConfigFile) -> Sightings:
        for entry in config.find(r"irepa|spatial_norm"):
            if entry.text in ("feature", "features", "channel", "channels", "-1") and any(
                word in entry.leaf for word in ("norm", "axis", "dim", "mean", "over")
            ):
                yield Sighting(
                    config.at(entry),
                    f"{entry.path} = {entry.value}",
                    f"set {config.setting(entry, 'tokens')}",
                )
            if "proj" in entry.leaf and entry.text.startswith("att"):
                yield Sighting(
                    config.at(entry),
                    f"{entry.path} = {entry.value}, where iREPA has a convolution",
                    f"set {config.setting(entry, 'conv')}",
                )


def _own_axis(call: ast.Call) -> bool:
    axis = keyword(call, "dim", "axis")
    given = axis if axis is not None else next(iter(call.args[-1:]), None)
    return number(given) in (-1.0, 2.0)


def _speaks_of_irepa(script: Script, node: ast.AST) -> bool:
    own = script.context(node)
    return any(word in own for word in ("irepa", "spatial")) or (
        script.mentions("irepa")
        and any(word in own for word in ("teacher", "align", "target", "norm"))
    )


# --------------------------------------------------------------------------------------------------
# Rule: a network is set to eval mode for a preview and trained on in it.


class LeftInEvalMode(AuditRule):
    id = "left-in-eval-mode"
    family = "schedule"
    gain = 0.05
    why = (
        "dropout is off and batch norm stands still from the first preview on: half of the training"
        " is another one"
    )
    size = "nothing where the network has neither; no number published"
    source = "torch documentation"
    fix = "net.train() after every evaluation, or evaluate the averaged copy"

    def in_script(self, script: Script) -> Sightings:
        steps = optimizer_steps(script)
        if not steps or any(isinstance(call.func, ast.Attribute) for call in script.named("train")):
            return
        for call in script.named("eval"):
            name = dotted(call.func).rpartition(".")[0]
            if (
                isinstance(call.func, ast.Attribute)
                and not call.args
                and _is_trained_on(script, name, call, steps)
            ):
                yield Sighting(script.at(call), f"{name}.eval(), and no line calls train()")


def _is_trained_on(script: Script, name: str, call: ast.Call, steps: list[OptimizerStep]) -> bool:
    """Is it a network that an optimizer has, in the loop that steps or before it; or in a function
    that is handed one there?"""
    home = script.function(call)
    if any(
        script.function(step.call) is home and call.lineno <= _end(script, step) for step in steps
    ):
        return script.is_trained(name, call)
    words = [one.arg for one in home.args.args] if home is not None else []
    if home is None or name not in words:
        return False
    for one in script.named(home.name):
        inside = any(set(script.loops(step.call)) & set(script.loops(one)) for step in steps)
        given = one.args[words.index(name)] if len(one.args) > words.index(name) else None
        given = next((word.value for word in one.keywords if word.arg == name), given)
        if inside and given is not None and script.is_trained(dotted(given), one):
            return True
    return False


def _end(script: Script, step: OptimizerStep) -> int:
    """The last line of the outermost loop around a step: that of epochs, as a rule."""
    return script.loops(step.call)[-1].end_lineno or 0


# --------------------------------------------------------------------------------------------------
# Rule: Adam starts at its full learning rate.


class NoWarmup(AuditRule):
    id = "no-warmup"
    family = "schedule"
    severity = "note"
    gain = 0.02
    why = (
        "Adam's first steps have the full size whatever the gradient is, before its moments know"
        " anything"
    )
    size = "no number published"
    fix = (
        "warm up over the first one to five percent of the steps: lr_warmup_steps, --set"
        " optim.warmup=0.01"
    )

    def in_config(self, config: ConfigFile) -> Sightings:
        for entry in config.find(r"(^|[._])(lr_)?warmup(_steps|_ratio|_iters|_fraction)?$"):
            starts_over = config.find(r"lora|resume|finetune|network_module|pretrained")
            if entry.number == 0 and not starts_over:
                yield Sighting(config.at(entry), f"{entry.path} = {entry.value}")

    def in_run(self, run: RunSpec) -> Sightings:
        if run.optim.warmup == 0 and run.start.kind == "fresh":
            yield Sighting(
                "optim.warmup", "no warm-up, from fresh weights", "--set optim.warmup=0.01"
            )


# --------------------------------------------------------------------------------------------------
# Rule: a perceptual loss without a predicted picture.


PICTURES = (
    "x",
    "x0",
    "x_0",
    "sample",
    "x_prediction",
    "x-prediction",
    "original_sample",
    "data",
    "image",
)


class PerceptualWithoutPicture(AuditRule):
    id = "perceptual-without-picture"
    family = "schedule"
    severity = "error"
    gain = 1.0
    why = (
        "LPIPS and feature losses compare pictures: a velocity or a noise is none, and the released"
        " code stopped at the first step"
    )
    size = "the training cannot run as it is written, or compares noise"
    source = "docs/published.md, A13"
    published = "A13"
    fix = (
        "predict the picture (prediction_type: sample), or turn the prediction into one before the"
        " loss"
    )

    def in_config(self, config: ConfigFile) -> Sightings:
        predicts = config.first(
            r"(^|[._])(prediction(_type)?|predict|parameteri[sz]ation|objective|target)$"
        )
        for entry in config.find(r"(lpips|perceptual)\w*([._](weight|coeff|lambda|enabled))?$"):
            if (
                (entry.on or (entry.number or 0) > 0)
                and predicts
                and isinstance(predicts.value, str)
                and predicts.text not in PICTURES
            ):
                yield Sighting(
                    config.at(entry),
                    f"{entry.path} = {entry.value} with {predicts.path} = {predicts.value}",
                )


# --------------------------------------------------------------------------------------------------
# Rule: token routing where there are few tokens.


FEWEST = 512  # 256 tokens lost in the published study, 1,024 won


class RoutingWithFewTokens(AuditRule):
    id = "routing-with-few-tokens"
    family = "schedule"
    gain = 0.15
    why = "with few tokens each one counts, and the blocks that skip half of them save little"
    size = "FID 18.2 to 21.6 (TREAD) and 22.6 (SPRINT) at 256 tokens; 17.4 to 14.1 at 1,024"
    source = "PRX Part 2"
    lever = "tread"
    fix = "leave routing out below some 500 tokens, or use it where the resolution is high"

    def in_run(self, run: RunSpec) -> Sightings:
        drop = getattr(run.model.route, "drop", 0.0)
        if drop and run.tokens < FEWEST:
            yield Sighting(
                "model.route",
                f"{drop:.0%} of {run.tokens} tokens skip blocks",
                "--set model.route=dense()",
            )

    def in_config(self, config: ConfigFile) -> Sightings:
        routed = [
            entry for entry in config.find(r"(tread|sprint|routing|token_drop)") if not entry.off
        ]
        tokens = image_tokens(config)
        if routed and tokens is not None and tokens < FEWEST:
            yield Sighting(
                config.at(routed[0]),
                f"{routed[0].path} = {routed[0].value} at about {tokens:g} tokens",
            )


# --------------------------------------------------------------------------------------------------
# Rule: many tokens, and times that are not shifted towards noise.


MANY = 1024
UNSHIFTED = 256  # tokens, at which published trainings do without
# A shift of times: by its own name (timestep_shift, discrete_flow_shift), or below what is about
# them (flow.shift).
OF_TIMES = re.compile(
    r"(time|flow|sigma|noise|sched|diffusion|objective|sampl)\w*[._]?(\w+\.)*shift$|^shift$"
)


class ShiftWithoutResolution(AuditRule):
    id = "shift-without-resolution"
    family = "schedule"
    severity = "note"
    also = "warning where a run is trained and drawn with unlike shifts"
    gain = 0.1
    why = (
        "the more pixels a picture has, the more noise it takes to hide it: without a shift most"
        " training times are too easy at high resolution"
    )
    size = "Stable Diffusion 3 and PRX shift by about 3 at 1024 px; no clean number published"
    source = "arXiv:2403.03206"
    lever = "shifted_time"
    fix = '--set "flow.time=logit_normal(shift=3.0)" --set sample.shift=3.0'

    def in_run(self, run: RunSpec) -> Sightings:
        shift = getattr(run.flow.time, "shift", None)
        if run.tokens >= MANY and shift == 1.0:
            yield Sighting("flow.time", f"{run.tokens:,} tokens and no shift of the times")
        if shift is not None and shift != run.sample.shift:
            yield Sighting(
                "sample.shift",
                f"trained with times shifted by {shift:g}, drawn with {run.sample.shift:g}",
                f"--set sample.shift={shift:g}",
                "warning",
            )

    def in_config(self, config: ConfigFile) -> Sightings:
        """Only where it is said that nothing is shifted: a trainer's own default is not known."""
        shifts = (
            entry for entry in config.find(r"(^|[._]|[a-z])shift$") if OF_TIMES.search(entry.path)
        )
        stated = [entry for entry in shifts if not isinstance(entry.value, bool)]
        tokens = image_tokens(config, usual_stride=True)
        otherwise = any(
            not entry.off
            for entry in config.find(
                r"(dynamic|auto)_?shift|resolution_\w*shift|shift_?(by|with)_?res"
            )
        )
        # kohya's, by size
        otherwise |= any("flux_shift" in entry.text for entry in config.find(r"timestep_sampling$"))
        # Logit-normal times with another mean than 0 are shifted by that.
        otherwise |= any(
            entry.number not in (None, 0.0)
            for entry in config.find(r"logit_?mean$|density\.mean$|(^|[._])p_mean$")
        )
        if (
            stated
            and tokens is not None
            and tokens >= MANY
            and all(entry.number in (0.0, 1.0) for entry in stated)  # SimpleTuner's 0 is off
            and not otherwise
        ):
            shift = (tokens / UNSHIFTED) ** 0.5
            yield Sighting(
                config.at(stated[0]),
                f"{stated[0].path} = {stated[0].value} at about {tokens:,.0f} tokens",
                f"shift by about {shift:.1f} (root of {tokens:,.0f} / {UNSHIFTED} tokens), in"
                " training and in drawing",
            )

    def in_folder(self, folder: ModelFolder) -> Sightings:
        scheduler, vae, denoiser = (
            folder.part("scheduler"),
            folder.part("vae"),
            folder.part("transformer"),
        )
        if not (scheduler and denoiser) or "FlowMatch" not in (scheduler.declared or scheduler.own):
            return
        side, patch = denoiser.config.get("sample_size"), denoiser.config.get("patch_size", 1)
        shift, dynamic = (
            scheduler.config.get("shift", 1.0),
            scheduler.config.get("use_dynamic_shifting", False),
        )
        if (
            isinstance(side, int)
            and isinstance(patch, int)
            and (side // patch) ** 2 >= MANY
            and shift == 1.0
            and not dynamic
            and vae
        ):
            yield Sighting(
                "scheduler/scheduler_config.json",
                f"{(side // patch) ** 2:,} tokens and shift 1",
                "set shift to about 3, or use_dynamic_shifting",
            )


# --------------------------------------------------------------------------------------------------
# Rule: checkpoints hold weights only, so a training that stops cannot go on.


SAVES = ("torch.save", "save_file", "save_pretrained", "save_model")
WHOLE = (
    "save_state",
    "save_checkpoint",
    "dcp.save",
    "async_save",
    "Trainer",
    "Checkpointer",
    "CheckpointManager",
    "ModelCheckpoint",
)


class WeightsOnlyCheckpoint(AuditRule):
    id = "weights-only-checkpoint"
    family = "schedule"
    gain = 0.1
    effort = "edit"
    why = (
        "without the optimizer's moments, the position in the data and the random state, a resume"
        " is another training: its loss jumps, or it begins anew"
    )
    size = "a training that is stopped is lost"
    source = "docs/published.md, A6"
    published = "A6"
    fix = (
        "save model, optimizer, schedule, step and random state together (accelerator.save_state"
        " does), and resume from the newest by itself"
    )

    def in_script(self, script: Script) -> Sightings:
        if not script.trains or script.named(*WHOLE) or script.mentions("deepspeed|lightning"):
            return
        if any(
            _is_optimizer_state(script, call) for call in script.named("state_dict")
        ) or script.mentions("optimizer_state|optim_state|get_state_dict"):
            return
        inside = [
            call for call in script.named(*SAVES) if script.loops(call) and not _is_picture(call)
        ]
        if inside:
            yield Sighting(
                script.at(inside[0]),
                f"{source_of(inside[0])} while it trains, and no optimizer state is saved anywhere",
            )

    def in_config(self, config: ConfigFile) -> Sightings:
        for entry in config.find(r"(^|[._])(save_)?weights_only$|(^|[._])save_optimizer(_state)?$"):
            if entry.off if "optimizer" in entry.leaf else entry.on:
                resume = config.first(r"auto_?resume")
                also = " and nothing resumes by itself" if resume is None or resume.off else ""
                yield Sighting(config.at(entry), f"{entry.path} = {entry.value}{also}")


def _is_optimizer_state(script: Script, call: ast.Call) -> bool:
    """By its name, or because what it is called on was made as an optimizer."""
    name = dotted(call.func).rpartition(".")[0]
    return "opt" in name.lower() or any(
        value in script.optimizers for value in script.assignments.get(name, ())
    )


def _is_picture(call: ast.Call) -> bool:
    return any(
        word in ast.unparse(call).lower() for word in ("latents", "embeds", "samples", "image")
    )

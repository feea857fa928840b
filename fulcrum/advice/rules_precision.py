"""Audit rules about number formats."""

import ast
import re
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fulcrum.advice.configs import ConfigFile
from fulcrum.advice.rule import AuditRule, Sighting, Sightings
from fulcrum.advice.scripts import LOW, Script, called, dotted, is_constant, keyword, source_of
from fulcrum.advice.steps import Kind, StepTrace
from fulcrum.advice.tensors import BITS as STORED_BITS
from fulcrum.advice.tensors import LOW as LOW_STORED
from fulcrum.advice.tensors import TRAINED, ModelFolder, StoredTensors, matching
from fulcrum.spec.run import RunSpec

# --------------------------------------------------------------------------------------------------
# Rule: autocast around the backward pass or the optimizer.


class AutocastTooWide(AuditRule):
    id = "autocast-too-wide"
    family = "precision"
    gain = 0.03
    effort = "line"
    why = (
        "autocast belongs around the forward pass and the loss; around backward it casts again what"
        " was already cast, around the optimizer it rounds updates that products compute"
    )
    size = "no number published"
    source = "torch.amp documentation: backward under autocast is not recommended"
    fix = "end the `with torch.autocast` block before loss.backward()"

    def in_script(self, script: Script) -> Sightings:
        for node in script.nodes:
            if not isinstance(node, ast.With | ast.AsyncWith):
                continue
            if not any(
                isinstance(one.context_expr, ast.Call)
                and dotted(one.context_expr.func).rpartition(".")[2] == "autocast"
                for one in node.items
            ):
                continue
            for inner in node.body:
                for call in ast.walk(inner):
                    if isinstance(call, ast.Call) and _is_update(dotted(call.func)):
                        yield Sighting(
                            script.at(call),
                            f"`{dotted(call.func)}` runs inside the autocast of line {node.lineno}",
                        )


def _is_update(name: str) -> bool:
    owner, _, method = name.rpartition(".")
    return method == "backward" or (
        method == "step" and ("optim" in owner.lower() or owner.lower() in ("opt", "scaler"))
    )


# --------------------------------------------------------------------------------------------------
# Rule: averaged weights (EMA) are kept in bf16.


def _copied(value: ast.DictComp | ast.ListComp) -> str:
    """The network of `{name: weight.clone() for name, weight in net.state_dict().items()}`; none
    where it is cast."""
    whole = dotted(value.generators[0].iter)
    match = re.match(r"(.+)\.(state_dict|parameters|named_parameters)\(\)", whole)
    text = ast.unparse(value.value if isinstance(value, ast.DictComp) else value.elt)
    return match[1] if match and not re.search(r"float|double|\.to\(|dtype", text) else ""


class AverageInBf16(AuditRule):
    id = "average-in-bf16"
    family = "precision"
    severity = "error"
    also = "warning in checkpoints"
    gain = 0.15
    why = (
        "an average with decay 0.9999 moves by a ten-thousandth of the difference per step; bf16"
        " rounds that to nothing, and it stays where it began"
    )
    size = "the averaged weights stop following: at worst they are the initial ones"
    source = "arithmetic: bf16 has 8 significant bits"
    fix = "copy the fp32 weights into the average, and keep it in fp32"

    def in_script(self, script: Script) -> Sightings:
        low = {cast.name for cast in script.casts if cast.formats & LOW and cast.formats <= LOW}
        for cast in script.casts:
            if (
                "ema" in cast.name.lower().split("_") + cast.name.lower().split(".")
                and cast.formats <= LOW
            ):
                yield Sighting(
                    script.at(cast.node),
                    f"the average is stored in low precision: {source_of(cast.node)}",
                )
        for call in script.named(
            "EMAModel",
            "ModelEmaV2",
            "ModelEmaV3",
            "AveragedModel",
            "ExponentialMovingAverage",
            "EMA",
            "deepcopy",
        ):
            first = call.args[0] if call.args else None
            name = dotted(first).replace(".parameters()", "") if first is not None else ""
            if name in low and (
                "deepcopy" not in dotted(call.func) or "ema" in script.context(call)
            ):
                yield Sighting(
                    script.at(call),
                    f"the average is a copy of `{name}`, which is stored in low precision",
                )
        for average, values in script.assignments.items():
            for value in (
                values
                if re.search(r"(?i)(^|[._])(ema|shadow)($|[._])", average.replace("_", "."))
                else ()
            ):
                if (
                    isinstance(value, ast.DictComp | ast.ListComp)
                    and (name := _copied(value)) in low
                ):
                    yield Sighting(
                        script.at(value),
                        f"the average is a copy of `{name}`, which is stored in low precision",
                    )

    def in_config(self, config: ConfigFile) -> Sightings:
        for entry in config.find(r"(^|[._])ema\w*(\.|_)(\w+_)?dtype$"):
            if entry.low:
                yield Sighting(config.at(entry), f"{entry.path} = {entry.value}")

    def in_tensors(self, tensors: StoredTensors) -> Sightings:
        words = ("ema", "ema_model", "model_ema", "averaged")
        low = [
            one
            for one in tensors.tensors
            if one.format in LOW_STORED
            and set(words) & {*one.name.lower().split("."), one.file.stem.lower()}
        ]
        if low:
            yield Sighting(
                low[0].name,
                f"{len(low)} tensors of the average are stored in {low[0].format}",
                "",
                "warning",
            )


# --------------------------------------------------------------------------------------------------
# Rule: gradients are clipped while they are still multiplied by the loss scale.


# torch's, and what libraries build on it: dispatch_clip_grad, adaptive_clip_grad
CLIPS = re.compile(r"clip_grad")
UNSCALES_ITSELF = re.compile(
    r"(?i)accelerat|fabric|optim|engine|scaler|trainer|strategy|plugin|^self$"
)  # where it is a method
# `get_scale` is for those who divide by hand, or multiply the threshold.
UNSCALES = ("unscale_", "unscale_gradients", "get_scale")


class ClipOfScaledGradients(AuditRule):
    id = "clip-of-scaled-gradients"
    family = "precision"
    severity = "error"
    gain = 0.1
    why = (
        "a GradScaler multiplies gradients by some 65,536 until its step divides them again: a"
        " threshold of 1 before that cuts every step to a length that follows the scale, and the"
        " norm that is logged is not the gradient's"
    )
    size = "every step is clipped, and below Adam's eps small ones shrink; no number published"
    source = "torch.amp documentation: unscale before clipping"
    fix = "scaler.unscale_(optimizer) between backward and clip_grad_norm_"

    def in_script(self, script: Script) -> Sightings:
        scaled = _scaled_backwards(script)
        unscaled = script.named(*UNSCALES)
        told = set[ast.AST | None]()
        for clip in script.calls:
            base, _, name = dotted(clip.func).rpartition(".")
            own = script.function(clip)
            if own in told or not CLIPS.search(name) or UNSCALES_ITSELF.search(base):
                continue
            here = [call for call in unscaled if script.function(call) is own]
            elsewhere = len(here) < len(unscaled)  # a function that this one may call: not followed
            before = [call for call in scaled if _same_home(script, call, clip)]
            if before and not elsewhere and not any(call.lineno <= clip.lineno for call in here):
                late = (
                    f"; line {here[0].lineno} unscales only afterwards"
                    if here
                    else ", and nothing unscales them"
                )
                told.add(own)
                yield Sighting(
                    script.at(clip),
                    f"{source_of(clip)} after line {before[0].lineno} scaled the loss{late}",
                )


def _scaled_backwards(script: Script) -> list[ast.Call]:
    """Calls of a scaler's `scale` whose result goes backward: `scaler.scale(loss).backward()`, or
    by way of a name."""
    names = {dotted(call.func).rpartition(".")[0] for call in script.named("backward")}
    scaled = []
    for call in script.named("scale"):
        named = any(call in script.assignments.get(name, ()) for name in names)
        goes = (dotted(call) in names or named) and bool(call.args)
        if isinstance(call.func, ast.Attribute) and goes:
            scaled.append(call)
    return scaled


def _same_home(script: Script, one: ast.AST, other: ast.AST) -> bool:
    """Do both stand in one function, or in methods of one class, or does the second's function call
    the first's?"""
    mine, yours = script.function(one), script.function(other)
    if mine is yours:
        return True
    if mine is not None and any(
        dotted(call.func) == mine.name and script.function(call) is yours for call in script.calls
    ):
        return True
    homes = [
        next((node for node in script.around(each) if isinstance(node, ast.ClassDef)), None)
        for each in (one, other)
    ]
    return homes[0] is not None and homes[0] is homes[1]


# --------------------------------------------------------------------------------------------------
# Rule: training in fp16 without a gradient scaler.


SCALES_ITSELF = (
    r"^(accelerator|accelerate|deepspeed|lightning|fabric|composer|gradscaler|grad_scaler|scaler)$"
)


class Fp16WithoutScaler(AuditRule):
    id = "fp16-without-scaler"
    family = "precision"
    severity = "error"
    gain = 0.3
    why = (
        "gradients below 6e-8 become zero in fp16, and those of a diffusion model are often that"
        " small"
    )
    size = "training stalls or turns into NaN"
    source = "torch.amp documentation"
    fix = (
        "use dtype=torch.bfloat16, or scale: scaler.scale(loss).backward(); scaler.step(optimizer);"
        " scaler.update()"
    )

    def in_script(self, script: Script) -> Sightings:
        if script.mentions(SCALES_ITSELF):
            return
        for call in script.named("autocast"):
            device = call.args[0] if call.args else keyword(call, "device_type")
            # whose default is fp16
            own = dotted(call.func).startswith("torch.cuda") or is_constant(device, "cuda")
            given = keyword(call, "dtype") or (call.args[1] if len(call.args) > 1 else None)
            half = script.formats(given) == {"fp16"} if given is not None else own
            if (
                half
                and not is_constant(keyword(call, "enabled"), False)
                and _goes_backward(script, call)
            ):
                what = (
                    "in float16"
                    if given is not None
                    else "without a dtype, which on CUDA means float16"
                )
                yield Sighting(script.at(call), f"torch.autocast {what}, and no GradScaler")


def _goes_backward(script: Script, call: ast.Call) -> bool:
    """Is it around training, not around drawing pictures?"""
    home = script.function(call) or script.tree
    return any(
        isinstance(node, ast.Call) and dotted(node.func).endswith("backward")
        for node in ast.walk(home)
    )


# --------------------------------------------------------------------------------------------------
# Rule: FSDP's mixed precision casts the timestep and the rotary table at the door of a block.


TIMES = (
    r"^(timesteps?|sigmas?|t_emb|temb|rope|rotary\w*|freqs_cis|time_embed\w*|time_in|"
    r"noise_scheduler|flow_match\w*|diffusion\w*"
    r"|flux\w*|double_blocks|unet\w*|dit|latents?)$"
)
READS_WORDS = re.compile(r"encoder|t5|clip|text")  # whole numbers are not cast


class FsdpCastsInputs(AuditRule):
    id = "fsdp-casts-inputs"
    family = "precision"
    severity = "error"
    also = "warning where the dtype is not known"
    gain = 0.1
    why = (
        "a policy with param_dtype=bf16 casts every floating input of the wrapped module, the time"
        " and the rotary table included: near 1 a time is rounded to 1/256"
    )
    size = "no number published"
    source = "docs/published.md, A18"
    published = "A18"
    fix = (
        "MixedPrecisionPolicy(param_dtype=torch.bfloat16, cast_forward_inputs=False), and cast at"
        " the linears"
    )

    def in_script(self, script: Script) -> Sightings:
        if not script.mentions(TIMES):
            return  # a language model's inputs are whole numbers, which are not cast
        for call in script.named("MixedPrecisionPolicy", "MixedPrecision"):
            own = called(call)
            switch = (
                "cast_forward_inputs"
                if own == "MixedPrecisionPolicy"
                else "cast_root_forward_inputs"
            )
            dtype = keyword(call, "param_dtype") or (call.args[0] if call.args else None)
            formats = script.formats(dtype)
            if dtype is None or formats == {"fp32"} or is_constant(keyword(call, switch), False):
                continue
            if not READS_WORDS.search(script.context(call)):
                seen = f"{source_of(call)} leaves {switch} at True"
                yield Sighting(
                    script.at(call),
                    seen,
                    f"add {switch}=False",
                    None if formats & LOW else "warning",
                )

    def in_config(self, config: ConfigFile) -> Sightings:
        low = [
            entry
            for entry in config.find(r"fsdp.*(param_dtype|mixed_precision)(\.param_dtype)?$")
            if entry.low or entry.text in ("default", "pure")
        ]
        kept = any(entry.off for entry in config.find(r"fsdp.*cast_(root_)?forward_inputs$"))
        if low and not kept:
            yield Sighting(
                config.at(low[0]),
                f"{low[0].path} = {low[0].value}, and no cast_forward_inputs: false",
                "add cast_forward_inputs: false",
            )


# --------------------------------------------------------------------------------------------------
# Rule: a gradient scaler with bf16.


class GradScalerWithBf16(AuditRule):
    id = "grad-scaler-with-bf16"
    family = "precision"
    severity = "note"
    gain = 0.01
    why = (
        "bf16 has the range of fp32, so nothing underflows: the scaler only adds skipped steps and"
        " a state that a resume must not forget"
    )
    size = "no quality; steps that are skipped for nothing"
    source = "torch.amp documentation: scaling is for float16"
    fix = "remove the GradScaler, or give it enabled=(dtype == torch.float16)"

    def in_script(self, script: Script) -> Sightings:
        formats = {
            one
            for call in script.named("autocast")
            for one in script.formats(
                keyword(call, "dtype") or (call.args[1] if len(call.args) > 1 else None)
            )
        }
        if formats != {"bf16"}:
            return
        for call in script.named("GradScaler"):
            enabled = keyword(call, "enabled")
            if enabled is None or is_constant(enabled, True):
                yield Sighting(script.at(call), "a GradScaler beside torch.autocast in bfloat16")

    def in_config(self, config: ConfigFile) -> Sightings:
        bf16 = any(
            "bf16" in entry.text or "bfloat16" in entry.text
            for entry in config.find(r"precision|dtype|amp")
        )
        for entry in config.find(r"(^|[._])(use_)?grad(ient)?_scal(er|ing)(\.enabled)?$"):
            if entry.on and bf16:
                yield Sighting(
                    config.at(entry),
                    f"{entry.path} = {entry.value} beside bf16",
                    f"set {config.setting(entry, False)}",
                )


# --------------------------------------------------------------------------------------------------
# What rules about one operation in bf16 share: a run of ours has a setting for it, and a probed
# step tells in which formats it ran.


class OperationInBf16(AuditRule):
    """A rule about one operation of the step."""

    family = "precision"
    size = "no number published; the page of our lever has what we measured"
    slot: ClassVar[Kind]  # of `precision`
    said: ClassVar[str]  # of a run of ours
    ran: ClassVar[str]  # of a step: how the operation is called, and in which formats
    fused: ClassVar[tuple[str, ...]] = ()  # kernels that sum in fp32

    def in_run(self, run: RunSpec) -> Sightings:
        if getattr(run.precision, self.slot) == "bf16":
            slot = f"precision.{self.slot}"
            yield Sighting(slot, self.said, f"--set {slot}=fp32")

    def in_step(self, step: StepTrace) -> Sightings:
        for one in step.of(self.slot):
            if one.low:
                seen = self.ran.format(one.operation, one.formats)
                if one.operation in self.fused:
                    seen += ": its kernel sums in fp32, what it takes and gives is rounded"
                    yield Sighting(one.place, seen, severity="note")
                else:
                    yield Sighting(one.place, seen)


# --------------------------------------------------------------------------------------------------
# Rule: the loss is computed in bf16.


LOSSES = ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss")


class LossInBf16(OperationInBf16):
    id = "loss-in-bf16"
    slot = "loss"
    said = "the terms of the loss are computed in bf16"
    ran = "the loss is reduced by {} in {}"
    gain = 0.05
    why = (
        "a mean over many squares and the difference of two close numbers are what bf16 is worst at"
    )
    lever = "bf16_op(op=loss)"
    fix = "F.mse_loss(prediction.float(), target.float())"

    def in_script(self, script: Script) -> Sightings:
        low = [
            cast
            for cast in script.casts
            if cast.formats and cast.formats <= LOW and script.is_trained(cast.name, cast.node)
        ]
        for call in script.named(*LOSSES):
            own = [
                cast.name
                for cast in low
                if script.function(cast.node) in (None, script.function(call))
            ]
            autocast = any(
                isinstance(one, ast.With) and "autocast" in ast.unparse(one.items[0].context_expr)
                for one in script.around(call)
            )
            if (
                own
                and not autocast
                and "float" not in " ".join(ast.unparse(argument) for argument in call.args)
            ):
                yield Sighting(
                    script.at(call), f"{source_of(call)} on what `{own[0]}` gives in low precision"
                )


# --------------------------------------------------------------------------------------------------
# Rule: a norm in bf16.


FUSED = (
    "native_layer_norm",
    "native_group_norm",
    "native_batch_norm",
    "cudnn_batch_norm",
    "_fused_rms_norm",
)


class NormInBf16(OperationInBf16):
    id = "norm-in-bf16"
    slot = "norm"
    said = "a norm is computed in bf16"
    ran = "a norm ran as {} on {}"
    fused = FUSED
    also = "note of a fused kernel, which sums in fp32"
    gain = 0.04
    why = (
        "what it takes and gives is rounded to 8 bits in every block; one written by hand (rsqrt of"
        " a mean) sums in bf16"
    )
    lever = "bf16_op(op=norm)"
    fix = (
        "cast inside the norm: x.float() before, .to(dtype) after; torch.autocast does it for"
        " layer_norm"
    )


# --------------------------------------------------------------------------------------------------
# Rule: the optimizer's moments are kept in bf16.


class OptimizerStateInBf16(AuditRule):
    id = "optimizer-state-in-bf16"
    family = "precision"
    gain = 0.1
    why = (
        "with beta2 = 0.999 a second moment moves by a thousandth per step, and bf16 cannot hold a"
        " change below 1/256: it freezes"
    )
    size = "no published number; the page of our lever has what we measured"
    lever = "bf16_optimizer_state"
    fix = (
        "keep exp_avg and exp_avg_sq in fp32: they take the dtype of the weights, so store those in"
        " fp32"
    )

    def in_config(self, config: ConfigFile) -> Sightings:
        for entry in config.find(r"optim.*(state|moment)\w*dtype$"):
            if entry.low:
                yield Sighting(config.at(entry), f"{entry.path} = {entry.value}")

    def in_run(self, run: RunSpec) -> Sightings:
        if run.precision.optimizer == "bf16":
            yield Sighting(
                "precision.optimizer",
                "the optimizer remembers in bf16",
                "--set precision.optimizer=fp32",
            )

    def in_tensors(self, tensors: StoredTensors) -> Sightings:
        low = [
            one
            for one in matching(tensors.tensors, "exp_avg", "momentum_buffer")
            if one.format in LOW_STORED
        ]
        if low:
            yield Sighting(
                low[0].name,
                f"{len(low)} tensors of the optimizer's state are stored in {low[0].format}",
            )

    def in_step(self, step: StepTrace) -> Sightings:
        low = [name for name, kind in step.optimizer_state.items() if kind in LOW]
        if low:
            yield Sighting(
                low[0],
                f"{len(low)} of {len(step.optimizer_state)} moments of the optimizer are kept in "
                f"{step.optimizer_state[low[0]]}",
            )


# --------------------------------------------------------------------------------------------------
# Rule: the projector of an alignment term is itself stored and trained in bf16.


NAMES = ("projector", "proj_head", "align", "repa")


class ProjectorInBf16(AuditRule):
    id = "projector-in-bf16"
    family = "precision"
    gain = 0.05
    why = (
        "the projector is trained like the model: stored in bf16 it loses small updates, and the"
        " term is blamed for it"
    )
    size = "no number published; the study that warned of bf16 storage had this fault itself"
    source = "docs/published.md, A17"
    published = "A17"
    fix = "keep the projector in fp32 and cast what it is given: projector(h.float())"

    def in_script(self, script: Script) -> Sightings:
        for cast in script.casts:
            if (
                cast.formats & LOW
                and any(name in cast.name.lower() for name in NAMES)
                and not _is_tensor(cast.name)
            ):
                yield Sighting(
                    script.at(cast.node),
                    f"`{cast.name}` is stored in low precision: {source_of(cast.node)}",
                )

    def in_config(self, config: ConfigFile) -> Sightings:
        for entry in config.find(r"projector\w*(\.|_)(\w+_)?dtype$"):
            if entry.low:
                yield Sighting(
                    config.at(entry),
                    f"{entry.path} = {entry.value}",
                    f"set {config.setting(entry, 'fp32')}",
                )


def _is_tensor(name: str) -> bool:
    """`aligned`, `repa_target`: what a projector gives, not what it is."""
    return any(
        word in name.lower()
        for word in ("target", "feature", "loss", "token", "aligned", "weight", "states")
    )


# --------------------------------------------------------------------------------------------------
# Rule: rotary positions in bf16.


ROTARY_NAMES = ("rope", "rotary", "freqs", "freqs_cis", "inv_freq", "cos", "sin", "pos_emb")


class RotaryInBf16(OperationInBf16):
    id = "rotary-in-bf16"
    slot = "rope"
    said = "rotary positions are computed in bf16"
    ran = "rotary positions ran as {} on {}"
    gain = 0.05
    why = (
        "bf16 cannot tell 256 from 257: angles of far positions are rounded to their neighbours',"
        " and cos and sin to 8 bits"
    )
    lever = "bf16_op(op=rope)"
    fix = (
        "keep positions, angles, cos and sin in fp32, turn queries and keys in fp32, and cast"
        " afterwards"
    )

    def in_script(self, script: Script) -> Sightings:
        for cast in script.casts:
            if (
                cast.name.lower().rpartition(".")[2] in ROTARY_NAMES
                and cast.formats
                and cast.formats <= LOW
            ):
                yield Sighting(
                    script.at(cast.node), f"the rotary table is cast: {source_of(cast.node)}"
                )


# --------------------------------------------------------------------------------------------------
# Rule: a softmax in bf16.


FUSED_ATTENTION = ("_softmax", "_log_softmax", "_safe_softmax")


class SoftmaxInBf16(OperationInBf16):
    id = "softmax-in-bf16"
    slot = "softmax"
    said = "a softmax is computed in bf16"
    ran = "a softmax ran as {} on {}"
    fused = FUSED_ATTENTION
    also = "note of a fused kernel, which sums in fp32"
    gain = 0.04
    why = (
        "scores are rounded to 8 bits before they are compared, and the weights of many tokens"
        " after it"
    )
    lever = "bf16_op(op=softmax)"
    fix = "scores.float().softmax(-1), or scaled_dot_product_attention, whose kernels sum in fp32"


# --------------------------------------------------------------------------------------------------
# Rule: the timestep or noise level in bf16.


NAME = re.compile(r"^(t|time|times|timesteps?|sigmas?|noise_levels?)$")
MAKES = re.compile(r"(^|_)(sigmas?|timesteps?)$")


class TimeInBf16(OperationInBf16):
    id = "time-in-bf16"
    slot = "time"
    said = "the denoiser is told the time in bf16"
    ran = "the time went through {} as {}"
    gain = 0.08
    why = (
        "near 1 bf16 holds only every 256th: the network is told another time than the noise was"
        " mixed at, most of all where pictures take shape"
    )
    size = "times near 1 are off by up to 1/512; no number published"
    source = "docs/published.md, A18"
    lever = "bf16_op(op=time)"
    fix = (
        "keep t and sigma in fp32 to the time embedding, mix x_t in fp32, and cast only what goes"
        " into the products"
    )

    def in_script(self, script: Script) -> Sightings:
        # elsewhere `t` is any tensor
        noisy = script.mentions(r"timestep|sigma|noise|diffusion|flow_match")
        for cast in script.casts if noisy else ():
            # lambda t: t.half()
            anything = any(isinstance(one, ast.Lambda) for one in script.around(cast.node))
            if (
                NAME.match(cast.name.lower().rpartition(".")[2])
                and cast.formats & LOW
                and not anything
            ):
                yield Sighting(
                    script.at(cast.node),
                    f"{source_of(cast.node)} rounds the time to"
                    f" {' or '.join(sorted(cast.formats & LOW))}",
                )
        for call in script.calls:
            end = called(call).lower()
            formats = script.formats(keyword(call, "dtype"))
            if MAKES.search(end) and formats & LOW:
                yield Sighting(
                    script.at(call),
                    f"{source_of(call)} gives noise levels in {' or '.join(sorted(formats & LOW))}",
                )


# --------------------------------------------------------------------------------------------------
# Rule: updates that are smaller than what the stored weights can hold.


BITS = {"BF16": 8, "F16": 11}  # significant ones
ENOUGH = 0.2  # share of lost updates that is worth a word


class UpdatesRoundAway(AuditRule):
    id = "updates-round-away"
    family = "precision"
    severity = "error"
    also = "note of parts that are frozen as a rule: text encoders, autoencoders"
    gain = 0.2
    why = (
        "Adam moves a weight by about the learning rate; where that is less than half the distance"
        " to the next bf16 number, the weight never moves"
    )
    size = "the share of updates that round to nothing is told with the fault"
    source = "arithmetic on the sampled values"
    lever = "bf16_storage"
    fix = "keep an fp32 copy of the weights for the optimizer, or round at random"

    def in_tensors(self, tensors: StoredTensors) -> Sightings:
        if tensors.rate is None:
            return
        parts = [(one, tensors.sample(one)) for one in tensors.tensors if one.format in BITS]
        shares = [
            lost_share(values, tensors.rate, BITS[one.format])
            for one, values in parts
            if len(values)
        ]
        counts = [one.numbers for one, values in parts if len(values)]
        share = float(np.average(shares, weights=counts)) if counts else 0.0
        if share > ENOUGH:
            worst = max(zip(shares, parts, strict=False), key=lambda pair: pair[0])
            yield Sighting(
                worst[1][0].name,
                f"at a learning rate of {tensors.rate:g}, {share:.0%} of the updates round to"
                f" nothing ({worst[0]:.0%} in this tensor)",
            )

    def in_folder(self, folder: ModelFolder) -> Sightings:
        for part in folder.parts:
            for one in self.in_tensors(part.tensors):
                place = f"{part.name}: {one.place}" if part.name else one.place
                if part.name in TRAINED:
                    yield one._replace(place=place)
                else:
                    seen = f"{one.seen}; it matters only if the {part.name} is trained too"
                    yield one._replace(place=place, seen=seen, severity="note")

    def in_step(self, step: StepTrace) -> Sightings:
        if step.lost_updates > ENOUGH:
            yield Sighting(
                "optimizer",
                f"at the optimizer's learning rate {step.lost_updates:.0%} of the updates round to"
                " nothing",
            )


def lost_share(values: NDArray[np.float32], rate: float, bits: int) -> float:
    """Of these weights, those that an update of `rate` leaves where they are: it is below half
    their spacing."""
    spacing = 2.0 ** (np.floor(np.log2(np.maximum(np.abs(values), 1e-30))) + 1 - bits)
    return float(np.mean(rate < spacing / 2)) if len(values) else 0.0


# --------------------------------------------------------------------------------------------------
# Rule: a checkpoint holds numbers that are not finite.


class ValuesNotFinite(AuditRule):
    id = "values-not-finite"
    family = "precision"
    severity = "error"
    gain = 1.0
    effort = "rework"
    why = "one NaN in a weight makes every output NaN"
    size = "the checkpoint draws nothing"
    source = "arithmetic"
    fix = (
        "go back to the checkpoint before; stop at the first loss or gradient that is not finite,"
        " before the optimizer"
    )

    def in_tensors(self, tensors: StoredTensors) -> Sightings:
        for tensor in tensors.tensors:
            values = tensors.sample(tensor)
            bad = int(np.sum(~np.isfinite(values)))
            if bad:
                yield Sighting(
                    tensor.name, f"{bad:,} of {len(values):,} sampled values are not finite"
                )


# --------------------------------------------------------------------------------------------------
# Rule: weights that an optimizer trains are stored in bf16 or fp16.


KEYS = (
    r"(^|[._])((master_)?weights?_dtype|storage_dtype|model_dtype|pure_bf16|full_bf16|"
    r"full_fp16|"
    r"model\.dtype)$"
)
# what they add is in fp32, the rest is frozen
ADAPTERS = ("get_peft_model", "add_adapter", "inject_adapter_in_model")
ROUNDS = r"stochastic_round"
STATE = ("exp_avg", "momentum_buffer", "optimizer.")


def _wider(name: str) -> str:
    """fp32 in the words of the file: bfloat16 -> float32, bf16 -> fp32."""
    return re.sub(r"bfloat16|float16|half", "float32", re.sub(r"\b(bf16|fp16)", "fp32", name))


class WeightsInBf16(AuditRule):
    id = "weights-in-bf16"
    family = "precision"
    severity = "error"
    also = "note of weights without an optimizer's state beside them"
    gain = 0.2
    why = (
        "bf16 keeps 8 bits: an update smaller than 1/256 to 1/512 of a weight rounds to nothing,"
        " and late in training most are"
    )
    size = "FID 18.2 to 21.9 when the weights are stored in bf16 (not a clean arm: A10)"
    source = "PRX Part 2"
    lever = "bf16_storage"
    fix = (
        "keep the weights that are trained in fp32 and compute in bf16: torch.autocast, or a cast"
        " inside the layers"
    )

    def in_script(self, script: Script) -> Sightings:
        frozen = {
            dotted(one.func).rpartition(".")[0]
            for one in script.named("requires_grad_")
            if one.args and is_constant(one.args[0], False)
        }
        rescued = bool(
            script.named("cast_training_params", "upcast_trainable_params", *ADAPTERS)
        ) or script.mentions(ROUNDS)
        reported = set[str]()
        for cast in script.casts:
            passed = cast.name in frozen | reported or rescued
            if not passed and cast.formats & LOW and script.is_trained(cast.name, cast.node):
                reported.add(cast.name)
                formats = " or ".join(sorted(cast.formats & LOW))
                yield Sighting(
                    script.at(cast.node),
                    f"`{cast.name}` is stored in {formats} by {source_of(cast.node)} and its"
                    " parameters are optimized",
                    f"leave `{cast.name}` in fp32; wrap its forward pass in torch.autocast(device,"
                    " dtype=torch.bfloat16)",
                )
        for call in script.named("set_default_dtype"):
            if call.args and script.formats(call.args[0]) & LOW and script.optimizers:
                yield Sighting(
                    script.at(call),
                    "every tensor that is made from here on is stored in low precision, weights"
                    " included",
                )

    def in_config(self, config: ConfigFile) -> Sightings:
        for entry in config.find(KEYS):
            if entry.on or entry.low:
                yield Sighting(
                    config.at(entry),
                    f"{entry.path} = {entry.value}",
                    f"set {config.setting(entry, False if entry.on else _wider(entry.text))}; keep"
                    " mixed_precision at bf16",
                )

    def in_run(self, run: RunSpec) -> Sightings:
        if run.precision.storage == "bf16" and run.precision.rounding == "nearest":
            yield Sighting(
                "precision.storage",
                "weights are stored in bf16",
                "--set precision.storage=fp32, or add the lever stochastic_rounding",
            )

    def in_tensors(self, tensors: StoredTensors) -> Sightings:
        beside = set(matching(tensors.tensors, *STATE, "ema"))
        weights = [one for one in tensors.tensors if one not in beside]
        numbers, low = (
            sum(one.numbers for one in weights if one.format in kinds)
            for kinds in (STORED_BITS, LOW_STORED)
        )
        if low <= 0.5 * numbers:
            return
        resumes = bool(matching(tensors.tensors, *STATE))
        formats = ", ".join(sorted({one.format for one in weights} & set(LOW_STORED)))
        seen = f"{low / numbers:.0%} of {numbers:,} numbers are stored in {formats}"
        if resumes:
            yield Sighting("weights", seen + ", and an optimizer's state lies beside them")
        else:
            yield Sighting(
                "weights",
                seen + ": right for drawing, not for going on to train",
                "load with torch_dtype=torch.float32 before training on from it",
                "note",
            )

    def in_folder(self, folder: ModelFolder) -> Sightings:
        for part in folder.parts:
            if part.name in TRAINED:
                for one in self.in_tensors(part.tensors):
                    yield one._replace(place=part.name or "weights")

    def in_step(self, step: StepTrace) -> Sightings:
        low = [name for name, kind in step.trained.items() if kind in LOW]
        if low:
            yield Sighting(
                low[0],
                f"{len(low)} of {len(step.trained)} trained parameters are stored in"
                f" {step.trained[low[0]]}",
            )

"""Audit rules about the autoencoder."""

import ast
import re
from collections.abc import Iterable, Iterator
from statistics import median
from typing import TYPE_CHECKING

from fulcrum.advice.configs import ConfigFile
from fulcrum.advice.rule import AuditRule, Sighting, Sightings
from fulcrum.advice.scripts import (
    Script,
    arguments,
    called,
    dotted,
    name_of,
    number,
    source_of,
    text_of,
)
from fulcrum.advice.tensors import ModelFolder, matching
from fulcrum.spec.errors import FulcrumError
from fulcrum.spec.run import RunSpec

if TYPE_CHECKING:
    from fulcrum.advice.tensors import CodecTrial


# --------------------------------------------------------------------------------------------------
# Rule: the denoiser is built for other channels than the autoencoder has.


CODEC = (
    r"(vae|autoencoder|codec|tokenizer)\w*\.(latent_channels|channels|out_channels|z_channels)$"
    r"|(^|[._])(latent_channels|vae_channels|z_channels)$"
)
DENOISER = r"(model|transformer|unet|denoiser|backbone|dit)\w*\.in_channels$|^in_channels$"


class ChannelsMismatch(AuditRule):
    id = "channels-mismatch"
    family = "tokenizer"
    severity = "error"
    gain = 1.0
    why = (
        "a denoiser for 3 channels cannot read 16 of latents: the first step fails, or a projection"
        " was added that nobody sees"
    )
    size = "the training cannot run as it is written"
    source = "docs/published.md, A13"
    published = "A13"
    fix = (
        "set the denoiser's in_channels to the autoencoder's latent_channels (times patch squared,"
        " if it is given packed latents)"
    )

    def in_config(self, config: ConfigFile) -> Sightings:
        codec, denoiser = config.first(CODEC), config.first(DENOISER)
        if (
            codec
            and denoiser
            and codec.number
            and denoiser.number
            and not _fit(codec.number, denoiser.number)
        ):
            yield Sighting(
                config.at(denoiser),
                f"{denoiser.path} = {denoiser.value}, and {codec.path} = {codec.value}",
                f"set {denoiser.path} to {codec.value}",
            )

    def in_folder(self, folder: ModelFolder) -> Sightings:
        vae, denoiser = folder.part("vae"), folder.part("transformer", "unet")
        latent = vae.config.get("latent_channels") if vae else None
        given = denoiser.config.get("in_channels") if denoiser else None
        if (
            denoiser
            and isinstance(latent, int)
            and isinstance(given, int)
            and not _fit(latent, given)
        ):
            yield Sighting(
                f"{denoiser.name}/config.json",
                f"in_channels is {given}, and the autoencoder gives {latent}",
            )


def _fit(latent: float, given: float) -> bool:
    """As they are, packed two by two, with a mask and a masked picture beside (inpainting), or with
    an edited picture."""
    return given in {
        latent,
        4 * latent,
        2 * latent,
        2 * latent + 1,
        16 * latent,
        4 * (2 * latent + 64),
        8 * latent,
    }


# --------------------------------------------------------------------------------------------------
# Rule: an autoencoder is loaded through another one's class.


# What a repository or folder is called -> the class that reads it.
OWN = (
    (re.compile(r"(?i)flux[._-]?2"), "AutoencoderKLFlux2"),
    (re.compile(r"(?i)dc-?ae"), "AutoencoderDC"),
    (re.compile(r"(?i)qwen-?image"), "AutoencoderKLQwenImage"),
)
CLASSES = (
    "AutoencoderKL",
    "AutoencoderKLFlux2",
    "AutoencoderDC",
    "AutoencoderKLQwenImage",
    "AutoencoderTiny",
)


class CodecClassMismatch(AuditRule):
    id = "codec-class-mismatch"
    family = "tokenizer"
    severity = "error"
    gain = 0.4
    why = (
        "another class reads the tensors it knows and drops the rest, the batch-norm statistics for"
        " one: the latents are of another space"
    )
    size = "the published FLUX.2 arm (FID 12.1 against 18.2) is of such a space"
    source = "docs/published.md, A20"
    published = "A20"
    lever = "flux2_codec"
    fix = (
        "load it through its own class: AutoencoderKLFlux2 for FLUX.2, AutoencoderDC for DC-AE; or "
        "AutoModel.from_pretrained"
    )

    def in_script(self, script: Script) -> Sightings:
        for call in script.named(*(f"{name}.from_pretrained" for name in CLASSES)):
            used = dotted(call.func).split(".")[-2]
            for text in _texts(script, call):
                wanted = _own(text)
                if wanted and wanted != used and used != "AutoencoderTiny":
                    yield Sighting(
                        script.at(call),
                        f"{source_of(call)} reads {text!r}",
                        f"use {wanted}.from_pretrained",
                    )
                    break

    def in_config(self, config: ConfigFile) -> Sightings:
        for entry in config.entries:
            if entry.value not in CLASSES or entry.value == "AutoencoderTiny":
                continue
            folder = entry.path.rpartition(".")[0]
            for other in config.entries:
                wanted = (
                    _own(other.text)
                    if other.path.rpartition(".")[0] == folder and isinstance(other.value, str)
                    else ""
                )
                if (
                    wanted
                    and wanted != entry.value
                    and other is not entry
                    and other.value not in CLASSES
                ):
                    yield Sighting(
                        config.at(entry),
                        f"{entry.path} = {entry.value} reads {other.path} = {other.value}",
                        f"set {config.setting(entry, wanted)}",
                    )

    def in_folder(self, folder: ModelFolder) -> Sightings:
        for part in folder.parts:
            if part.declared and part.own and part.declared != part.own and part.name == "vae":
                yield Sighting(
                    part.name,
                    f"model_index.json loads it as {part.declared}, its own config.json says"
                    f" {part.own}",
                    f"write {part.own} into model_index.json",
                )
            used = part.declared or part.own
            norms = matching(part.tensors.tensors, "bn.running_mean")
            if used == "AutoencoderKL" and norms:
                yield Sighting(
                    part.name or "vae",
                    f"{norms[0].name} is there, and AutoencoderKL has no place for it",
                    "load it as AutoencoderKLFlux2",
                )


def _texts(script: Script, call: ast.Call) -> list[str]:
    parts = [part for argument in arguments(call) for part in script.meanings(argument, 2)]
    return [text for text in map(text_of, parts) if text is not None]


def _own(text: str) -> str:
    return next((name for pattern, name in OWN if pattern.search(text)), "")


# --------------------------------------------------------------------------------------------------
# Rule: pictures in [0, 1] are given to an autoencoder that was trained on [-1, 1].


UNIT = ("ToTensor",)  # torchvision's: bytes become [0, 1]
LATENTS = "latent_dist"
# Names of whatever may move the range: Normalize, preprocess, VaeImageProcessor, to_minus_one_one,
# rescale.
MOVES = re.compile(
    r"(?i)normali[sz]e|preprocess|processor|rescale|minus_?one|signed|standardi[sz]e|to_range"
)
CENTRES = (0.5, 1.0, 127.5)


class CodecRange(AuditRule):
    id = "codec-range"
    family = "tokenizer"
    severity = "error"
    gain = 0.2
    why = (
        "autoencoders of diffusers read pictures in [-1, 1]: in [0, 1] every picture is bright and"
        " of half the contrast, and what is drawn comes back washed out"
    )
    size = "latents of other pictures than those that are shown; no number published"
    source = "diffusers documentation"
    fix = "transforms.Normalize([0.5], [0.5]) after ToTensor()"

    def in_script(self, script: Script) -> Sightings:
        if not script.trains or _moved(script):
            return
        encoded = [
            node
            for node in script.nodes
            if isinstance(node, ast.Attribute) and node.attr == LATENTS
        ]
        for call in script.named("Compose") if encoded else ():
            last = (
                call.args[0].elts[-1]
                if call.args and isinstance(call.args[0], ast.List) and call.args[0].elts
                else None
            )
            if isinstance(last, ast.Call) and called(last) in UNIT:
                yield Sighting(
                    script.at(last),
                    f"{source_of(last)} gives [0, 1], nothing moves it to [-1, 1], and line"
                    f" {encoded[0].lineno} encodes it",
                )


def _moved(script: Script) -> bool:
    """Does a name speak of it (an argument's, as of a metric, does not), or is something subtracted
    or divided away that centres pixels: x * 2 - 1, (x - 0.5) / 0.5, x / 127.5 - 1?"""
    names = [name_of(node) for node in script.nodes if not isinstance(node, ast.arg | ast.keyword)]
    return any(name and MOVES.search(name) for name in names) or any(
        isinstance(node, ast.BinOp)
        and (
            (isinstance(node.op, ast.Sub) and number(node.right) in CENTRES)
            or (isinstance(node.op, ast.Div) and number(node.right) == 127.5)
        )
        or isinstance(node, ast.Call)
        and called(node) in ("sub", "sub_", "subtract")
        for node in script.nodes
    )


# --------------------------------------------------------------------------------------------------
# Rule: latents whose deviation is far from one.


LOW, HIGH = 0.6, 1.6


class LatentDeviation(AuditRule):
    id = "latent-deviation"
    family = "tokenizer"
    gain = 0.1
    effort = "edit"
    why = (
        "noise has deviation one: latents of another deviation shift the noise schedule, and what"
        " looks like a better autoencoder may be a better schedule"
    )
    size = "no number published"
    fix = (
        "normalise by the statistics of your own pictures, or shift the times by the deviation:"
        " --set flow.noise_scale"
    )

    def in_codec_trial(self, trial: "CodecTrial") -> Sightings:
        if not LOW <= trial.deviation <= HIGH:
            least, most = min(trial.channels), max(trial.channels)
            seen = (
                f"latents of these pictures have a deviation of {trial.deviation:.2f} (channels"
                f" {least:.2f} to {most:.2f})"
            )
            yield Sighting(
                trial.codec,
                seen,
                "set scaling_factor and shift_factor from the statistics of your own pictures",
            )

    def in_run(self, run: RunSpec) -> Sightings:
        # pixels in [-1, 1] are what they are; recipes for them shift the times
        if run.encode.codec.stride == 1:
            return
        try:
            deviation = run.encode.codec.deviation(run.data.source)
        except (FulcrumError, OSError):  # a folder that is elsewhere
            return
        scale = run.flow.noise_scale
        if deviation is not None and not LOW * scale <= deviation <= HIGH * scale:
            yield Sighting(
                "encode.codec",
                f"latents have a deviation of {deviation:g} where the noise has {scale:g}",
            )


# --------------------------------------------------------------------------------------------------
# Rule: the latents' scale is typed in, and is another autoencoder's.


# scale -> whose it is; names that have another one
SCALES = {
    0.18215: "Stable Diffusion 1 and 2",
    0.13025: "SDXL",
    0.3611: "FLUX.1",
    1.5305: "Stable Diffusion 3",
}
FAMILIES = (
    (re.compile(r"(?i)flux[._-]?1|flux-?(dev|schnell)"), 0.3611),
    (re.compile(r"(?i)sdxl|stable-diffusion-xl"), 0.13025),
    (re.compile(r"(?i)stable-diffusion-(3|v3)|sd3"), 1.5305),
)


class LatentScaleTyped(AuditRule):
    id = "latent-scale-typed"
    family = "tokenizer"
    severity = "error"
    gain = 0.2
    why = (
        "the denoiser expects latents of deviation about one; with another's scale they have twice"
        " or half of it, and the noise schedule is another"
    )
    size = "a shifted noise schedule; no number published"
    source = "the configurations of the autoencoders"
    fix = "latents = (latents - vae.config.shift_factor) * vae.config.scaling_factor"

    def in_script(self, script: Script) -> Sightings:
        texts = [text for text in script.texts if len(text) < 200]
        own = _scales(texts)
        typed = {
            node.value
            for node in script.nodes
            if isinstance(node, ast.Constant) and node.value in SCALES
        }
        # a table of several knows whose is whose
        for node in script.nodes if len(typed) == 1 else ():
            value = (
                node.value
                if isinstance(node, ast.Constant) and isinstance(node.value, float)
                else None
            )
            if value in SCALES and own and value not in own:
                yield Sighting(
                    script.at(node),
                    f"{value} is the scale of {SCALES[value]}, and the script loads another"
                    " autoencoder",
                )

    def in_config(self, config: ConfigFile) -> Sightings:
        own = _scales(entry.text for entry in config.entries if isinstance(entry.value, str))
        for entry in config.find(r"scal(e|ing)_factor$|latent_scale$"):
            if entry.number in SCALES and own and entry.number not in own:
                yield Sighting(
                    config.at(entry),
                    f"{entry.path} = {entry.value} is the scale of {SCALES[entry.number or 0]}",
                )


def _scales(texts: Iterable[str]) -> set[float]:
    """Of the autoencoders that some texts name."""
    return {scale for text in texts for pattern, scale in FAMILIES if pattern.search(text)}


# --------------------------------------------------------------------------------------------------
# Rule: an autoencoder's latents are trained on as they come, without its scaling factor.


# what diffusers' autoencoders call the distribution that they encode to
LATENT_DISTRIBUTION = "latent_dist"
WORDS = re.compile(
    r"(?i)scal(e|ing)_factor|shift_factor|running_(mean|var)|(latents?|vae|codec|encoder)_?(scal|"
    r"shift|mean|std|norm)"
)
# functions and methods that may do it
BY_NAME = re.compile(r"(?i)scal|norm|standard|whiten|shift|mul|div")
SIZED = (ast.Mult, ast.Div)


class LatentScaleMissing(AuditRule):
    id = "latent-scale-missing"
    family = "tokenizer"
    severity = "error"
    gain = 0.2
    why = (
        "an autoencoder's latents have any deviation, and its scaling factor brings them to about"
        " one, for which noise schedules are made: without it pictures stand out of the noise for"
        " most of the time, and a pipeline, which divides by the factor, draws something else"
    )
    size = (
        "latents of Stable Diffusion deviate by 5.5 instead of 1, of FLUX.1 by 2.8; no number"
        " published"
    )
    source = "1 / scaling_factor of their configurations"
    fix = (
        "latents = latents * vae.config.scaling_factor (first minus vae.config.shift_factor, where"
        " it has one)"
    )

    def in_script(self, script: Script) -> Sightings:
        if not script.trains or script.named("kl") or self._known(script):
            return
        for node in script.nodes:
            if (
                isinstance(node, ast.Attribute)
                and node.attr == LATENT_DISTRIBUTION
                and not _trained(script, node)
            ):
                latents = _chain(script, node)
                if not any(_sized(script, one) for one in _uses(script, latents)):
                    yield Sighting(
                        script.at(node),
                        f"{source_of(latents)} is never multiplied by the scaling factor",
                    )

    def _known(self, script: Script) -> bool:
        """Does the script speak of the factor other than where it divides by it, which is how
        latents are decoded?"""
        for node in script.nodes:
            text = node.value if isinstance(node, ast.Constant) else name_of(node)
            spoken = (
                text in SCALES
                if isinstance(text, float)
                else isinstance(text, str) and bool(WORDS.search(text))
            )
            if spoken and not any(
                isinstance(one, ast.BinOp) and isinstance(one.op, ast.Div)
                for one in script.around(node)
            ):
                return True
        return False


def _chain(script: Script, node: ast.AST) -> ast.expr:
    """`vae.encode(x).latent_dist.sample()`, whole."""
    for one in script.around(node):
        if (
            not isinstance(one, ast.Attribute | ast.Call)
            or isinstance(one, ast.Call)
            and node in one.args
        ):
            break
        node = one
    assert isinstance(node, ast.expr)
    return node


def _trained(script: Script, node: ast.Attribute) -> bool:
    """Is the autoencoder itself what is trained? Then its latents are nobody's input."""
    call = next((one for one in ast.walk(node) if isinstance(one, ast.Call)), None)
    return call is not None and script.is_trained(dotted(call.func).rpartition(".")[0], node)


def _uses(script: Script, latents: ast.expr) -> Iterator[ast.AST]:
    """The latents, and wherever the names stand that hold them; a function that returns them hands
    them on."""
    yield latents
    names, functions = set[str](), set[str]()
    for one in script.around(latents):
        if isinstance(one, ast.Assign):
            names |= {dotted(target) for target in one.targets}
        elif isinstance(one, ast.Return) and (function := script.function(one)) is not None:
            functions.add(function.name)
    for node in script.nodes:
        held = isinstance(node, ast.Name | ast.Attribute) and dotted(node) in names
        if held or isinstance(node, ast.Call) and called(node) in functions:
            yield node


def _sized(script: Script, node: ast.AST) -> bool:
    """Is it multiplied or divided as a whole, or handed to something that may do so? As one addend
    of a sum it is being mixed with noise: (1 - t) * latents + t * noise."""
    inner = node
    for one in script.around(node):
        if isinstance(one, ast.Call) and BY_NAME.search(called(one)):
            return True
        if isinstance(one, ast.AugAssign):
            return inner is one.target and isinstance(one.op, SIZED)
        if isinstance(one, ast.BinOp) and isinstance(one.op, SIZED):
            outer = next(iter(script.around(one)))
            return not (isinstance(outer, ast.BinOp) and isinstance(outer.op, ast.Add | ast.Sub))
        if isinstance(one, ast.stmt) or isinstance(one, ast.BinOp) and isinstance(one.op, ast.Add):
            return False
        inner = one
    return False


# --------------------------------------------------------------------------------------------------
# Rule: the autoencoder loses what the pictures show.


# dB; Stable Diffusion 1's autoencoder reaches about that on photographs of 256 px, newer ones 30
# and more
POOR = 25.0


class ReconstructionPoor(AuditRule):
    id = "reconstruction-poor"
    family = "tokenizer"
    gain = 0.3
    effort = "rework"
    why = (
        "what the autoencoder cannot give back, no denoiser can draw: fine text, faces and patterns"
        " first"
    )
    size = (
        "FID 18.2 with FLUX.1's autoencoder, 12.1 with FLUX.2's (loaded through another class: A20)"
    )
    source = "PRX Part 2"
    lever = "flux2_codec"
    fix = (
        "take an autoencoder with more channels, tune its decoder on pictures of yours, or train in"
        " pixels"
    )

    def in_codec_trial(self, trial: "CodecTrial") -> Sightings:
        middle = median(trial.psnr)
        if middle < POOR:
            worst = min(range(len(trial.psnr)), key=lambda row: trial.psnr[row])
            yield Sighting(
                trial.names[worst],
                f"half of {len(trial.psnr)} pictures come back with {middle:.1f} dB or less, this"
                f" one with {trial.psnr[worst]:.1f}",
            )

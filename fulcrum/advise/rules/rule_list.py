"""All rules of the audit, in an explicit list: nothing registers itself."""

from fulcrum.advise.audit_rule import AuditRule
from fulcrum.advise.rules.captions.captions_boilerplate import CaptionsBoilerplate
from fulcrum.advise.rules.captions.captions_control_characters import CaptionsControlCharacters
from fulcrum.advise.rules.captions.captions_duplicated import CaptionsDuplicated
from fulcrum.advise.rules.captions.captions_mixed_languages import CaptionsMixedLanguages
from fulcrum.advise.rules.captions.captions_short import CaptionsShort
from fulcrum.advise.rules.captions.captions_truncated import CaptionsTruncated
from fulcrum.advise.rules.captions.captions_unlike_pictures import CaptionsUnlikePictures
from fulcrum.advise.rules.captions.prompts_unlike_captions import PromptsUnlikeCaptions
from fulcrum.advise.rules.captions.samples_broken import SamplesBroken
from fulcrum.advise.rules.captions.text_length_unequal import TextLengthUnequal
from fulcrum.advise.rules.design.arm_changes_nothing import ArmChangesNothing
from fulcrum.advise.rules.design.arm_is_compound import ArmIsCompound
from fulcrum.advise.rules.design.arm_refused import ArmRefused
from fulcrum.advise.rules.design.boolean_as_text import BooleanAsText
from fulcrum.advise.rules.design.caching_unequal import CachingUnequal
from fulcrum.advise.rules.design.default_not_there import DefaultNotThere
from fulcrum.advise.rules.design.doses_unequal import DosesUnequal
from fulcrum.advise.rules.design.epoch_not_set import EpochNotSet
from fulcrum.advise.rules.design.errors_swallowed import ErrorsSwallowed
from fulcrum.advise.rules.design.optimizer_arm_moves_more import OptimizerArmMovesMore
from fulcrum.advise.rules.design.outputs_shared import OutputsShared
from fulcrum.advise.rules.design.power_low import PowerLow
from fulcrum.advise.rules.design.seed_not_in_order import SeedNotInOrder
from fulcrum.advise.rules.design.seeds_unpaired import SeedsUnpaired
from fulcrum.advise.rules.design.setting_read_by_nobody import SettingReadByNobody
from fulcrum.advise.rules.design.too_few_pairs import TooFewPairs
from fulcrum.advise.rules.evaluation.few_samples_for_features import FewSamplesForFeatures
from fulcrum.advise.rules.evaluation.guidance_unequal import GuidanceUnequal
from fulcrum.advise.rules.evaluation.kernel_blind_to_diversity import KernelBlindToDiversity
from fulcrum.advise.rules.evaluation.metric_range import MetricRange
from fulcrum.advise.rules.evaluation.noise_shared_by_samples import NoiseSharedBySamples
from fulcrum.advise.rules.evaluation.reference_in_training import ReferenceInTraining
from fulcrum.advise.rules.evaluation.resize_without_smoothing import ResizeWithoutSmoothing
from fulcrum.advise.rules.evaluation.samples_per_process import SamplesPerProcess
from fulcrum.advise.rules.evaluation.teacher_is_judge import TeacherIsJudge
from fulcrum.advise.rules.evaluation.validation_draws_anew import ValidationDrawsAnew
from fulcrum.advise.rules.precision.autocast_too_wide import AutocastTooWide
from fulcrum.advise.rules.precision.average_in_bf16 import AverageInBf16
from fulcrum.advise.rules.precision.clip_of_scaled_gradients import ClipOfScaledGradients
from fulcrum.advise.rules.precision.fp16_without_scaler import Fp16WithoutScaler
from fulcrum.advise.rules.precision.fsdp_casts_inputs import FsdpCastsInputs
from fulcrum.advise.rules.precision.grad_scaler_with_bf16 import GradScalerWithBf16
from fulcrum.advise.rules.precision.loss_in_bf16 import LossInBf16
from fulcrum.advise.rules.precision.norm_in_bf16 import NormInBf16
from fulcrum.advise.rules.precision.optimizer_state_in_bf16 import OptimizerStateInBf16
from fulcrum.advise.rules.precision.projector_in_bf16 import ProjectorInBf16
from fulcrum.advise.rules.precision.rotary_in_bf16 import RotaryInBf16
from fulcrum.advise.rules.precision.softmax_in_bf16 import SoftmaxInBf16
from fulcrum.advise.rules.precision.time_in_bf16 import TimeInBf16
from fulcrum.advise.rules.precision.updates_round_away import UpdatesRoundAway
from fulcrum.advise.rules.precision.values_not_finite import ValuesNotFinite
from fulcrum.advise.rules.precision.weights_in_bf16 import WeightsInBf16
from fulcrum.advise.rules.schedule.adam_eps_large import AdamEpsLarge
from fulcrum.advise.rules.schedule.alignment_never_off import AlignmentNeverOff
from fulcrum.advise.rules.schedule.average_longer_than_training import AverageLongerThanTraining
from fulcrum.advise.rules.schedule.gradients_never_cleared import GradientsNeverCleared
from fulcrum.advise.rules.schedule.irepa_normalises_features import IrepaNormalisesFeatures
from fulcrum.advise.rules.schedule.left_in_eval_mode import LeftInEvalMode
from fulcrum.advise.rules.schedule.no_warmup import NoWarmup
from fulcrum.advise.rules.schedule.perceptual_without_picture import PerceptualWithoutPicture
from fulcrum.advise.rules.schedule.routing_with_few_tokens import RoutingWithFewTokens
from fulcrum.advise.rules.schedule.shift_without_resolution import ShiftWithoutResolution
from fulcrum.advise.rules.schedule.weights_only_checkpoint import WeightsOnlyCheckpoint
from fulcrum.advise.rules.tokenizer.channels_mismatch import ChannelsMismatch
from fulcrum.advise.rules.tokenizer.codec_class_mismatch import CodecClassMismatch
from fulcrum.advise.rules.tokenizer.codec_range import CodecRange
from fulcrum.advise.rules.tokenizer.latent_deviation import LatentDeviation
from fulcrum.advise.rules.tokenizer.latent_scale_missing import LatentScaleMissing
from fulcrum.advise.rules.tokenizer.latent_scale_typed import LatentScaleTyped
from fulcrum.advise.rules.tokenizer.reconstruction_poor import ReconstructionPoor

RULES: tuple[AuditRule, ...] = (
    AutocastTooWide(),
    AverageInBf16(),
    ClipOfScaledGradients(),
    Fp16WithoutScaler(),
    FsdpCastsInputs(),
    GradScalerWithBf16(),
    LossInBf16(),
    NormInBf16(),
    OptimizerStateInBf16(),
    ProjectorInBf16(),
    RotaryInBf16(),
    SoftmaxInBf16(),
    TimeInBf16(),
    UpdatesRoundAway(),
    ValuesNotFinite(),
    WeightsInBf16(),
    CaptionsBoilerplate(),
    CaptionsControlCharacters(),
    CaptionsDuplicated(),
    CaptionsMixedLanguages(),
    CaptionsShort(),
    CaptionsTruncated(),
    CaptionsUnlikePictures(),
    PromptsUnlikeCaptions(),
    SamplesBroken(),
    TextLengthUnequal(),
    ChannelsMismatch(),
    CodecClassMismatch(),
    CodecRange(),
    LatentDeviation(),
    LatentScaleMissing(),
    LatentScaleTyped(),
    ReconstructionPoor(),
    AdamEpsLarge(),
    AlignmentNeverOff(),
    AverageLongerThanTraining(),
    GradientsNeverCleared(),
    IrepaNormalisesFeatures(),
    LeftInEvalMode(),
    NoWarmup(),
    PerceptualWithoutPicture(),
    RoutingWithFewTokens(),
    ShiftWithoutResolution(),
    WeightsOnlyCheckpoint(),
    FewSamplesForFeatures(),
    GuidanceUnequal(),
    KernelBlindToDiversity(),
    MetricRange(),
    NoiseSharedBySamples(),
    ReferenceInTraining(),
    ResizeWithoutSmoothing(),
    SamplesPerProcess(),
    TeacherIsJudge(),
    ValidationDrawsAnew(),
    ArmChangesNothing(),
    ArmIsCompound(),
    ArmRefused(),
    BooleanAsText(),
    CachingUnequal(),
    DefaultNotThere(),
    DosesUnequal(),
    EpochNotSet(),
    ErrorsSwallowed(),
    OptimizerArmMovesMore(),
    OutputsShared(),
    PowerLow(),
    SeedNotInOrder(),
    SeedsUnpaired(),
    SettingReadByNobody(),
    TooFewPairs(),
)
BY_ID = {rule.id: rule for rule in RULES}

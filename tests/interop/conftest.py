"""Tiny random networks of the very classes that users load, written with save_pretrained."""

import pytest
import torch

WORDS = (
    "a",
    "red",
    "blue",
    "green",
    "circle",
    "square",
    "ring",
    "large",
    "small",
    "at",
    "the",
    "top",
    "left",
    "and",
)
MODULE = dict(
    vocab_size=64,
    hidden_size=16,
    intermediate_size=32,
    num_hidden_layers=2,
    num_attention_heads=2,
    num_key_value_heads=1,
    head_dim=8,
    max_position_embeddings=128,
)
TEXT = dict(
    vocab_size=64,
    hidden_size=16,
    intermediate_size=32,
    num_hidden_layers=2,
    num_attention_heads=2,
    max_position_embeddings=77,
    eos_token_id=1,
    bos_token_id=2,
    pad_token_id=0,
)
SIGHT = dict(
    hidden_size=16, num_hidden_layers=2, num_attention_heads=2, image_size=32, patch_size=8
)
LEVELS = dict(
    block_out_channels=(8, 16),
    down_block_types=("DownEncoderBlock2D",) * 2,
    layers_per_block=1,
    up_block_types=("UpDecoderBlock2D",) * 2,
    norm_num_groups=4,
    sample_size=32,
)


def flux2(library):
    made = library.AutoencoderKLFlux2(latent_channels=4, **LEVELS)
    made.bn.running_mean.normal_()
    made.bn.running_var.uniform_(0.1, 2.0)
    return made


def deep(library):
    three = ("ResBlock",) * 3
    return library.AutoencoderDC(
        latent_channels=4,
        encoder_block_types=three,
        decoder_block_types=three,
        encoder_block_out_channels=(8, 8, 16),
        decoder_block_out_channels=(8, 8, 16),
        encoder_layers_per_block=(1, 1, 1),
        decoder_layers_per_block=(1, 1, 1),
        encoder_qkv_multiscales=((), (), ()),
        decoder_qkv_multiscales=((), (), ()),
        scaling_factor=0.41,
    )


def t5gemma(library, whole=False):
    config = library.T5GemmaConfig(
        encoder=dict(MODULE), decoder=dict(MODULE), vocab_size=64, is_encoder_decoder=whole
    )
    return (
        library.T5GemmaForConditionalGeneration(config)
        if whole
        else library.T5GemmaEncoderModel(config)
    )


def t5gemma_encoder(library):
    from transformers.models.t5gemma.modeling_t5gemma import T5GemmaEncoder

    return T5GemmaEncoder(
        library.T5GemmaConfig(encoder=dict(MODULE), decoder=dict(MODULE), vocab_size=64).encoder
    )


def qwen(library, whole=False):
    turn = dict(
        rope_type="default", rope_theta=10_000.0, mrope_section=[2, 1, 1], mrope_interleaved=True
    )
    if not whole:
        return library.Qwen3VLTextModel(library.Qwen3VLTextConfig(**MODULE, rope_parameters=turn))
    sight = dict(
        depth=1,
        hidden_size=16,
        intermediate_size=32,
        num_heads=2,
        out_hidden_size=16,
        patch_size=8,
        deepstack_visual_indexes=[0],
        num_position_embeddings=16,
    )
    config = library.Qwen3VLConfig(
        text_config=dict(MODULE, rope_parameters=turn), vision_config=sight
    )
    return library.Qwen3VLForConditionalGeneration(config)


CODECS = {
    "kl": lambda d: d.AutoencoderKL(
        latent_channels=4,
        scaling_factor=0.36,
        shift_factor=0.11,
        use_quant_conv=False,
        use_post_quant_conv=False,
        **LEVELS,
    ),
    "channels": lambda d: d.AutoencoderKL(
        latent_channels=4,
        scaling_factor=0.5,
        latents_mean=(0.1, -0.2, 0.3, 0.0),
        latents_std=(1.0, 2.0, 0.5, 1.5),
        **LEVELS,
    ),
    "flux2": flux2,
    "dc": deep,
    "tiny": lambda d: d.AutoencoderTiny(
        encoder_block_out_channels=(8, 8, 8),
        decoder_block_out_channels=(8, 8, 8),
        num_encoder_blocks=(1, 1, 1),
        num_decoder_blocks=(1, 1, 1),
        latent_channels=4,
    ),
}
TEXTS = {
    "t5gemma": t5gemma,
    "t5gemma_whole": lambda t: t5gemma(t, whole=True),
    "t5gemma_encoder": t5gemma_encoder,
    "t5": lambda t: t.T5EncoderModel(
        t.T5Config(vocab_size=64, d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2)
    ),
    "clip_text": lambda t: t.CLIPTextModel(t.CLIPTextConfig(**TEXT)),
    "qwen": qwen,
    "qwen_whole": lambda t: qwen(t, whole=True),
    "bert": lambda t: t.BertModel(
        t.BertConfig(
            vocab_size=64,
            hidden_size=16,
            intermediate_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            max_position_embeddings=80,
        )
    ),
}
TEACHERS = {
    "dinov2": lambda t: t.Dinov2Model(t.Dinov2Config(mlp_ratio=2, **SIGHT)),
    "dinov2_registers": lambda t: t.Dinov2WithRegistersModel(
        t.Dinov2WithRegistersConfig(mlp_ratio=2, **SIGHT)
    ),
    "dinov3": lambda t: t.DINOv3ViTModel(
        t.DINOv3ViTConfig(intermediate_size=32, num_register_tokens=4, **SIGHT)
    ),
    "clip_vision": lambda t: t.CLIPVisionModel(t.CLIPVisionConfig(intermediate_size=32, **SIGHT)),
    "clip": lambda t: t.CLIPModel(
        t.CLIPConfig(
            text_config=TEXT, vision_config=dict(intermediate_size=32, **SIGHT), projection_dim=8
        )
    ),
}


def tokenizer(folder, ends=True, longest=128):
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    vocabulary = {
        word: number for number, word in enumerate(["<pad>", "<eos>", "<bos>", "<unk>", *WORDS])
    }
    made = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    if ends:
        made.post_processor = processors.TemplateProcessing(
            single="<bos> $A <eos>", special_tokens=[("<bos>", 2), ("<eos>", 1)]
        )
    PreTrainedTokenizerFast(
        tokenizer_object=made,
        pad_token="<pad>",
        eos_token="<eos>",
        bos_token="<bos>",
        unk_token="<unk>",
        model_max_length=longest,
    ).save_pretrained(folder)


@pytest.fixture(scope="session")
def part(tmp_path_factory):
    """Name -> folder of a tiny random network, written once."""
    diffusers, transformers = pytest.importorskip("diffusers"), pytest.importorskip("transformers")
    transformers.utils.logging.disable_progress_bar()
    root = tmp_path_factory.mktemp("parts")

    def made(name):
        folder = root / name
        if not folder.exists():
            torch.manual_seed(0)
            make = {**CODECS, **TEXTS, **TEACHERS}[name]
            make(diffusers if name in CODECS else transformers).save_pretrained(folder)
            if name in TEXTS or name == "clip":
                # Qwen's gives an empty prompt no token at all
                tokenizer(folder, ends=not name.startswith("qwen"))
        return folder

    return made

"""Two real vision-language classes of transformers, tiny and random, saved as anybody's folder: one
that takes prompts by a chat template, one that captions and nothing else. No torchvision: their
image processors are Pillow's."""

from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

WORDS = [
    "a",
    "red",
    "blue",
    "green",
    "circle",
    "square",
    "star",
    "on",
    "the",
    "left",
    "right",
    "is",
    "small",
    "large",
    "picture",
    "of",
    "user",
    "assistant",
    "describe",
    "this",
]
CHAT = (
    "{% for message in messages %}user {% for part in message['content'] %}{% if part['type'] =="
    " 'image' %}<image>{% else %} {{ part['text'] }}{% endif %}{% endfor %}{% endfor %} assistant "
)


def tokenizer():
    special = ["<pad>", "<unk>", "<s>", "</s>", "<image>"]
    vocabulary = {word: number for number, word in enumerate([*special, *WORDS])}
    level = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    level.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made = PreTrainedTokenizerFast(
        tokenizer_object=level,
        pad_token="<pad>",
        unk_token="<unk>",
        bos_token="<s>",
        eos_token="</s>",
    )
    made.add_special_tokens({"additional_special_tokens": ["<image>"]})
    made.add_tokens(["<image>"], special_tokens=True)
    return made


def save_llava(folder):
    from transformers import (
        CLIPVisionConfig,
        LlamaConfig,
        LlavaConfig,
        LlavaForConditionalGeneration,
        LlavaProcessor,
    )
    from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

    words = tokenizer()
    vision = CLIPVisionConfig(
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        image_size=16,
        patch_size=8,
    )
    text = LlamaConfig(
        vocab_size=len(words),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        bos_token_id=2,
        eos_token_id=3,
        pad_token_id=0,
    )
    config = LlavaConfig(
        vision_config=vision,
        text_config=text,
        image_token_id=words.convert_tokens_to_ids("<image>"),
        vision_feature_layer=-1,
        vision_feature_select_strategy="default",
    )
    LlavaForConditionalGeneration(config).save_pretrained(folder)
    pictures = CLIPImageProcessorPil(
        size={"shortest_edge": 16}, crop_size={"height": 16, "width": 16}
    )
    LlavaProcessor(
        pictures,
        words,
        patch_size=8,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=CHAT,
        image_token="<image>",
    ).save_pretrained(folder)
    return folder


def save_blip(folder):
    from transformers import (
        BlipConfig,
        BlipForConditionalGeneration,
        BlipProcessor,
        BlipTextConfig,
        BlipVisionConfig,
    )
    from transformers.models.blip.image_processing_pil_blip import BlipImageProcessorPil

    words = tokenizer()
    text = BlipTextConfig(
        vocab_size=len(words),
        hidden_size=16,
        encoder_hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        bos_token_id=2,
        eos_token_id=3,
        sep_token_id=3,
        pad_token_id=0,
    )
    vision = BlipVisionConfig(
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        image_size=16,
        patch_size=8,
    )
    config = BlipConfig(
        text_config=text.to_dict(), vision_config=vision.to_dict(), projection_dim=16
    )
    BlipForConditionalGeneration(config).save_pretrained(folder)
    BlipProcessor(BlipImageProcessorPil(size={"height": 16, "width": 16}), words).save_pretrained(
        folder
    )
    return folder

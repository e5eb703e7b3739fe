"""Small models of many families, and what is commonly trained of them.

Each entry of `MODELS` makes a model with its arguments; sizes are as small as the family allows.
Each entry of `VARIANTS` says of a model what is trained, and may wrap its modules.
"""

import torch
from torch import nn


def image(size=32, batch=2):
    """Arguments of a model of images."""
    return (torch.randn(batch, 3, size, size),), {}


def words(length=6, batch=2, vocabulary=64):
    """Arguments of a model of text, none of which is padding."""
    return {"input_ids": torch.randint(1, vocabulary, (batch, length))}


def _torchvision(name, size=32, **options):
    def make():
        from torchvision import models

        return models.get_model(name, weights=None, **options), *image(size)

    return make


def _timm(name, size=32, **options):
    def make():
        import timm

        return timm.create_model(name, pretrained=False, **options), *image(size)

    return make


def _transformers(kind, config, **more):
    """A class of transformers from the sizes of its configuration; `inputs` make its arguments."""
    inputs = more.pop("inputs", words)

    def make():
        import transformers

        made = getattr(transformers, config)(**more)
        model = getattr(transformers, kind)(made)
        return model, (), inputs()

    return make


_LLAMA = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 64, "use_cache": False,
}  # fmt: skip
_BERT = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "vocab_size": 64, "max_position_embeddings": 32,
    "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
}  # fmt: skip


class Recurrent(nn.Module):
    """Words, two recurrent layers, and a class from the last step."""

    def __init__(self, kind, **options):
        super().__init__()
        self.words = nn.Embedding(20, 6)
        self.steps = kind(6, 8, num_layers=2, batch_first=True, **options)
        self.head = nn.Linear(8 * (1 + bool(options.get("bidirectional"))), 5)

    def forward(self, ids):
        return self.head(self.steps(self.words(ids))[0][:, -1])


def _recurrent(kind, **options):
    return lambda: (Recurrent(kind, **options), (torch.randint(0, 20, (2, 5)),), {})


def _dcgan():
    """The generator of DCGAN in small (Radford et al.)."""
    layers = []
    for before, after in ((8, 32), (32, 16), (16, 8)):
        stride, pad = (1, 0) if before == 8 else (2, 1)
        layers += [
            nn.ConvTranspose2d(before, after, 4, stride, pad, bias=False),
            nn.BatchNorm2d(after),
            nn.ReLU(True),
        ]
    layers += [nn.ConvTranspose2d(8, 3, 4, 2, 1, bias=False), nn.Tanh()]
    return nn.Sequential(*layers), (torch.randn(2, 8, 1, 1),), {}


def _unet():
    from tests.zoo import UNet

    return UNet((4, 8, 16)), *image()


def _diffusion():
    from diffusers import UNet2DConditionModel

    model = UNet2DConditionModel(
        sample_size=8, block_out_channels=(16, 32), layers_per_block=1, cross_attention_dim=16,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
        attention_head_dim=4, norm_num_groups=4,
    )  # fmt: skip
    inputs = {
        "sample": torch.randn(2, 4, 8, 8), "timestep": torch.tensor(3),
        "encoder_hidden_states": torch.randn(2, 5, 16), "return_dict": False,
    }  # fmt: skip
    return model, (), inputs


def _sequence_to_sequence():
    return words() | {"decoder_input_ids": torch.randint(1, 64, (2, 5))}


def _clip():
    import transformers

    sizes = {
        "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
        "num_attention_heads": 4,
    }  # fmt: skip
    config = transformers.CLIPConfig(
        text_config={**sizes, "vocab_size": 64, "max_position_embeddings": 16, "eos_token_id": 63},
        vision_config={**sizes, "image_size": 16, "patch_size": 8},
        projection_dim=24,
    )
    inputs = words() | {"pixel_values": torch.randn(2, 3, 16, 16)}
    return transformers.CLIPModel(config), (), inputs


def _whisper():
    import transformers

    config = transformers.WhisperConfig(
        d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=48, vocab_size=64,
        num_mel_bins=8, max_source_positions=10, max_target_positions=12, use_cache=False,
        pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1, dropout=0.0,
    )  # fmt: skip
    inputs = {
        "input_features": torch.randn(2, 8, 20),
        "decoder_input_ids": torch.randint(1, 64, (2, 5)),
    }
    return transformers.WhisperForConditionalGeneration(config), (), inputs


def _encoder():
    layer = nn.TransformerEncoderLayer(16, 4, 24, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, 2), (torch.randn(2, 5, 16),), {}


def _transformer():
    model = nn.Transformer(16, 4, 1, 2, 24, dropout=0.0, batch_first=True)
    return model, (torch.randn(2, 5, 16), torch.randn(2, 3, 16)), {}


class Pyramid(nn.Module):
    """A pyramid of features that are resized and summed, and resized once more."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, 2, 1)
        self.down = nn.Conv2d(8, 16, 3, 2, 1)
        self.across = nn.ModuleList([nn.Conv2d(8, 8, 1), nn.Conv2d(16, 8, 1)])
        self.head = nn.Conv2d(8, 2, 3, padding=1)

    def forward(self, x):
        fine = self.stem(x).relu()
        coarse = self.down(fine).relu()
        up = nn.functional.interpolate(self.across[1](coarse), scale_factor=2)
        h = self.head(self.across[0](fine) + up)
        return nn.functional.interpolate(h, x.shape[2:], mode="bilinear", align_corners=False)


MODELS = {
    "resnet18": _torchvision("resnet18"),
    "mobilenet-v2": _torchvision("mobilenet_v2"),
    "mobilenet-v3": _torchvision("mobilenet_v3_small"),
    "densenet": _torchvision("densenet121"),
    "efficientnet": _torchvision("efficientnet_b0"),
    "shufflenet": _torchvision("shufflenet_v2_x0_5"),
    "squeezenet": _torchvision("squeezenet1_1", 64),
    "vgg": _torchvision("vgg11_bn", 32),
    "googlenet": _torchvision("googlenet", 64, init_weights=False),
    "regnet": _torchvision("regnet_y_400mf"),
    "convnext": _timm("convnext_atto"),
    "vit": _timm("vit_tiny_patch16_224", 32, img_size=32, depth=3),
    "swin": _timm(
        "swin_tiny_patch4_window7_224", 56, img_size=56, window_size=7, depths=(2, 2),
        num_heads=(3, 6), embed_dim=24
    ),
    "swin-torchvision": _torchvision("swin_v2_t", 64),
    "maxvit": _timm("maxvit_rmlp_pico_rw_256", 64, img_size=64),
    "mixer": _timm("mixer_s32_224", 64, img_size=64, num_blocks=3),
    "nfnet": _timm("dm_nfnet_f0", 64) ,
    "levit": _timm("levit_128s", 224),
    "edgenext": _timm("edgenext_xx_small", 64),
    "seresnet": _timm("seresnet33ts", 64),
    "fcn": _torchvision("fcn_resnet50", 32, weights_backbone=None, aux_loss=True),
    "deeplab": _torchvision("deeplabv3_mobilenet_v3_large", 64, weights_backbone=None),
    "pyramid": lambda: (Pyramid(), *image()),
    "unet": _unet,
    "dcgan": _dcgan,
    "lstm": _recurrent(nn.LSTM),
    "bilstm": _recurrent(nn.LSTM, bidirectional=True),
    "gru": _recurrent(nn.GRU),
    "rnn": _recurrent(nn.RNN),
    "lstm-without-biases": _recurrent(nn.LSTM, bias=False),
    "encoder": _encoder,
    "transformer": _transformer,
    "bert": _transformers("BertForSequenceClassification", "BertConfig", **_BERT),
    "bert-mlm": _transformers("BertForMaskedLM", "BertConfig", **_BERT),
    "distilbert": _transformers(
        "DistilBertForSequenceClassification", "DistilBertConfig", dim=32,
        hidden_dim=48, n_layers=2, n_heads=4, vocab_size=64
    ),
    "albert": _transformers("AlbertModel", "AlbertConfig", embedding_size=16, **_BERT),
    "deberta": _transformers(
        "DebertaV2Model", "DebertaV2Config", relative_attention=True,
        pos_att_type=["p2c", "c2p"], position_buckets=4, **_BERT
    ),
    "gpt2": _transformers(
        "GPT2LMHeadModel", "GPT2Config", n_embd=32, n_layer=2, n_head=4, vocab_size=64,
        n_positions=16, use_cache=False, resid_pdrop=0.0, embd_pdrop=0.0,
        attn_pdrop=0.0, bos_token_id=1, eos_token_id=1
    ),
    "opt": _transformers(
        "OPTForCausalLM", "OPTConfig", hidden_size=32, ffn_dim=48, num_hidden_layers=2,
        num_attention_heads=4, vocab_size=64, max_position_embeddings=16,
        word_embed_proj_dim=32, use_cache=False, dropout=0.0
    ),
    "t5": _transformers(
        "T5ForConditionalGeneration", "T5Config", d_model=32, d_kv=8, d_ff=48,
        num_layers=2, num_heads=4, vocab_size=64, dropout_rate=0.0, use_cache=False,
        inputs=_sequence_to_sequence, decoder_start_token_id=0
    ),
    "bart": _transformers(
        "BartModel", "BartConfig", d_model=32, encoder_layers=2, decoder_layers=2,
        encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=48,
        decoder_ffn_dim=48, vocab_size=64, max_position_embeddings=16, use_cache=False,
        dropout=0.0, inputs=_sequence_to_sequence, forced_eos_token_id=2
    ),
    "llama": _transformers("LlamaForCausalLM", "LlamaConfig", **_LLAMA),
    "qwen3": _transformers("Qwen3ForCausalLM", "Qwen3Config", head_dim=8, **_LLAMA),
    "gemma2": _transformers("Gemma2ForCausalLM", "Gemma2Config", head_dim=8, **_LLAMA),
    "mixtral": _transformers("MixtralForCausalLM", "MixtralConfig", num_local_experts=4, **_LLAMA),
    "mamba": _transformers(
        "MambaForCausalLM", "MambaConfig", hidden_size=16, state_size=4,
        num_hidden_layers=2, vocab_size=64, use_cache=False
    ),
    "clip": _clip,
    "whisper": _whisper,
    "diffusion": _diffusion,
    "wav2vec2": _transformers(
        "Wav2Vec2Model", "Wav2Vec2Config", hidden_size=32, intermediate_size=48,
        num_hidden_layers=2, num_attention_heads=4, conv_dim=(16, 16), conv_stride=(4,
        2), conv_kernel=(6, 3), num_conv_pos_embeddings=8,
        num_conv_pos_embedding_groups=2, hidden_dropout=0.0, attention_dropout=0.0,
        activation_dropout=0.0, feat_proj_dropout=0.0, layerdrop=0.0,
        mask_time_prob=0.0, inputs=lambda: {"input_values": torch.randn(2, 400)}
    ),
    "segformer": _transformers(
        "SegformerForSemanticSegmentation", "SegformerConfig", depths=[1, 1, 1, 1],
        hidden_sizes=[8, 16, 16, 16], num_attention_heads=[1, 2, 2, 2],
        decoder_hidden_size=16, inputs=lambda: {"pixel_values": torch.randn(2, 3, 64,
        64)}, hidden_dropout_prob=0.0, drop_path_rate=0.0, classifier_dropout_prob=0.0
    ),
}  # fmt: skip


class Adapted(nn.Module):
    """A linear layer that is frozen, with an adapter of low rank beside it (Hu et al., LoRA)."""

    def __init__(self, base, rank=2):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down = nn.Linear(base.in_features, rank, bias=False)
        self.up = nn.Linear(rank, base.out_features, bias=False)

    @property
    def weight(self):
        """What code reads that multiplies by itself: the frozen weight."""
        return self.base.weight

    @property
    def bias(self):
        return self.base.bias

    def forward(self, x):
        return self.base(x) + self.up(self.down(x))


def everything(model):
    """As the family is made: all is trained."""
    return model


def first_half(model):
    """The first half of the parameters, as they are listed, is frozen."""
    parameters = list(model.parameters())
    for parameter in parameters[: len(parameters) // 2]:
        parameter.requires_grad = False
    return model


def norms_and_biases(model):
    """What has one axis at most is trained, and nothing else."""
    for parameter in model.parameters():
        parameter.requires_grad = parameter.dim() < 2
    return model


def last_layer(model):
    """The last parameters that a weight has are trained alone: a probe."""
    model.requires_grad_(False)
    for parameter in list(model.parameters())[-2:]:
        parameter.requires_grad = True
    return model


def adapters(model):
    """An adapter on every linear layer; all else is frozen."""
    model.requires_grad_(False)
    for module in list(model.modules()):
        if isinstance(module, Adapted):
            continue
        for name, child in list(module.named_children()):
            if type(child) is nn.Linear:
                setattr(module, name, Adapted(child))
    return model


def frozen_norms(model):
    """Norms are in eval(), and not trained."""
    for module in model.modules():
        if "Norm" in type(module).__name__:
            module.eval().requires_grad_(False)
    return model


def every_second(model):
    """Every second parameter is frozen."""
    for place, parameter in enumerate(model.parameters()):
        parameter.requires_grad = place % 2 == 0
    return model


VARIANTS = {
    variant.__name__: variant
    for variant in (
        everything,
        first_half,
        norms_and_biases,
        last_layer,
        adapters,
        frozen_norms,
        every_second,
    )
}

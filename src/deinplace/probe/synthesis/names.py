"""What parameters are usually called, and small values that go together: channels 32, heads 4, 8 x 8 places, batch 2.

A value is Python text. In tensor shapes a letter stands for a size: B batch, C channels, H and W height and width,
L tokens (H times W), D width of one head, N heads, S image side. These are customs of people who write models, not
facts about torch.
"""

from __future__ import annotations

import functools
import re

SIZES = {"B": 2, "C": 32, "H": 8, "W": 8, "L": 64, "D": 8, "N": 4, "S": 32, "T": 4}
"""The sizes that letters stand for."""

BUILD: tuple[tuple[str, tuple[str, ...]], ...] = (
    (r"means?|stds?|(pixel_|img_|image_)(mean|std)", ("[0.5, 0.5, 0.5]", "0.5")),
    (r"(in|input|image|img)_(chans|nc|colors)|n_?channels|channels_img", ("3", "32", "1")),
    (r"(num|n)_?(class|cls|label|categorie|target)(es|s)?|nc|n_?cls|classes|num_outputs|output_nc|vocab_out",
     ("10", "2")),
    (r"(num|n|total)_?(attention_?)?(q_|kv_|attn_|query_)?(heads?|h)|heads?|nhead|nheads|n_head|num_kv_heads",
     ("4", "2", "8", "1")),
    (r"(dim|d|c|embed_dim|hidden_size|size)_?(per_)?_?head|head_?(dim|size|width)s?|d_k|d_v|dim_heads?",
     ("8", "16", "32")),
    (r"(conv_)?(kernel|filter)_?(size|width|sz)?|ks?|kernels?|kw|kh|k_size|conv_kernel",
     ("3", "(3, 3)", "1", "[3, 3]")),
    ((
        r"strides?|s|stride_size|down(sample)?_?(rate|factor|ratio|scale)?|up_?(rate|factor|scale)|scale_?factor|"
        r"r|rate"
    ), ("1", "2", "(1, 1)")),
    (r"padding|pad|p|pad_size", ("1", "0", "(1, 1)")),
    (r"dilations?|dilation_rate|dil|d", ("1", "2", "(1, 1)")),
    (r"groups?|num_groups|n_groups|cardinality|g|gn_groups", ("4", "1", "2")),
    ((
        r"(num|n|max)_?(layers?|blocks?|depth|stages?|levels?|repeats?|units?|steps?|iters?|iterations?|convs?|"
        r"modules?|scales?|branches|experts?|recurrent|stacks?|down\w*|up\w*)|depths?|n|nb_\w+|layers_num|repeat|"
        r"blocks_num"
    ), ("2", "(2, 2)", "1", "3", "4")),
    (r"layers|blocks|depths|stage_\w+|block_setting|layer_config|repeats", ("[2, 2, 2, 2]", "2", "[1, 1]", "[2, 2]")),
    ((
        r"(vocab|vocabulary|dict|codebook|num_embeddings|n_embed|n_vocab|ntoken|num_tokens)(_?size)?|vocab\w*|"
        r"num_embeddings|n_e"
    ), ("64", "100")),
    ((
        r"(max_?)?(seq|sequence|context|block|src|tgt|text|max)_?(len|length|size)|(seq_?len|max_?len\w*|n_ctx|"
        r"t_len|max_position\w*)"
    ), ("64", "16")),
    (r"num_(patches|tokens|positions|points|nodes|queries)|n_(patches|tokens)|tokens|seq_?num", ("64", "16")),
    ((
        r"(feat|input|grid|token|spatial|fmap|feature|map|base|patch)_?(size|resolution|shape|map_size)s?|"
        r"resolution|input_resolution|hw"
    ), ("(8, 8)", "8", "4")),
    (r"(img|image|crop|in|input_image)_?(size|res|resolution|sz|dim)|resolution_img", ("32", "(32, 32)", "64")),
    (r"patch_?(size|sz)?|p_size", ("4", "(4, 4)", "8")),
    (r"(window|win|block|local|halo|chunk|ws)_?(size|sz)?", ("4", "(4, 4)", "8")),
    (r"shift_?(size)?|halo_size", ("0", "2", "(0, 0)")),
    ((
        r"\w*(dropout|drop|drop_?rate|drop_?prob|dropout_?p|drop_path\w*|survival\w*)(_p|_prob|_rate)?|p|prob|"
        r"keep_prob"
    ), ("0.1", "0.0")),
    ((
        r"\w*(ratio|multiplier|expansion|expand|mult|factor|alpha|beta|gamma|scale|temperature|temp|tau|momentum|"
        r"theta|sigma|weight|coef\w*|lambda\w*|lam|margin|slope|init_values?|smoothing|threshold|thresh|std|"
        r"eps(ilon)?|lr|learning_rate|decay|rd_ratio)"
    ), ("0.5", "2", "1.0", "4")),
    (r"\w*(norm|norm_?layer|norm_?cls|norm_?class|normalization|bn|norm_type|norm_fn)",
     ("nn.BatchNorm2d", "nn.LayerNorm", "nn.BatchNorm1d", "'batch'", "nn.LayerNorm(32)", "None")),
    ((
        r"\w*(act|act_?layer|activation|nonlinearity|act_?fn|act_?func|activation_fn|non_linearity|nl|gate_layer|"
        r"act_type)"
    ), ("nn.ReLU", "nn.ReLU()", "'relu'", "torch.relu", "None")),
    (r"\w*(conv|conv_?layer|conv_?op|conv_?cls)", ("nn.Conv2d", "nn.Conv2d(32, 32, 3, padding=1)", "nn.Conv1d")),
    ((
        r"mlp_?layer|ffn|mlp|attn|attention|fn|func|function|module|submodule|layer|block|net|network|model|base|"
        r"body|inner|core|sub_?layer|head|stem|proj|encoder|decoder|backbone|trunk|feature_extractor|base_model|"
        r"original\w*|m"
    ),
     ("nn.Linear(32, 32)", "nn.Conv2d(32, 32, 3, padding=1)", "nn.Identity()", "nn.Linear", "nn.Conv2d")),
    ((
        r"(use|with|is|has|do|add|no|apply|enable|return|need|share|learn\w*|require)_\w+|bias|affine|"
        r"bidirectional|batch_first|residual|causal|downsample|upsample|pre_?norm|training|inplace|last|first|"
        r"final|bilinear|training|deploy|qkv_bias"
    ), ("False", "True")),
    ((
        r"(pool|padding|pad|up|upsample|interp\w*|reduction|init|loss|agg\w*|fusion|merge|attn|pos\w*|block|model|"
        r"arch)_?(type|mode|name|method)?|mode|reduction|name|arch|variant|version|type"
    ), ("'mean'", "'bilinear'", "'avg'", "'resnet18'", "None")),
    (r"device", ("'cpu'",)),
    (r"dtype", ("torch.float32",)),
    ((
        r"\w*(channels|chs|dims|sizes|features|planes|filters|widths)_?list|channels_list|hidden_dims|dims|"
        r"embed_dims|hidden_sizes|num_chs|layer_sizes|feature_dims|enc_channels|dec_channels|in_channels_list|"
        r"feature_channels|hidden_channels_list"
    ), ("[32, 32]", "32", "[32, 32, 32]", "[32, 32, 32, 32]")),
    ((
        r"\w*(channels?|chs?|chans|planes|dims?|features?|feats?|filters?|width|hidden|units|size|hid|neurons|nf|"
        r"ngf|ndf|latent|embed|embedding|emb|d_model|d_ff|d_inner|nhid|ninp|nz|ndim|rank|bottleneck|inp|oup|out|"
        r"c1|c2|cin|cout|fan_in|fan_out|input|output|k_dim|inner|rd|reduced?|squeeze|intermediate|base|in_c|out_c|"
        r"ic|oc|ch_in|ch_out|base_width)\w{0,3}|c|f|d|e|q|v|ic|oc|nz|nf"
    ), ("32", "64", "[32, 32]", "16", "3", "(8, 8)")),
    (r"reduction\w*", ("4", "2", "8", "16", "'mean'")),
    (r"seed|index|idx|i|layer_?(idx|id|num)|stage\w*|level|order|degree|axis|dim_?index", ("0", "1")),
)  # fmt: skip
"""Parameters of constructors: names, and values in the order in which to try them."""

CALL: tuple[tuple[str, tuple[str, ...]], ...] = (
    ((
        r"(input_?|token_?|src_?|tgt_?|decoder_input_?|word_?)ids?|tokens?_?ids|idx|indices|index|captions?|words|"
        r"labels?_ids|seq(uence)?s?_ids"
    ), ("long:B,L", "long:B", "long:L")),
    (r"tokens?|src|tgt|source|target_seq|trg|seq|sequence|text|token", ("x", "long:B,L", "float:B,L,C")),
    (r"(target|label|gt|y_true|gt_label|ground_truth|truth|tgt_label)s?|y",
     ("like", "long:B", "float:B", "long:B,H,W")),
    (r"logits?|preds?|prediction|outputs?|scores?|y_pred|cls_score|inputs?_?logits|student\w*|teacher\w*",
     ("x", "float:B,10", "float:B,C,H,W", "float:B")),
    (r"probs?|probabilit\w*|attn_?(weights?|probs?)?|attention", ("unit:B,10", "unit:B,N,L,L", "unit:B,1,H,W")),
    (r"\w*(mask|masks)|pad(ding)?_?mask|valid",
     ("bool:B,L", "bool:L,L", "bool:B,1,L,L", "float:B,1,H,W", "bool:B,H,W", "float:L,L", "bool:B")),
    (r"q|query|queries|k|key|keys|v|value|values|kv", ("x", "float:B,L,C", "float:B,N,L,D", "float:L,B,C")),
    ((
        r"context|cond\w*|memory|encoder_\w+|enc_?(out\w*|hidden\w*)|cross\w*|y|kv_input|encoder_outputs?|"
        r"prompt\w*|style|latents?|z|w|style"
    ), ("like", "float:B,L,C", "float:B,C", "float:B,C,H,W")),
    ((
        r"(t|time|timesteps?|time_?steps?|sigma|noise_level|alpha_t|gamma|temb|emb|t_emb|time_emb\w*|"
        r"time_?embed\w*)"
    ), ("float:B", "long:B", "float:B,C", "0.5")),
    (r"(pos|position|positions|pos_ids|position_ids)", ("long:L", "long:B,L", "float:B,L,3")),
    (r"\w*pos_?(emb\w*|embed\w*|enc\w*)?|rope|freqs?_?\w*|rotary\w*|cos|sin|rel_pos\w*|bias|pe",
     ("float:L,C", "float:1,L,C", "float:L,D", "float:B,L,C", "float:L,L")),
    (r"h_?0|c_?0|hx|hidden|state|hidden_state|prev_\w+|h_prev|c_prev|h|hc|init_states?",
     ("float:B,C", "None", "(float:B,C; float:B,C)", "float:1,B,C", "float:B,C,H,W")),
    (r"boxes\d?|bbox(es)?\d?|box\d?|pred_?b?boxes|target_?b?boxes|rois?|anchors?|proposals|gt_b?boxes|dets?",
     ("box:8,4", "box:8,5", "box:B,8,4")),
    (r"(img|image|images|imgs|pixel_values|frames?|pic\w*|rgb)\d?", ("x", "float:B,3,S,S", "float:3,S,S")),
    (r"(h|height|H|x_h|hh|img_h|w|width|W|x_w|ww|img_w|t_h|t_w|nh|nw)", ("8", "4", "32")),
    ((
        r"(hw|\w*(shape|resolution|size|dims)|size|spatial_shape|hw_shape|x_size|output_size|original_size|"
        r"target_size|HW)"
    ), ("(8, 8)", "8", "(4, 4)", "(2, 32, 8, 8)", "torch.Size([2, 32, 8, 8])")),
    ((
        r"(batch|feats|features|inputs|xs|feature_maps|hidden_states_list|feat_list|tensors|outs|outputs|skips|"
        r"skip_connections|pyramid)"
    ), ("x", "[x; x]", "[x; x; x]", "[x; x; x; x]", "{}")),
    (r"edge_?index\w*", ("long:2,16",)),
    (r"adj\w*|A|graph", ("unit:L,L", "unit:B,L,L")),
    (r"lengths?|\w*_lens?|lens", ("long:B", "[8, 8]", "torch.tensor([64, 64])")),
    (r"(dims?|axis|axes)", ("1", "-1", "0", "(2, 3)")),
    (r"(eps\w*|epsilon|tiny)", ("1e-6",)),
    ((
        r"\w*(window_?size|patch_?size|stride|scale\w*|ratio|factor|kernel_?size|ks|block_size|grid_size|win_size|"
        r"chunk_?size|group_size|k|r)"
    ), ("2", "(2, 2)", "4", "(4, 4)", "0.5", "3")),
    ((
        r"\w*(prob|drop|dropout|drop_prob|rate|p|threshold|thresh\w*|alpha|beta|gamma|lam|lambd|temp(erature)?|"
        r"tau|momentum|slope|margin)"
    ), ("0.5", "0.1", "2")),
    ((
        r"(use|with|is|has|do|add|no|apply|return|need|only|keep)_\w+|training|inplace|causal|deterministic|"
        r"keepdim|normalized?|train|flag"
    ), ("False", "True")),
    (r"(n|num|count|times|n_\w+|num_\w+|max_\w+|steps?|k|depth|length|len|seq_len|T|L|N|B|bs|batch_?size)",
     ("4", "2", "8", "64")),
    (r"a|b|lo|hi|low|high|(min|max)_?(val\w*|value)?|mean|std", ("0.5", "2", "float:C")),
    (r"weights?|kernel|filters?|w|W|gamma|beta|running_\w+|mean|std|var",
     ("float:C", "float:C,C", "float:C,C,3,3", "like", "float:C,1,3,3")),
    (r"fn|func|function|act|activation|op|reduce_fn|loss_fn|criterion|callback",
     ("torch.relu", "torch.sum", "lambda *a: a[0]")),
    (r"(lr|learning_rate|weight_decay|wd|decay|nu)", ("0.1",)),
    (r"(params?|parameters|grads?|gradients?)", ("[float:C,C]", "float:C,C")),
    (r"device", ("'cpu'",)),
    (r"dtype", ("torch.float32",)),
    (r"model|net|network|module|layer|encoder|decoder|backbone|generator|discriminator|policy|critic|actor",
     ("nn.Linear(32, 32)", "nn.Conv2d(32, 32, 3, padding=1)")),
    (r"optim(izer)?\w*|opt", ("torch.optim.SGD([torch.ones(3, requires_grad=True)], lr=0.1)",)),
    (r"mode|reduction|method|name|kind|type", ("'mean'", "'bilinear'", "'sum'", "'none'")),
)  # fmt: skip
"""Parameters of calls. `x` and `like` are a guess from the layers; `float:B,C` is a tensor."""

FACTORY = re.compile(r"tiny|small|nano|mini|micro|pico|atto|femto|base|_s\b|_t\b|18|_s_|_t_|_xs|_xxs|_n\b|lite")
"""Names of functions that build small models."""


@functools.lru_cache(maxsize=4096)
def known(name: str, calling: bool) -> tuple[str, ...]:
    """Values to try for a parameter, the likeliest first; none for a name that says nothing."""
    table = CALL if calling else BUILD
    found: dict[str, None] = {}
    for pattern, values in table:
        if re.fullmatch(pattern, name) or re.fullmatch(pattern, name.lower()):
            found.update(dict.fromkeys(values))
    return tuple(found)

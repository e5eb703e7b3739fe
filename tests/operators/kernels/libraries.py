"""Operators of libraries that need a GPU: the same schemas, and fake kernels that give shapes."""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch

_MASK = "int window_size_left=-1, int window_size_right=-1, float softcap=0.0"
_SCHEMAS: dict[str, tuple[str, Callable[..., Any]]] = {}


def _declare(name: str, schema: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def declare(fake: Callable[..., Any]) -> Callable[..., Any]:
        _SCHEMAS[name] = schema, fake
        return fake

    return declare


@cache
def declare_libraries() -> list[torch.library.Library]:
    """Declare all operators, once; their library is not installed here."""
    libraries: dict[str, torch.library.Library] = {}
    for name, (schema, fake) in _SCHEMAS.items():
        namespace, _, kind = name.partition("::")
        if hasattr(getattr(torch.ops, namespace), kind):
            continue
        library = libraries.setdefault(namespace, torch.library.Library(namespace, "FRAGMENT"))
        library.define(f"{kind}{schema}")
        library.impl(kind, fake, "Meta")
    return list(libraries.values())


@_declare(
    "flash_attn::_flash_attn_forward",
    "(Tensor q, Tensor k, Tensor v, float dropout_p, float softmax_scale, bool causal, "
    "SymInt window_size_left, SymInt window_size_right, float softcap, Tensor? alibi_slopes, "
    "bool return_softmax) -> (Tensor, Tensor, Tensor, Tensor)",
)
def _flash(q, *_):
    batch, length, heads, _ = q.shape
    return (
        torch.empty_like(q),
        q.new_empty((batch, heads, length)),
        q.new_empty((0,)),
        q.new_empty((2,), dtype=torch.int64),
    )


@_declare(
    "flash_attn::_flash_attn_varlen_forward",
    "(Tensor q, Tensor k, Tensor v, Tensor cu_seqlens_q, Tensor cu_seqlens_k, "
    "SymInt max_seqlen_q, SymInt max_seqlen_k, float dropout_p, float softmax_scale, bool causal, "
    "SymInt window_size_left=-1, SymInt window_size_right=-1, float softcap=0., "
    "Tensor? alibi_slopes=None, bool return_softmax=False, Tensor? block_table=None, "
    "Tensor? leftpad_k=None, Tensor? seqused_k=None, bool zero_tensors=False) "
    "-> (Tensor, Tensor, Tensor, Tensor)",
)
def _flash_packed(q, *_, **__):
    return (
        torch.empty_like(q),
        q.new_empty((q.shape[1], q.shape[0])),
        q.new_empty((0,)),
        q.new_empty((2,), dtype=torch.int64),
    )


@_declare(
    "flash_attn_3::_flash_attn_forward",
    "(Tensor q, Tensor k, Tensor v, Tensor? k_new=None, Tensor? v_new=None, Tensor? qv=None, "
    "Tensor? out_=None, Tensor? cu_seqlens_q=None, Tensor? cu_seqlens_k=None, "
    "Tensor? cu_seqlens_k_new=None, Tensor? seqused_q=None, Tensor? seqused_k=None, "
    "SymInt? max_seqlen_q=None, SymInt? max_seqlen_k=None, Tensor? page_table=None, "
    "Tensor? kv_batch_idx=None, Tensor? leftpad_k=None, Tensor? rotary_cos=None, "
    "Tensor? rotary_sin=None, Tensor? seqlens_rotary=None, Tensor? q_descale=None, "
    "Tensor? k_descale=None, Tensor? v_descale=None, float? softmax_scale=None, "
    "bool causal=False, SymInt window_size_left=-1, SymInt window_size_right=-1, "
    "SymInt attention_chunk=0, float softcap=0., bool rotary_interleaved=True, "
    "Tensor? scheduler_metadata=None, SymInt num_splits=1, bool? pack_gqa=None, "
    "SymInt sm_margin=0) -> (Tensor, Tensor, Tensor, Tensor)",
)
def _flash_3(q, k, v, *_, **__):
    out = q.new_empty((*q.shape[:-1], v.shape[-1]))
    return out, q.new_empty(q.shape[:-1]), q.new_empty((0,)), q.new_empty((0,))


@_declare(
    "mamba_ssm::selective_scan_fwd",
    "(Tensor u, Tensor delta, Tensor A, Tensor B, Tensor C, Tensor? D, Tensor? z, "
    "Tensor? delta_bias, bool delta_softplus) -> Tensor",
)
def _selective_scan(u, *_):
    return torch.empty_like(u)


@_declare(
    "mamba_ssm::mamba_chunk_scan_combined",
    "(Tensor x, Tensor dt, Tensor A, Tensor B, Tensor C, int chunk_size, Tensor? D=None, "
    "Tensor? z=None, Tensor? dt_bias=None, Tensor? initial_states=None, bool dt_softplus=False) "
    "-> Tensor",
)
def _chunk_scan(x, *_, **__):
    return torch.empty_like(x)


@_declare(
    "DaoAILab::_causal_conv1d_fwd_cpp",
    "(Tensor x, Tensor weight, Tensor? bias, Tensor? seq_idx, Tensor? initial_states, "
    "Tensor(a!) out, Tensor? final_states_out, bool silu_activation) -> ()",
)
def _causal_convolution(*_):
    return None


@_declare(
    "DaoAILab::_causal_conv1d_bwd_cpp",
    "(Tensor x, Tensor weight, Tensor? bias, Tensor dout, Tensor? seq_idx, "
    "Tensor? initial_states, Tensor? dfinal_states, Tensor(a!) dx, Tensor(b!) dweight, "
    "Tensor(c!)? dbias, Tensor(d!)? dinitial_states, bool silu_activation) -> ()",
)
def _causal_convolution_back(*_):
    return None


@_declare(
    "_C::paged_attention_v1",
    "(Tensor(a!) out, Tensor query, Tensor key_cache, Tensor value_cache, int num_kv_heads, "
    "float scale, Tensor block_tables, Tensor seq_lens, int block_size, int max_seq_len, "
    "Tensor? alibi_slopes, str kv_cache_dtype, Tensor k_scale, Tensor v_scale, int tp_rank, "
    "int blocksparse_local_blocks, int blocksparse_vert_stride, int blocksparse_block_size, "
    "int blocksparse_head_sliding_step) -> ()",
)
def _paged(*_):
    return None


@_declare("bitsandbytes::int8_linear_matmul", "(Tensor A, Tensor B) -> Tensor")
def _int8_product(a, b):
    return a.new_empty((*a.shape[:-1], b.shape[0]), dtype=torch.int32)


@_declare(
    "bitsandbytes::gemv_4bit",
    "(Tensor A, Tensor B, int[] shapeB, Tensor absmax, Tensor code, int blocksize) -> Tensor",
)
def _gemv(a, b, shape, *_):
    return a.new_empty((*a.shape[:-1], shape[0]))


@_declare(
    "torchvision::roi_align",
    "(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width, "
    "int sampling_ratio, bool aligned) -> Tensor",
)
def _roi_align(x, rois, scale, tall, wide, *_):
    return x.new_empty((rois.shape[0], x.shape[1], tall, wide))


@_declare("torchvision::nms", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
def _nms(boxes, *_):
    return boxes.new_empty((boxes.shape[0],), dtype=torch.int64)


@_declare("torch_scatter::segment_sum_csr",
          "(Tensor src, Tensor indptr, Tensor? optional_out=None) -> Tensor")  # fmt: skip
def _segment_sum(src, indptr, *_):
    return src.new_empty((indptr.shape[0] - 1, *src.shape[1:]))


@_declare("torch_sparse::spmm_sum",
          "(Tensor? row, Tensor rowptr, Tensor col, Tensor? value, Tensor? colptr, "
          "Tensor? csr2csc, Tensor mat) -> Tensor")  # fmt: skip
def _spmm(row, rowptr, col, value, colptr, csr2csc, mat):
    return mat.new_empty((rowptr.shape[0] - 1, mat.shape[1]))


# The names of FlashInfer's operators hold the settings of their build.
PREFILL = (
    "batch_prefill_with_kv_cache_dtype_q_bf16_dtype_kv_bf16_dtype_o_bf16_dtype_idx_i32_"
    "head_dim_qk_4_head_dim_vo_4_posenc_0_use_swa_False_use_logits_cap_False_f16qk_False_paged_run"
)
DECODE = (
    "batch_decode_with_kv_cache_dtype_q_bf16_dtype_kv_bf16_dtype_o_bf16_dtype_idx_i32_"
    "head_dim_qk_4_head_dim_vo_4_posenc_2_use_swa_False_use_logits_cap_False_run"
)


@_declare(
    f"flashinfer::{PREFILL}",
    "(Tensor(a!) float_workspace_buffer, Tensor(b!) int_workspace_buffer, int[] plan_info_vec, "
    "Tensor q, Tensor(c!) paged_k_cache, Tensor(d!) paged_v_cache, Tensor qo_indptr, "
    "Tensor paged_kv_indptr, Tensor paged_kv_indices, Tensor paged_kv_last_page_len, "
    "Tensor(e!) o, Tensor(f!)? maybe_lse, int mask_mode, int layout, int window_left, "
    "bool enable_pdl, Tensor? maybe_custom_mask, Tensor? maybe_mask_indptr, "
    "Tensor? maybe_alibi_slopes, Tensor? maybe_prefix_len_ptr, "
    "Tensor? maybe_token_pos_in_items_ptr, Tensor? maybe_max_item_len_ptr, "
    "float logits_soft_cap, float sm_scale, Tensor? scale_q, Tensor? scale_k, Tensor? scale_v, "
    "float rope_scale, float rope_theta, int token_pos_in_items_len, int workspace_size, "
    "int? num_qo_heads=None, int? num_kv_heads=None, Tensor? block_tables=None, "
    "Tensor? kv_lens_buffer=None, int? page_size=None, int? max_q_len=None, "
    "int? max_kv_len=None, int? batch_size=None, Tensor? cum_seq_lens_q=None, "
    "Tensor? cum_seq_lens_kv=None, Tensor? sinks=None) -> ()",
)
@_declare(
    f"flashinfer::{DECODE}",
    "(Tensor(a!) float_workspace_buffer, Tensor(b!) int_workspace_buffer, int[] plan_info_vec, "
    "Tensor q, Tensor(c!)? paged_k_cache, Tensor(d!)? paged_v_cache, Tensor paged_kv_indptr, "
    "Tensor paged_kv_indices, Tensor paged_kv_last_page_len, Tensor(e!) o, "
    "Tensor(f!)? maybe_lse, int kv_layout_code, int window_left, bool enable_pdl, "
    "Tensor? alibi_slopes, float logits_soft_cap, float sm_scale, float rope_scale, "
    "float rope_theta) -> ()",
)
def _flashinfer(*_, **__):
    return None

"""The operators whose formulas tests hold against references: docs/kernels.md shows which.

`test_against_references.py` has a reference for each of them and for no other. It needs PyTorch,
and the script that writes the page does not.
"""

HELD = frozenset(
    {
        "DCNv3::dcnv3_forward",
        "DCNv4::dcnv4_forward",
        "MultiScaleDeformableAttention::ms_deform_attn_forward",
        "bitsandbytes::gemm_4bit",
        "bitsandbytes::gemv_4bit",
        "bitsandbytes::int8_linear_matmul",
        "bitsandbytes::int8_mm_dequant",
        "bitsandbytes::int8_scaled_mm",
        "bitsandbytes::int8_vectorwise_quant",
        "causal_conv1d::CausalConv1dFn",
        "fla::ChunkDeltaRuleFunction",
        "fla::ChunkGLAFunction",
        "fla::ChunkGatedDeltaRuleFunction",
        "fla::FusedRecurrentFunction",
        "flash_attn::_flash_attn_forward",
        "flash_attn::_flash_attn_varlen_forward",
        "flash_attn_3::_flash_attn_forward",
        "flash_attn_3::fwd",
        "flashattn::_flash_attn_forward",
        "mamba_ssm::mamba_chunk_scan_combined",
        "mamba_ssm::selective_scan_fwd",
        "pyg::segment_matmul",
        "torch_scatter::segment_sum_csr",
        "torch_sparse::spmm_sum",
        "torchvision::deform_conv2d",
        "torchvision::nms",
        "torchvision::ps_roi_align",
        "torchvision::roi_align",
        "transformer_engine::layer_norm",
        "transformer_engine::layer_norm_linear",
        "transformer_engine::layer_norm_mlp",
        "transformer_engine::linear",
        "transformer_engine::rms_norm",
    }
)

"""Kernel classes and busy time of the step profile; the recording itself needs a GPU."""

from __future__ import annotations

import pytest

import profile_step


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        ("nvjet_sm90_tst_256x128_64x4_1x2_h_badd_coopA_NNT", "matmul"),
        ("void cublasLt::splitKreduce_kernel<32, 16>", "matmul"),
        ("cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_26", "attention"),
        ("void cudnn::fusion::compute_dot_do_o_specialized<true, 128>", "attention"),
        ("void kDequantizeBlockwise<__nv_bfloat16, 512, 64, 8, 2>", "dequantise"),
        ("_unpack", "dequantise"),
        ("triton_poi_fused_mul_silu_split_with_sizes_8", "elementwise"),
        ("triton_poi_fused__unsafe_view_mul_silu_6", "elementwise"),
        ("triton_red_fused__log_softmax__to_copy_prepare_softmax_online_view_0", "loss"),
        ("void at::native::multi_tensor_apply_kernel<FusedOptimizerTensorListMetadata>", "optimizer"),
        ("Memset (Device)", "copy"),
    ],
)
def test_class_of(kernel: str, expected: str) -> None:
    assert profile_step.class_of(kernel) == expected


def test_busy_time_counts_overlapping_kernels_once() -> None:
    assert profile_step.busy_ns([(10, 20), (15, 30), (40, 50), (41, 42)]) == 30

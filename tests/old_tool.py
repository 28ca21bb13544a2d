"""What the recorded answers of MindInsight 2.0.0 are about, and where they are known to be wrong."""

from __future__ import annotations

CONDITIONS = {
    "all_zero_100": "tensor_all_zero",
    "all_zero_50": "tensor_all_zero",
    "change_above": "weight_change_too_large",
    "change_below": "weight_change_too_small",
    "operator_overflow": "operator_overflow",
    "overflow": "tensor_overflow",
    "range_maxmin": "tensor_range",
    "range_pct_gt": "tensor_range",
    "range_pct_lt": "tensor_range",
    "too_large_absmean": "tensor_too_large",
    "too_large_multi": "tensor_too_large",
    "too_small_absmean": "tensor_too_small",
    "too_small_multi": "tensor_too_small",
    "unchanged": "weight_not_changed",
    "unchanged_loose": "weight_not_changed",
}
"""The condition of every recorded answer, by its key."""
DUMPS = ("mindspore-2.0-mlp", "mindspore-2.0-nan")
"""The dumps that it could read."""

INF_BECAME_FINITE = ("Default/network-WithLossCell/_backbone-Net/ReduceSum-op382", 0, 4)
"""(node, slot, step) of [-Inf at step 3] then finite: "not changed" for the old tool (Inf ≤ Inf), not for us."""
WRONG = {("mindspore-2.0-nan", key): {INF_BECAME_FINITE} for key in ("unchanged", "unchanged_loose")}
"""Its wrong hits by (dump, key)."""

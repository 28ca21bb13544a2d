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
"""The dumps with one graph that it could read."""
SEVERAL_GRAPHS = ("mindspore-2.0-multi-eval", "mindspore-2.0-multi-gan")
"""The dumps with two root graphs; their statistics were not recorded."""

INF_BECAME_FINITE = ("Default/network-WithLossCell/_backbone-Net/ReduceSum-op382", 0, 4)
"""(node, slot, step) of [-Inf at step 3] then finite: "not changed" for the old tool (Inf ≤ Inf), not for us."""
_BECAME_FINITE = {
    "mindspore-2.0-nan": {INF_BECAME_FINITE},
    "mindspore-2.0-multi-gan": {
        (f"Default/network-DiscLoss/{name}", 0, 5) for name in ("ReduceMean-op154", "Neg-op155", "Sub-op156")
    },
}
"""The same by dump: an infinite loss at step 3 that is finite when its graph runs next."""
WRONG = {(dump, key): hits for dump, hits in _BECAME_FINITE.items() for key in ("unchanged", "unchanged_loose")}
"""Its wrong hits by (dump, key)."""

"""Where it went wrong first: nodes that turned clean inputs into a bad output."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Bool = npt.NDArray[np.bool_]


def origins(
    node_rows: npt.NDArray[np.int32], bad_out: Bool, bad_in: Bool, has_input_info: Bool
) -> npt.NDArray[np.int32]:
    """Nodes with a bad output while every known input is clean; at least one input must be known.

    A node without any known input is no origin: what it was fed with may have been bad already.

    Args:
        node_rows: node row of each entry. A node may have several entries, one per tensor of it.
        bad_out: the entry says that an output of the node has NaN or Inf.
        bad_in: the entry says that an input of the node has NaN or Inf.
        has_input_info: the entry is about an input whose values are known.

    Returns:
        Rows of the origins, ascending, each once.
    """
    rows, entry = np.unique(node_rows, return_inverse=True)
    origin = _any(entry, bad_out, len(rows)) & _any(entry, has_input_info, len(rows)) & ~_any(entry, bad_in, len(rows))
    return rows[origin].astype(np.int32, copy=False)


def _any(entry: npt.NDArray[np.intp], flags: Bool, size: int) -> Bool:
    result: Bool = np.bincount(entry[flags], minlength=size).astype(np.bool_)
    return result

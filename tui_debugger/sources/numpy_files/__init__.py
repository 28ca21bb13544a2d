"""A directory of .npy and .npz files as a source."""

"""Trees whose names say whose tensor each file holds: TorchAir's FX graphs, ATB, SingleSave of msprobe."""

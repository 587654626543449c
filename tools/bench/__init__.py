"""``torchsonic bench``: what is measured and with which options; :mod:`benchmarks` measures it."""

"""Rotations that tests use again and again."""

import torch


def turn_about(axis, degrees):
    x, y, z = (torch.tensor(axis, dtype=torch.float64) / torch.tensor(axis, dtype=torch.float64).norm()).tolist()
    generator = torch.tensor([[0, -z, y], [z, 0, -x], [-y, x, 0]], dtype=torch.float64)
    return torch.linalg.matrix_exp(torch.deg2rad(torch.tensor(float(degrees), dtype=torch.float64)) * generator)


# Between two or three storages, all equally close.
TIES = [((1, 0, 0), 45), ((0, 1, 0), -45), ((0, 0, 1), 135), ((1, 1, 1), 60), ((1, 1, 0), 90), ((1, -1, 1), -60)]

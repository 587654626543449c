"""NIfTI volumes: cases in folders, read, prepared, cut into patches, changed at random, and labels written."""

from torchsonic.lab.data.volumes.cases import Case, CaseError, find_cases
from torchsonic.lab.data.volumes.nifti import Volume, read_case, write_labels

__all__ = ["Case", "CaseError", "Volume", "find_cases", "read_case", "write_labels"]

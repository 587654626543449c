"""Weights of the authors' released code, read into our layers.

    reading      a file into named tensors; nothing from it is executed
    generations  names and shapes of three generations of their layer
    physical     what their numbers mean: directions, poles, scales
    layers       the same operator as one of our layers
    conversion   a whole file, and the report of what was mapped and what was not

Names, shapes and formulas follow the paper's Appendix A and the public reference implementation; none of its code is
used.
"""

from torchsonic.integrations.released.conversion import Conversion, convert_file
from torchsonic.integrations.released.generations import ConversionError, Generation
from torchsonic.integrations.released.layers import Choices
from torchsonic.integrations.released.reading import read_tensors

__all__ = ["Choices", "Conversion", "ConversionError", "Generation", "convert_file", "read_tensors"]

"""Whole networks, by class and by name."""

from torchsonic.models import entries as _entries  # noqa: F401  (registers the names)
from torchsonic.models.classifier import Classifier
from torchsonic.models.model_folder import list_pretrained, pretrained_folder
from torchsonic.models.orbitnet import OrbitClassifier, OrbitNet
from torchsonic.models.pretrained import PretrainedError, PretrainedModel, from_pretrained
from torchsonic.models.reference_grid import OctaveGrid, ReferenceGrid
from torchsonic.models.registry import ModelEntry, create_model, list_models, model_entry
from torchsonic.models.resnet import ResNet
from torchsonic.models.sequence import SequenceClassifier
from torchsonic.models.sonic_classifier import MixerBlock, SonicClassifier
from torchsonic.models.sonic_layers import SonicLayers
from torchsonic.models.sonic_unet import SonicUNet
from torchsonic.models.sonicnet import SonicNet
from torchsonic.models.stem import DeepStem, SonicStem
from torchsonic.models.synthshape import SynthShapeNet

__all__ = [
    "Classifier",
    "DeepStem",
    "MixerBlock",
    "ModelEntry",
    "OctaveGrid",
    "OrbitClassifier",
    "OrbitNet",
    "PretrainedError",
    "PretrainedModel",
    "ReferenceGrid",
    "ResNet",
    "SequenceClassifier",
    "SonicClassifier",
    "SonicLayers",
    "SonicNet",
    "SonicStem",
    "SonicUNet",
    "SynthShapeNet",
    "create_model",
    "from_pretrained",
    "list_models",
    "list_pretrained",
    "model_entry",
    "pretrained_folder",
]

"""Pictures of modes, kernels, spectra and receptive fields; needs the extra ``viz``.

Computing and drawing are separate: functions named ``draw_*`` return matplotlib figures, all others return numbers.
"""

from torchsonic.viz.energy import (
    decay_lengths,
    mode_energies,
    pair_energies,
    peak_gains,
    radial_profile,
    spectral_energy,
    wavelengths,
)
from torchsonic.viz.lattice import (
    Lattice,
    mode_beams,
    mode_spectra,
    physical_modes,
    physical_operator,
    reference_lattice,
)
from torchsonic.viz.modes import draw_modes, draw_slices, strongest_modes
from torchsonic.viz.pipeline import Pipeline, draw_pipeline, layer_inputs, layer_pipeline
from torchsonic.viz.progress import Snapshot, draw_snapshot, take_snapshots, write_animation
from torchsonic.viz.receptive_field import ReceptiveField, draw_receptive_fields, receptive_field
from torchsonic.viz.rose import draw_rose, layer_orientation, orientation_histogram
from torchsonic.viz.spectra import draw_mixed, draw_stages, draw_stages_beside, mixed_responses
from torchsonic.viz.sweep import PlaneMode, draw_sweep, plane_mode_pictures
from torchsonic.viz.twin import convolution_twin

__all__ = [
    "Lattice",
    "Pipeline",
    "PlaneMode",
    "ReceptiveField",
    "Snapshot",
    "convolution_twin",
    "decay_lengths",
    "draw_mixed",
    "draw_modes",
    "draw_pipeline",
    "draw_receptive_fields",
    "draw_rose",
    "draw_slices",
    "draw_snapshot",
    "draw_stages",
    "draw_stages_beside",
    "draw_sweep",
    "layer_inputs",
    "layer_orientation",
    "layer_pipeline",
    "mixed_responses",
    "mode_beams",
    "mode_energies",
    "mode_spectra",
    "orientation_histogram",
    "pair_energies",
    "peak_gains",
    "physical_modes",
    "physical_operator",
    "plane_mode_pictures",
    "radial_profile",
    "receptive_field",
    "reference_lattice",
    "spectral_energy",
    "strongest_modes",
    "take_snapshots",
    "wavelengths",
    "write_animation",
]

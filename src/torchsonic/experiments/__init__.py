"""The paper's experiments: each a configuration, its presets, and what a run leaves behind."""

"""Whole runs: each a configuration, its presets, and what training leaves behind in a folder."""

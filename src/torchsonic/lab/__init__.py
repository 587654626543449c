"""The laboratory: data, metrics, the training loop, whole runs of tasks, and reports on them."""

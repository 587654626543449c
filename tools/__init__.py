"""Commands of a checkout: benchmarks, dependencies and their licences, figures of the documentation; in no wheel."""

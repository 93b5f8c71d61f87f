"""Reads metrics as Prometheus would read them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import TypeAlias

from prometheus_client.parser import text_string_to_metric_families

Samples: TypeAlias = Mapping[str, Mapping[tuple[str, ...], float]]
"""The values of each metric, by the values of its labels in the order of their names."""


def samples_of(text: str) -> Samples:
    """Parse the response to a scrape."""
    samples: dict[str, dict[tuple[str, ...], float]] = defaultdict(dict)
    for family in text_string_to_metric_families(text):
        for each in family.samples:
            labels = tuple(each.labels[name] for name in sorted(each.labels))
            values = samples[each.name.removeprefix("cardonfile_")]
            assert labels not in values, f"{each.name} twice"
            values[labels] = each.value
    return samples

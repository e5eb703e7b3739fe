"""The JSON Schema of the reports that crossflops writes."""

from collections.abc import Mapping
from typing import Any

import msgspec

from crossflops.errors import InputError
from crossflops.hardware import machine  # noqa: F401  its types are in those of reports
from crossflops.report.audit import Audit
from crossflops.report.bench import Bench
from crossflops.report.efficiency import EfficiencyReport
from crossflops.report.identification import Identification
from crossflops.report.profile import TrainingProfile
from crossflops.report.report import Report
from crossflops.report.sweep import Sweep

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
# The type of the report that each verb writes, of those that `render` reads.
REPORT_TYPES: Mapping[str, type] = {
    "count": Report,
    "compare": Report,
    "bench": Bench,
    "efficiency": EfficiencyReport,
    "profile": TrainingProfile,
    "identify": Identification,
    "audit": Audit,
    "sweep": Sweep,
}


def build_schema(verb: str | None = None) -> dict[str, Any]:
    """Return the JSON Schema of the report of a verb, or that of any report for None. Raises
    InputError for a verb without a report.
    """
    if verb is None:
        types = tuple(dict.fromkeys(REPORT_TYPES.values()))
        schemas, definitions = msgspec.json.schema_components(types)
        return {"$schema": _DIALECT, "anyOf": list(schemas), "$defs": definitions}
    if verb not in REPORT_TYPES:
        known = ", ".join(REPORT_TYPES)
        raise InputError(f"{verb} writes no report that has a schema", f"choose one of {known}")
    return {"$schema": _DIALECT, **msgspec.json.schema(REPORT_TYPES[verb])}

"""The rows of a trace file, in whichever format it is."""

from __future__ import annotations

from pathlib import Path

from sched_env.errors import TraceError, did_you_mean
from sched_env.workload.readers.formats import FORMATS, named_format, recognised_format
from sched_env.workload.readers.raw_requests import RawRequests, ReadOptions
from sched_env.workload.readers.servegen import read_servegen_folder
from sched_env.workload.readers.trace_file import TraceFile
from sched_env.workload.synthetic import WORKLOADS


def rows_of_file(path: Path, format_name: str | None, options: ReadOptions) -> RawRequests:
    """Return the rows of a trace file, or of a folder of ServeGen clients.

    Raises:
        TraceError: The file cannot be read; the message names file, line and column.
        UnknownNameError: No such format.
    """
    trace_format = None if format_name is None else named_format(format_name)
    if path.is_dir() and trace_format in (None, FORMATS["servegen"]):
        return read_servegen_folder(path, options)
    if not path.exists() and len(path.parts) == 1 and not path.suffix:
        raise TraceError(
            f"no file and no embedded workload {path.name!r}.{did_you_mean(path.name, WORKLOADS)} "
            f"Embedded: {', '.join(WORKLOADS)}; give one of them or the path of a trace"
        )
    file = TraceFile.load(path)
    return (trace_format or recognised_format(file)).read(file, options)

"""pop.cpp: large language models on a CPU, pruned while they run.

engine = popcpp.Engine("model.gguf")
session = engine.session("pop", ratio=0.2)
for piece in session.generate("The capital of France is", max_tokens=16):
    print(piece, end="", flush=True)
"""

from ._core import (
    BatchAnswer,
    BatchResult,
    BuildInfo,
    ByteShare,
    Engine,
    Error,
    FfnInfo,
    FfnReads,
    Generation,
    MethodInfo,
    ModelInfo,
    PartitionSummary,
    Plan,
    Planned,
    ReadStats,
    RealisedRatio,
    Score,
    Session,
    SessionMemory,
    Timing,
    TopToken,
    available_isas,
    build_info,
    built_isas,
    methods,
)

__version__ = build_info().version

__all__ = [
    "BatchAnswer",
    "BatchResult",
    "BuildInfo",
    "ByteShare",
    "Engine",
    "Error",
    "FfnInfo",
    "FfnReads",
    "Generation",
    "MethodInfo",
    "ModelInfo",
    "PartitionSummary",
    "Plan",
    "Planned",
    "ReadStats",
    "RealisedRatio",
    "Score",
    "Session",
    "SessionMemory",
    "Timing",
    "TopToken",
    "__version__",
    "available_isas",
    "build_info",
    "built_isas",
    "methods",
]

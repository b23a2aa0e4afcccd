"""Where the ranks of the chosen cases may live on this machine."""

import math
import os
from collections.abc import Mapping

from cp_matrix.facts.nccl import SHARED_GPU_ENVIRONMENT
from cp_matrix.run.slots import Slots
from cp_matrix.session.choose import Chosen


def slots_for(chosen: Chosen) -> Slots:
    """The places for the ranks of the chosen cases: GPUs, or processors."""
    facts = chosen.facts
    widest = max((case.world_size for case in chosen.plan.runnable), default=1)
    if facts["device"] == "cuda":
        gpus = tuple(str(gpu["visible"]) for gpu in facts["gpus"])
        labels = {str(gpu["visible"]): f"cuda:{gpu['index']}" for gpu in facts["gpus"]}
        return Slots(gpus * ranks_per_gpu(chosen), labels=labels)
    # More ranks than processors do not make gloo faster, but the widest world must fit.
    return Slots(("cpu",) * max(int(facts["cpu_count"]), widest))


def ranks_per_gpu(chosen: Chosen) -> int:
    """How many ranks share each GPU in this run: no more than the widest world needs, unless asked."""
    facts = chosen.facts
    if facts["device"] != "cuda" or not facts["gpu_count"]:
        return 1
    if chosen.request.ranks_per_gpu is not None:
        return chosen.request.ranks_per_gpu
    widest = max((case.world_size for case in chosen.plan.runnable), default=1)
    return min(int(facts["ranks_per_gpu"]), math.ceil(widest / int(facts["gpu_count"])))


def environ_for(chosen: Chosen) -> Mapping[str, str]:
    """The environment that worlds inherit here."""
    return {**SHARED_GPU_ENVIRONMENT, **os.environ} if ranks_per_gpu(chosen) > 1 else os.environ

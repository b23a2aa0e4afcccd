"""What libraries start or set once, on purpose, while a case happens to run: no case's wreckage.

torch.compile keeps a pool of compiling processes with its threads, tqdm a monitor, multiprocessing a
tracker. They are left alone and not reported: ending them would break the next case that compiles.
"""

#: Variables that libraries set for themselves as they load.
VARIABLES = frozenset(
    {
        "CUDA_MODULE_LOADING",
        "KINETO_LOG_LEVEL",
        "TORCHINDUCTOR_CACHE_DIR",
        "TRITON_CACHE_DIR",
        "TRITON_PTXAS_BLACKWELL_PATH",
        "TRITON_PTXAS_PATH",
    }
)

#: Threads by name: torch.compile's pool and its timers, tqdm's monitor.
THREADS = frozenset({"InductorSubproc", "subproc_worker_timer", "tqdm_monitor"})

#: What torch itself needs and loads when it first does: its declared dependencies, and a script's module.
MODULES = frozenset(
    {
        *("filelock", "fsspec", "jinja2", "markupsafe", "mpmath", "networkx", "numpy", "sympy", "triton"),
        *("_remote_module_non_scriptable", "setuptools", "typing_extensions"),
    }
)

_COMMANDS = (
    "torch/_inductor/compile_worker",
    "torch._inductor.compile_worker",
    "multiprocessing.resource_tracker",
)


def is_service(command: str) -> bool:
    """Whether a child process with this command line is a library's own."""
    return any(part in command for part in _COMMANDS)

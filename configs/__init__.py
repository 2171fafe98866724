"""The configuration files that ship with sched-env, one folder per kind.

``env/``, ``trace/``, ``cost/``, ``agent/`` and ``experiment/`` hold small YAML files; a file's name
without its ending is the name to give, as in ``load_config(EnvConfig, "h100_8b_small_kv")``.
"""

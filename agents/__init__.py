"""Learned schedulers: networks, PPO with elapsed-time discount, training runs and export.

All but ``score_search`` and ``widening`` needs the extra ``agents`` (torch, stable-baselines3,
sb3-contrib, tensorboard). Import it as ``sched_env.agents``.
"""

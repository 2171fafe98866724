"""Tuning of a linear score by evolution: the opponent that a learned policy has to beat.

It needs the extra ``tune`` (cmaes) and no torch.
"""

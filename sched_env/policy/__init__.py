"""Who decides: heuristics, exported policies and the registry of their names."""

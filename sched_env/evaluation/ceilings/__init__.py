"""How far from the best possible: what no scheduler can exceed, and what one found in hindsight."""

"""The arena: policies under every condition that matters, and where which of them wins."""

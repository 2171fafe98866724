"""The compiled step of the batched environment once more, in C, on the same memory."""
